"""Build the module of tile IR for a kernel and the types of its arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from tilewright.base import knobs
from tilewright.base.diagnostics import CompilationError
from tilewright.base.record import record
from tilewright.base.symbols import symbol_of
from tilewright.frontend import ast_to_ir
from tilewright.frontend.ast_to_ir.call_function import as_argument, run_body
from tilewright.frontend.ast_to_ir.errors import error_at
from tilewright.frontend.ast_to_ir.frame import Context, Frame
from tilewright.frontend.options import FrontendOptions
from tilewright.frontend.source import KernelParam, SourceFunction
from tilewright.ir.core import Function, Module
from tilewright.ir.types import BY_SHORT, Type
from tilewright.language.semantic import Semantic
from tilewright.language.semantic.convert import check_fp8, constant
from tilewright.language.types import (
    constexpr_type,
    str_to_ty,
    tensor_descriptor_type,
    tuple_type,
)
from tilewright.language.values import constexpr, flat_types, unflatten
from tilewright.ops.control import Return

Path = tuple[int, ...]

# Attributes of arguments in Triton's notation -> their names in tile IR.
ATTRIBUTES = {
    "tt.divisibility": "divisibility",
    "tt.pointer_range": "pointer_range",
    "tw.alias": "alias",
}
_TRANSLATOR = os.path.dirname(os.path.abspath(ast_to_ir.__file__))
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(_TRANSLATOR)), "")


@record
class Specialization:
    """The argument of a kernel's `repr` function."""

    constants: dict[str, Any]
    signature: dict[str, Any]


def build_module(
    fn: SourceFunction,
    signature: Mapping[str, Any],
    constexprs: Mapping[Any, Any] | None = None,
    attrs: Mapping[Path, Sequence[Sequence[Any]]] | None = None,
    options: FrontendOptions | None = None,
) -> Module:
    """The IR of a kernel: the kernel itself, followed by the functions that it calls.

    Args:
        fn: the kernel.
        signature: parameter name -> type string such as ``"*fp32"``, ``"constexpr"`` or
            ``"tensordesc<fp16[64, 64]>"``; a tuple of them for a tuple.
        constexprs: values of compile-time parameters, by name or by path: ``(index,)`` of the
            parameter, then indices into nested tuples.
        attrs: path of an argument -> ``[name, value]`` pairs: "tt.divisibility",
            "tt.pointer_range", "tw.alias". The base of a descriptor is its part 0.
        options: properties of the target, see `FrontendOptions`.

    Raises:
        CompilationError: the kernel is invalid; the message has the location.
    """
    options = options or FrontendOptions()
    fn.check_params()
    try:
        return _Builder(fn, signature, constexprs or {}, attrs or {}, options).build()
    except CompilationError as error:
        hide_frames(error, _TRANSLATOR)
        raise


class _Builder:
    """One kernel with its arguments."""

    def __init__(
        self,
        fn: SourceFunction,
        signature: Mapping[str, Any],
        constexprs: Mapping[Any, Any],
        attrs: Mapping[Path, Sequence[Sequence[Any]]],
        options: FrontendOptions,
    ) -> None:
        self.fn = fn
        self.signature = signature
        self.attrs = attrs
        self.context = Context(options)
        self.frame = Frame(self.context, fn, is_kernel=True)
        self.constants = {self._path(k): v for k, v in constexprs.items()}

    def _path(self, key: Any) -> Path:
        return (self.fn.arg_names.index(key),) if isinstance(key, str) else key

    def build(self) -> Module:
        types = [self.param_type(p) for p in self.fn.params]
        leaves = [
            leaf
            for p, t in zip(self.fn.params, types, strict=True)
            for leaf in _leaves(t, (p.num,), p.name)
        ]
        function = Function(
            self.symbol(),
            [leaf.type for leaf in leaves],
            (),
            [leaf.facts | self.arg_attrs(leaf.path) for leaf in leaves],
            self.frame.loc(self.frame.definition),
            [leaf.name for leaf in leaves],
        )
        self.context.module.add(function)
        handles = iter(function.args)
        for p, t in zip(self.fn.params, types, strict=True):
            self.frame.names[p.name] = as_argument(unflatten(t, handles))
        with self.context.builder.at_end(function.body):
            self.type_ints()
            run_body(self.frame)
            self.context.builder.insert(Return([]))
        return self.context.module

    def type_ints(self) -> None:
        """Convert ints for which the kernel is specialised to the types of their annotations."""
        for p in self.fn.params:
            value = self.constants.get((p.num,))
            if p.int_type and type(value) is int:
                of_type = constant(self.frame.semantic, value, BY_SHORT[p.int_type])
                self.frame.names[p.name] = of_type

    def symbol(self) -> str:
        """The symbol of the kernel, whose name a function of the program may determine (`repr`)."""
        by_name = {self.fn.arg_names[p[0]]: v for p, v in self.constants.items() if len(p) == 1}
        return symbol_of(self.fn.repr(Specialization(by_name, dict(self.signature))))

    def param_type(self, param: KernelParam) -> Any:
        """The type of a parameter; constexpr_type for a compile-time value."""
        path = (param.num,)
        if path in self.constants:
            return constexpr_type(_plain(self.constants[path]))
        text = self.signature.get(param.name)
        if text is None or text == "constexpr":
            if text is None and not param.is_constexpr and not param.has_default:
                raise error_at(
                    self.frame,
                    self.frame.definition,
                    f"no type is given for the parameter {param.name}",
                )
            if not param.has_default:
                raise error_at(
                    self.frame,
                    self.frame.definition,
                    f"no value is given for the compile-time parameter {param.name}",
                )
            return constexpr_type(_plain(param.default))
        return self.type_at(text, path)

    def type_at(self, text: Any, path: Path) -> Any:
        """The type for a type string, or a tuple of them, at a path."""
        if path in self.constants:
            return constexpr_type(_plain(self.constants[path]))
        if isinstance(text, str):
            result = str_to_ty(text)
            if isinstance(result, constexpr_type):
                raise error_at(
                    self.frame,
                    self.frame.definition,
                    f"no value is given for the argument at {path}",
                )
            for flat in flat_types(result):
                check_fp8_argument(self.frame, flat)
            return result
        nested = [self.type_at(t, (*path, i)) for i, t in enumerate(text)]
        fields = getattr(text, "_fields", None)
        return tuple_type(nested, fields, type(text) if fields else None)

    def arg_attrs(self, path: Path) -> dict[str, Any]:
        pairs = self.attrs.get(path, ())
        return {ATTRIBUTES[name]: value for name, value in pairs if name in ATTRIBUTES}


def check_fp8_argument(frame: Frame, type_: Any) -> None:
    """Raise CompilationError for an argument of an fp8 type that the target does not support."""
    try:
        semantic: Semantic = frame.semantic
        check_fp8(semantic, type_)
    except ValueError as error:
        raise error_at(frame, frame.definition, str(error)) from error


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


class _Leaf(NamedTuple):
    """A run-time value in a parameter.

    Attributes:
        facts: guaranteed properties of the value, as in `Function.arg_attrs`.
    """

    path: Path
    name: str
    type: Type
    facts: dict[str, Any]


def _leaves(type_: Any, path: Path, name: str) -> Iterator[_Leaf]:
    """The run-time values in a parameter, in order."""
    if isinstance(type_, tuple_type):
        for i, nested in enumerate(type_.types):
            yield from _leaves(nested, (*path, i), f"{name}.{i}")
    elif isinstance(type_, tensor_descriptor_type):
        for leaf in type_.leaves():
            facts = {"divisibility": leaf.divisibility} if leaf.divisibility > 1 else {}
            full_name = f"{name}.{leaf.name}" if leaf.name else name
            yield _Leaf((*path, leaf.place), full_name, leaf.type, facts)
    else:
        for flat in flat_types(type_):
            yield _Leaf(path, name, flat, {})


def hide_compiler(error: CompilationError) -> None:
    """Remove the compiler's frames from the traceback of a launch of a kernel with an error. Those
    of programs remain, such as of a function that the kernel calls at compile time."""
    hide_frames(error, _PACKAGE)


def hide_frames(error: BaseException, folder: str) -> None:
    """Remove the frames of a folder from the tracebacks of an error and of its causes, unless the
    front end is debugged."""
    if knobs.compilation.front_end_debugging:
        return
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = _without(folder, current.__traceback__)
        current = current.__cause__ or current.__context__


def _without(folder: str, traceback: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(folder):
            kept.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for entry in reversed(kept):
        entry.tb_next = result
        result = entry
    return result
