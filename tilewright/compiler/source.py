"""Sources of a compilation: a kernel with its argument types, or a file of tile IR."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.digest import sha256
from tilewright.base.lazy_import import lazy_import
from tilewright.frontend.constant_key import constant_key
from tilewright.frontend.source import SourceFunction
from tilewright.ir.types import Pointer, Shared, TensorMemory, Tile, Type
from tilewright.language.types import DescriptorLeaf, str_to_ty, tensor_descriptor_type
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target as find_target

if TYPE_CHECKING:
    import pathlib

    from tilewright.frontend import build
    from tilewright.frontend.options import FrontendOptions
    from tilewright.ir import parser, printer, verify
    from tilewright.ir.core import Function, Module
else:
    pathlib = lazy_import("pathlib")
    build = lazy_import("tilewright.frontend.build")
    parser = lazy_import("tilewright.ir.parser")
    printer = lazy_import("tilewright.ir.printer")
    verify = lazy_import("tilewright.ir.verify")


CONSTEXPR = "constexpr"
IR_EXTENSIONS = (".ttir", ".ir")
MAX_NAME = 150  # length to which file names truncate the kernel name

ArgPath = tuple[int, ...]
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def digest(*parts: str) -> str:
    """A hash of the strings that also depends on their boundaries."""
    state = sha256()
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def runtime_arguments(
    signature: Sequence[Any], prefix: ArgPath = ()
) -> Iterator[tuple[ArgPath, str]]:
    """Path and type string of each run-time argument. Tuples are flattened into leaves, and
    descriptors into (base, *shape, *strides).

    >>> list(runtime_arguments(["*fp32", "constexpr", ("i32", "fp32")]))
    [((0,), '*fp32'), ((2, 0), 'i32'), ((2, 1), 'fp32')]
    >>> list(runtime_arguments(["tensordesc<fp16[64]>"]))
    [((0, 0), '*fp16'), ((0, 1), 'i32')]
    """
    for i, type in enumerate(signature):
        if isinstance(type, tuple | list):
            yield from runtime_arguments(type, (*prefix, i))
        elif type.startswith("tensordesc"):
            for leaf in _descriptor_leaves(type):
                yield (*prefix, i, leaf.place), signature_type(leaf.type)
        elif type != CONSTEXPR:
            yield (*prefix, i), type


def _descriptor_leaves(name: str) -> list[DescriptorLeaf]:
    found = str_to_ty(name)
    assert isinstance(found, tensor_descriptor_type)
    return found.leaves()


class ASTSource:
    """A kernel with the types of its arguments and the values of its compile-time arguments.

        ASTSource(kernel, {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 128})

    Args:
        fn: the kernel, as returned by `jit`.
        signature: the type string of each parameter by name; "constexpr" for a compile-time
            parameter (it may be omitted if `constexprs` has it); a tuple for a tuple.
        constexprs: values by name, or by path (parameter index, tuple index, …).
        attrs: attributes of arguments by path, such as ``{(0,): [["tt.divisibility", 16]]}``; the
            base of a descriptor is its element 0.

    Raises:
        TypeError: a signature key is not a string, or a parameter has neither type nor value.
        ValueError: the kernel has no parameter of a given name.
    """

    ext = "ttir"
    language = "tilewright"

    def __init__(
        self,
        fn: SourceFunction | Any,
        signature: Mapping[Any, Any],
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[ArgPath, list[Any]] | None = None,
    ) -> None:
        if not isinstance(fn, SourceFunction):
            raise TypeError(f"{fn!r} is not a kernel: decorate it with @jit")
        if not isinstance(signature, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "a signature is a dict of type strings by parameter, {'x': '*fp32', 'n': 'i32'}, "
                f"not {signature!r}"
            )
        for name in signature:
            if not isinstance(name, str):
                raise TypeError("Signature keys must be string")
        self.fn = fn
        self.name = fn.__name__
        names = list(fn.arg_names)
        self.constants = self._by_path(constexprs or {}, names)
        self.constexprs = self.constants
        self.signature = self._complete(signature, names)
        self.attrs: dict[ArgPath, list[Any]] = dict(attrs or {})

    def _by_path(self, given: Mapping[Any, Any], names: list[str]) -> dict[ArgPath, Any]:
        result: dict[ArgPath, Any] = {}
        for key, value in given.items():
            if isinstance(key, str):
                self._require_known(key, names)
                result[names.index(key),] = value
            else:
                result[key] = value
        return result

    def _complete(self, given: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
        for name in given:
            self._require_known(name, names)
        complete: dict[str, Any] = {}
        for i, param in enumerate(self.fn.params):
            if (i,) in self.constants:
                complete[param.name] = CONSTEXPR
            elif param.name in given and given[param.name] != CONSTEXPR:
                complete[param.name] = given[param.name]
            elif param.is_constexpr and param.has_default:
                self.constants[i,] = param.default
                complete[param.name] = CONSTEXPR
            else:
                what = "value" if param.is_constexpr or param.name in given else "type"
                raise TypeError(f"{self.name}: the parameter {param.name!r} has no {what}")
        return complete

    def _require_known(self, name: str, names: list[str]) -> None:
        if name not in names:
            raise ValueError(f"{self.name} has no parameter {name!r}; it has {', '.join(names)}")

    @property
    def text(self) -> str:
        """The kernel's own source, from `def` on."""
        return self.fn.src

    def hash(self) -> str:
        """A hash of everything that the resulting module depends on, except the options.

        Raises:
            RuntimeError: a global variable has changed since a function was hashed.
        """
        constants = sorted((k, repr(constant_key(v))) for k, v in self.constants.items())
        attrs = sorted((k, str(v)) for k, v in self.attrs.items())
        key = self.fn.cache_key
        self.fn.check_globals()
        return digest(key, str(self.signature), str(constants), str(attrs))

    def cacheable(self) -> bool:
        """Whether the hash is valid in other processes."""
        # A default repr contains an address, which another process may use for another object.
        return not any(_ADDRESS.search(repr(constant_key(v))) for v in self.constants.values())

    def module(self, options: FrontendOptions) -> Module:
        """Run the front end.

        Raises:
            CompilationError: the kernel is invalid.
        """
        return build.build_module(self.fn, self.signature, self.constants, self.attrs, options)

    def make_ir(
        self, target: GPUTarget, options: Any, codegen_fns: Any, module_map: Any, context: Any
    ) -> Any:
        """The accesses of the kernel, in the form of Triton's IR, from which torch determines the
        arguments that a kernel mutates. For tile IR, see `module`.

        Args:
            options: from the target's `parse_options`.
            codegen_fns, module_map: ignored; accepted for compatibility.
            context: from `triton._C.libtriton.ir.context`.

        Raises:
            CompilationError: the kernel is invalid.
        """
        frontend_options = find_target(target).frontend_options(options)
        return context.summary(self, self.module(frontend_options))

    def parse_options(self) -> dict[str, Any]:
        """Options specified by the source: none."""
        return {}


class IRSource:
    """Tile IR text in a `*.ttir` or `*.ir` file. Its first function is the kernel.

    Args:
        path: the file.
        context, backend: ignored; accepted for compatibility.

    Raises:
        ValueError: the file has another extension.
        IRError: the text is not valid tile IR.
    """

    language = "tilewright"

    def __init__(
        self, path: str | os.PathLike[str], context: Any = None, backend: Any = None
    ) -> None:
        self.path = pathlib.Path(path)
        if self.path.suffix not in IR_EXTENSIONS:
            raise ValueError(
                f"{self.path}: compile takes a kernel or a file of tile IR "
                f"({', '.join('*' + e for e in IR_EXTENSIONS)}), not {self.path.suffix!r}"
            )
        self._arg_names: list[str] = []
        self._take(self.path.read_text("utf-8"))
        self._describe(self._parse().entry)

    @classmethod
    def of_module(cls, module: Module) -> IRSource:
        """A source that is not a file, such as a derived kernel. It has a copy of the module, which
        is parsed only if the kernel is not in the cache."""
        verify.verify_module(module)
        result = object.__new__(cls)
        result.path = pathlib.Path("<text>.ttir")
        result._arg_names = list(module.entry.arg_names)  # which the text does not have
        result._take(printer.print_module(module))
        result._describe(module.entry)
        return result

    def _take(self, text: str) -> None:
        self.ext = self.path.suffix[1:]
        self.text = text

    def _describe(self, entry: Function) -> None:
        self.name = entry.name
        self.signature = {
            entry.arg_names[i] if entry.arg_names else f"arg{i}": signature_type(arg.type)
            for i, arg in enumerate(entry.args)
        }
        self.constants: dict[ArgPath, Any] = {}
        self.constexprs = self.constants

    def _parse(self) -> Module:
        module = parser.parse_module(self.text, str(self.path))
        verify.verify_module(module)
        if self._arg_names:
            module.entry.arg_names = list(self._arg_names)
        return module

    def hash(self) -> str:
        return digest(self.text)

    def cacheable(self) -> bool:
        return True

    def module(self, options: FrontendOptions) -> Module:
        """The module of the file."""
        return self._parse()

    def parse_options(self) -> dict[str, Any]:
        return {}


Source = ASTSource | IRSource


def signature_type(type: Type) -> str:
    """The type string of an IR type, as in a signature: ``*fp32`` for ``ptr<fp32>``.

    Raises:
        ValueError: it is not the type of a kernel's argument.
    """
    if isinstance(type, Tile | Shared | TensorMemory):
        raise ValueError(f"a kernel takes scalars and pointers, not {type}")
    if isinstance(type, Pointer):
        return f"*{'k' if type.const else ''}{signature_type(type.element_ty)}"
    return "u1" if type.is_bool() else type.short
