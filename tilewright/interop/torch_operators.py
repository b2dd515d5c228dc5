"""`custom_op`: a kernel as an operator of torch, declared by a schema.

    @tilewright.torch.custom_op(
        schema="my_library::scale(Tensor x, float factor) -> Tensor y",
        outputs={"y": lambda a: torch.empty_like(a["x"])},
        arguments={"n": lambda a: a["x"].numel(), "BLOCK": 1024},
        grid=lambda a: (tilewright.cdiv(a["n"], a["BLOCK"]),),
    )
    @tilewright.jit
    def scale(x, y, n, factor, BLOCK: tl.constexpr): ...

torch checks the types of arguments by the schema and takes from it which tensors the operator
updates; fake tensors get their shapes from `outputs`. So torch.compile, torch.export and autograd
treat the operator like one of torch's own. The compilation of each variant checks that the kernel
stores to no other tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, overload
from weakref import WeakSet

from tilewright.base.diagnostics import CompilationError
from tilewright.base.lazy_import import lazy_import
from tilewright.base.located import error_at
from tilewright.base.spelling import similar
from tilewright.compiler.artifact import CompiledKernel
from tilewright.frontend.source import JITCallable
from tilewright.interop.kernel_wrappers import computed_names, inner_kernel
from tilewright.interop.torch_gradients import laid_out
from tilewright.runtime.jit import JITFunction, MockTensor
from tilewright.targets.registry import target as find_target

if TYPE_CHECKING:
    from tilewright.interop import stores
else:
    stores = lazy_import("tilewright.interop.stores")

Named = dict[str, Any]
Allocate = Callable[[Named], Any]
Backward = Callable[[Named, Named], Mapping[str, Any]]
EXAMPLE = "my_library::scale(Tensor x, Tensor(a!) total, float factor=1.0) -> Tensor y"


def _torch() -> Any:
    import torch

    return torch


@overload
def custom_op(
    kernel: Any,
    *,
    schema: str,
    grid: Any,
    outputs: Mapping[str, Allocate] | None = None,
    arguments: Mapping[str, Any] | None = None,
    backward: Backward | None = None,
) -> Operator: ...
@overload
def custom_op(
    *,
    schema: str,
    grid: Any,
    outputs: Mapping[str, Allocate] | None = None,
    arguments: Mapping[str, Any] | None = None,
    backward: Backward | None = None,
) -> Callable[[Any], Operator]: ...
def custom_op(
    kernel: Any = None,
    *,
    schema: str,
    grid: Any,
    outputs: Mapping[str, Allocate] | None = None,
    arguments: Mapping[str, Any] | None = None,
    backward: Backward | None = None,
) -> Operator | Callable[[Any], Operator]:
    """Make a kernel an operator of torch.

        scale = tilewright.torch.custom_op(
            scale_kernel,
            schema="my_library::scale(Tensor x, float factor) -> Tensor y",
            outputs={"y": lambda a: torch.empty_like(a["x"])},
            arguments={"n": lambda a: a["x"].numel(), "BLOCK": 1024},
            grid=lambda a: (tilewright.cdiv(a["n"], a["BLOCK"]),),
        )
        y = scale(x, 2.0)

    The operator takes the arguments of the schema, and returns its results. It runs under
    torch.compile without a graph break, and is also `torch.ops.my_library.scale`.

    Args:
        kernel: a kernel, which may be autotuned or have heuristics; without it, custom_op returns a
            decorator.
        schema: the operator's name and signature, as torch writes them. Each argument is a
            parameter of the kernel of the same name. A tensor that the kernel updates in place is a
            `Tensor(a!)`.
        grid: of the launch: extents, or a function of the kernel's arguments by name.
        outputs: for each result, in order, the parameter that it is stored to, and a function that
            allocates it, given the operator's arguments by name. It is called with fake tensors,
            too.
        arguments: values of the kernel's other parameters and compile options; a function gets the
            operator's arguments and results by name, also fake tensors.
        backward: returns the gradients of tensors by name, given the operator's arguments and
            results by name, and the gradients of results by name, which have the strides of the
            results. Under torch.compile it consists of operators of torch, such as other kernels
            with `custom_op`.

    Raises:
        ValueError: the schema is invalid, or does not fit to the kernel.
        TypeError: `kernel` is no kernel.
    """

    def made(kernel: Any) -> Operator:
        return Operator(kernel, schema, grid, dict(outputs or {}), dict(arguments or {}), backward)

    return made if kernel is None else made(kernel)


class _Argument(NamedTuple):
    """An argument of the operator.

    Attributes:
        updated: whether the schema declares that the operator updates it.
        default: None if there is none.
    """

    name: str
    updated: bool
    default: Any


class Operator:
    """An operator of torch that launches a kernel; see `custom_op`.

    Attributes:
        kernel: the kernel, which can still be launched.
        results: the parameters that results are stored to.
        definition: the `torch.library.CustomOpDef`, for `register_vmap` and the like.
    """

    def __init__(
        self,
        kernel: Any,
        schema: str,
        grid: Any,
        outputs: dict[str, Allocate],
        arguments: Named,
        backward: Backward | None,
    ) -> None:
        self.kernel = kernel
        self._inner = inner_kernel(kernel, "tilewright.torch.custom_op")
        self.__name__ = self._inner.__name__
        self.__doc__ = self._inner.fn.__doc__
        parsed = _parsed(schema)
        self._arguments = [
            _Argument(a.name, bool(a.alias_info and a.alias_info.is_write), a.default_value)
            for a in parsed.arguments
        ]
        self._grid = grid
        self._outputs = outputs
        self.results = list(outputs)
        self._given = arguments
        self._checked: WeakSet[CompiledKernel] = WeakSet()
        _require_fit(self._inner, [a.name for a in self._arguments], parsed, outputs, arguments)
        names = {a.name for a in self._arguments} | outputs.keys() | arguments.keys()
        _require_values(self._inner, names | {*computed_names(kernel)})
        self.definition = self._define(schema)
        if backward is not None:
            _Derivative(self, backward).register(self.definition)
        self._call = self.definition._opoverload

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator.

        Raises:
            RuntimeError: an argument does not have the type that the schema declares.
            CompilationError: the kernel is wrong, or updates a tensor that the schema does not
                declare as updated.
        """
        return self._call(*args, **kwargs)

    def _define(self, schema: str) -> Any:
        updated = [argument.name for argument in self._arguments if argument.updated]
        name, _, signature = schema.partition("(")
        with _explained(schema):
            result = _torch().library.custom_op(
                name, self._run, mutates_args=updated, schema=f"({signature}"
            )
        result.register_fake(self._run_fake)
        return result

    # -- running --------------------------------------------------------------------------------

    def bound(self, args: Sequence[Any], kwargs: Named) -> Named:
        """The operator's arguments by name. torch leaves out those that have the default value."""
        named = {argument.name: argument.default for argument in self._arguments}
        return named | dict(zip(named, args, strict=False)) | kwargs

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        named = self.bound(args, kwargs)
        results = self._allocated(named)
        inputs = self._complete(named, results)
        if not self._checked:
            self._require_declared(self.kernel.run(**inputs, grid=self._grid, warmup=True), inputs)
        compiled = self.kernel[self._grid](**inputs)
        if compiled is not None and compiled not in self._checked:
            self._require_declared(compiled, inputs)
        return _returned(results)

    def _run_fake(self, *args: Any, **kwargs: Any) -> Any:
        named = self.bound(args, kwargs)
        results = self._allocated(named)
        self._check_while_tracing(named, results)
        return _returned(results)

    def _allocated(self, named: Named) -> Named:
        results = {name: allocate(dict(named)) for name, allocate in self._outputs.items()}
        for name, result in results.items():
            if not isinstance(result, _torch().Tensor):
                raise TypeError(
                    f"outputs[{name!r}] of {self.__name__} returned {result!r}, not a tensor"
                )
        return results

    def _complete(self, named: Named, results: Named) -> Named:
        """All arguments of the kernel by name."""
        known = named | results
        result = {name: tuple(v) if isinstance(v, list) else v for name, v in known.items()}
        for name, value in self._given.items():
            result[name] = value(dict(known)) if _is_computed(value) else value
        return result

    # -- stores ---------------------------------------------------------------------------------

    def _check_while_tracing(self, named: Named, results: Named) -> None:
        """Compile the kernel for fake tensors, so that undeclared stores are errors of the trace.
        Where that is not possible, the first launch reports them."""
        inputs = self._complete(named, results)
        tensors = [v for v in inputs.values() if isinstance(v, _torch().Tensor)]
        symbolic = (_torch().SymInt, _torch().SymFloat, _torch().SymBool)
        if (
            self.kernel is not self._inner
            or any(tensor.device.type != "cpu" for tensor in tensors)
            or any(isinstance(value, (tuple, *symbolic)) for value in inputs.values())
            or any(isinstance(n, symbolic) for tensor in tensors for n in tensor.shape)
        ):
            return
        mocks = {
            name: MockTensor(v.dtype, v.shape) if isinstance(v, _torch().Tensor) else v
            for name, v in inputs.items()
        }
        self._require_declared(self._inner.run(**mocks, grid=(1,), warmup=True), mocks)

    def _require_declared(self, compiled: CompiledKernel | None, given: Named) -> None:
        """Raise CompilationError if a kernel stores to a tensor that the schema does not declare as
        updated or returned."""
        if compiled is None:  # a hook cancelled the launch
            return
        metadata = compiled.metadata
        declared = {a.name for a in self._arguments if a.updated} | self._outputs.keys()
        for index in metadata.written:
            path, _ = metadata.arguments[index]
            name = self._inner.arg_names[path[0]]
            if name not in declared:
                raise self._undeclared(index, name, given)
        self._checked.add(compiled)

    def _undeclared(self, index: int, name: str, given: Named) -> CompilationError:
        known = {k: v for k, v in given.items() if k in self._inner.arg_names}
        mocks = {
            k: MockTensor(v.dtype, v.shape) if isinstance(v, _torch().Tensor) else v
            for k, v in known.items()
        }
        line = None
        if self.kernel is self._inner:
            source, _, _ = self._inner.bound(**mocks)
            cpu = find_target("cpu")
            line = stores.line_of_store(source, cpu, cpu.parse_options({}), index)
        return error_at(
            line,
            f"the kernel stores to {name!r}, which the schema of {self.__name__} does not declare "
            "as updated",
            [
                f"help: write `Tensor(a!) {name}` in the schema. If it is a result that the "
                f"operator allocates, move it from the arguments to outputs={{{name!r}: …}}"
            ],
        )


def _is_computed(value: Any) -> bool:
    """Whether a value in `arguments` is a function of the other arguments, and not a function of
    the language that is an argument itself."""
    return callable(value) and not isinstance(value, JITCallable)


def _returned(results: Named) -> Any:
    found = tuple(results.values())
    return None if not found else found[0] if len(found) == 1 else found


# -- derivatives ----------------------------------------------------------------------------------


class _Derivative:
    """The autograd formula of an operator."""

    def __init__(self, operator: Operator, backward: Backward) -> None:
        self._operator = operator
        self._backward = backward
        self._results = operator.results

    def register(self, definition: Any) -> None:
        keyword_only = any(a.kwarg_only for a in definition._opoverload._schema.arguments)
        save = self._save_with_keywords if keyword_only else self._save
        definition.register_autograd(self._gradients, setup_context=save)

    def _save_with_keywords(
        self, ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: Named, output: Any
    ) -> None:
        self._save(ctx, inputs, output, keyword_only_inputs)

    def _save(
        self, ctx: Any, inputs: tuple[Any, ...], output: Any, keywords: Named | None = None
    ) -> None:
        named = self._operator.bound(inputs, keywords or {})
        results = output if isinstance(output, tuple) else () if output is None else (output,)
        everything = named | dict(zip(self._results, results, strict=True))
        tensors = {k: v for k, v in everything.items() if isinstance(v, _torch().Tensor)}
        ctx.save_for_backward(*tensors.values())
        ctx.names = list(tensors)
        ctx.others = {k: v for k, v in everything.items() if k not in tensors}
        ctx.inputs = list(named)[: len(inputs)]

    def _gradients(self, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        named = ctx.others | dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        by_name = {
            name: _torch().zeros_like(named[name]) if grad is None else laid_out(grad, named[name])
            for name, grad in zip(self._results, grads, strict=True)
        }
        found = self._backward(named, by_name)
        if not isinstance(found, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"backward of {self._operator.__name__} returned a {type(found).__name__}: return "
                'the gradients by name, such as {"x": dx}'
            )
        for name in found:
            if name not in ctx.inputs:
                raise ValueError(
                    f"backward of {self._operator.__name__} returned a gradient of {name!r}, which "
                    f"is not one of its arguments {ctx.inputs}"
                )
        return tuple(found.get(name) for name in ctx.inputs)


# -- the schema -----------------------------------------------------------------------------------


def _parsed(schema: str) -> Any:
    """The parsed schema.

    Raises:
        ValueError: it is not valid.
    """
    name = schema.partition("(")[0]
    if "(" not in schema or name.count("::") != 1:
        raise ValueError(
            f"the schema {schema!r} does not begin with the name of an operator and its namespace; "
            f"a schema is, for example, {EXAMPLE!r}"
        )
    with _explained(schema):
        return _torch()._C.parse_schema(schema)


@contextmanager
def _explained(schema: str) -> Generator[None]:
    """Convert errors of torch about a schema into errors that show it, with an example."""
    try:
        yield
    except RuntimeError as error:
        message = " ".join(str(error).split())
        raise ValueError(
            f"torch does not accept the schema {schema!r}: {message}. A schema is, for example, "
            f"{EXAMPLE!r}"
        ) from None


def _require_fit(
    inner: JITFunction,
    names: Sequence[str],
    parsed: Any,
    outputs: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> None:
    """Raise ValueError unless arguments and results of the schema belong to parameters."""
    for name in (*names, *outputs):
        if name not in inner.arg_names:
            near = similar(name, inner.arg_names, 1)
            raise ValueError(
                f"{'the schema' if name in names else 'outputs'} names {name!r}, but "
                f"{inner.__name__} has the parameters ({', '.join(inner.arg_names)})"
                + "".join(f"; did you mean {n}?" for n in near)
            )
    for name in (*outputs, *arguments):
        if name in names or (name in outputs and name in arguments):
            raise ValueError(
                f"{inner.__name__} gets {name!r} twice: it is an argument of the schema, in "
                "outputs, or in arguments"
            )
    if any(str(result.type) != "Tensor" for result in parsed.returns):
        raise ValueError(f"the results of {parsed.name} must be tensors, as kernels store them")
    returned = [result.name or None for result in parsed.returns]
    if len(returned) != len(outputs) or any(
        own is not None and own != name for own, name in zip(returned, outputs, strict=True)
    ):
        raise ValueError(
            f"the schema of {inner.__name__} returns ({', '.join(map(str, returned))}) and outputs "
            f"has {list(outputs)}: each result is in outputs, in the same order. A tensor that the "
            "kernel updates in place is an argument `Tensor(a!)`, and no result"
        )


def _require_values(kernel: JITFunction, known: set[str]) -> None:
    """Raise ValueError unless each parameter has a value."""
    for param in kernel.params:
        if param.name not in known and not param.has_default:
            raise ValueError(
                f"the parameter {param.name!r} of {kernel.__name__} has no value: make it an "
                f"argument of the schema, or give it in arguments={{{param.name!r}: …}}"
            )
