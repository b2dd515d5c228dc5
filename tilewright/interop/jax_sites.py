"""A call of a kernel in a JAX program: `Site`, constructed from the arguments of `call`.

A site is hashable, since it is a parameter of the primitive: equal calls share a compilation. The
operands of the primitive are the arrays; everything else is in the site.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from tilewright.base import knobs
from tilewright.base.spelling import similar
from tilewright.interop.batches import Batches
from tilewright.interop.jax_static import Static
from tilewright.interop.jax_wrappers import Grids, Named, grids_of
from tilewright.interop.kernel_wrappers import computed_names, inner_kernel
from tilewright.runtime.grid import Grid
from tilewright.runtime.jit import JITFunction, MockTensor
from tilewright.runtime.tensors import element_type

NONE = -1
"""`Output.operand` of a result that is a parameter of its own."""


class Output(NamedTuple):
    """A result of a call.

    Attributes:
        name: the parameter of the kernel; of a result in place, that of the operand.
        shape, dtype: of the array.
        operand: the index of the operand that it replaces, or NONE.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any
    operand: int


@dataclass(frozen=True)
class Site:
    """A call of a kernel.

    Attributes:
        kernel: as passed to `call`.
        operands: for each array that is passed, the parameter.
        outputs: the results.
        statics: the other parameters' values by name.
        options: compile options by name.
        grid: three extents, or those for each configuration.
        batches: the batches that the kernel runs over, the innermost one first. All else describes
            the call for one element.
    """

    kernel: Any
    operands: tuple[str, ...]
    outputs: tuple[Output, ...]
    statics: tuple[tuple[str, Static], ...]
    options: tuple[tuple[str, Static], ...]
    grid: Grid | Grids
    batches: Batches = ()

    @property
    def inner(self) -> JITFunction:
        """The kernel without autotuning and heuristics."""
        return inner_kernel(self.kernel, "tilewright.jax.call")

    @property
    def aliases(self) -> dict[int, int]:
        """The results in place: index of the output by that of the operand."""
        return {o.operand: i for i, o in enumerate(self.outputs) if o.operand != NONE}

    def named(self, operands: Sequence[Any]) -> Named:
        """The values of the parameters, in the kernel's order, given those of the operands.
        Outputs are `jax.ShapeDtypeStruct`s."""
        outputs = {o.name: jax.ShapeDtypeStruct(o.shape, o.dtype) for o in self.outputs}
        found = outputs | dict(zip(self.operands, operands, strict=True))
        found |= {name: static.value for name, static in self.statics}
        return {name: found[name] for name in self.inner.arg_names if name in found}


def mocks_of(site: Site, operands: Sequence[Any]) -> Named:
    """The values of the parameters, with arrays that have no memory.

    Args:
        operands: anything with a shape and a dtype.

    Raises:
        TypeError: kernels have no such element type.
    """
    arrays = {*site.operands, *(output.name for output in site.outputs)}
    return {
        name: _mock(site, name, value) if name in arrays else value
        for name, value in site.named(operands).items()
    }


def _mock(site: Site, name: str, array: Any) -> MockTensor:
    try:
        dtype = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
        element_type(dtype)
    except (TypeError, ValueError):  # ValueError: the type of random keys
        raise TypeError(
            f"the array {name!r} of {site.inner.__name__} has elements of type {array.dtype}, "
            "which kernels do not have"
        ) from None
    return MockTensor(dtype, array.shape)


# -- the arguments of `call` ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Outputs:
    """`out_shape` and `input_output_aliases`, flattened.

    Attributes:
        leaves: shapes and types.
        keys: the keys of a dict, else None.
        aliases: for each output, the argument that it replaces, a position or a name; or None.
    """

    leaves: list[Any]
    keys: list[str] | None
    aliases: list[int | str | None]

    @property
    def own_names(self) -> list[str]:
        """The parameters of the kernel that are outputs, as far as `out_shape` names them."""
        pairs = zip(self.keys or (), self.aliases, strict=False)
        return [key for key, alias in pairs if alias is None]

    @property
    def own(self) -> list[int]:
        """The outputs that are separate parameters."""
        return [i for i, alias in enumerate(self.aliases) if alias is None]


def bind(
    kernel: Any,
    args: tuple[Any, ...],
    kwargs: Named,
    leaves: Sequence[Any],
    keys: list[str] | None,
    aliases: Mapping[int | str, int | str],
    grid: Any,
) -> tuple[Site, list[Any]]:
    """The site of a call, and its operands.

    Args:
        leaves: the elements of `out_shape`.
        keys: the keys that they have in it, if it is a dict.

    Raises:
        the errors of `call`.
    """
    inner = inner_kernel(kernel, "tilewright.jax.call")
    inner.check_globals()  # a program that exists already would run the code for the old values
    outputs = _Outputs(list(leaves), keys, _output_aliases(leaves, keys, aliases))
    for name in outputs.own_names:
        _require_parameter(inner, name, "out_shape")
    given, options = _bound_arguments(inner, args, kwargs, outputs)
    if knobs.runtime.debug:
        options["debug"] = True
    names = _output_names(inner, given, outputs, args)
    _require_complete(kernel, inner, given, names)
    operands, statics = _split(inner, given)
    order = list(operands)
    described = tuple(
        _output(inner, name, leaf, alias, operands, order)
        for name, leaf, alias in zip(names, outputs.leaves, outputs.aliases, strict=True)
    )
    site = Site(
        kernel, tuple(order), described, _statics(statics), _statics(options), grid
    )  # fmt: skip
    arrays = list(operands.values())
    hashable = grids_of(kernel, grid, site.named(arrays), mocks_of(site, arrays))
    return replace(site, grid=hashable), arrays


def _statics(values: Mapping[str, Any]) -> tuple[tuple[str, Static], ...]:
    return tuple((name, Static(value)) for name, value in values.items())


def _output_aliases(
    leaves: Sequence[Any], keys: list[str] | None, aliases: Mapping[int | str, int | str]
) -> list[int | str | None]:
    found: list[int | str | None] = [None] * len(leaves)
    for argument, output in aliases.items():
        index = keys.index(output) if keys and output in keys else output
        if not isinstance(index, int) or not 0 <= index < len(leaves):
            known = keys or list(range(len(leaves)))
            raise ValueError(
                f"input_output_aliases maps {argument!r} to {output!r}, which is no output of "
                f"out_shape; they are {known}"
            )
        if found[index] is not None:
            raise ValueError(
                f"input_output_aliases maps both {found[index]!r} and {argument!r} to the output "
                f"{output!r}"
            )
        found[index] = argument
    return found


def _require_parameter(inner: JITFunction, name: str, where: str) -> None:
    if name not in inner.arg_names:
        near = similar(name, inner.arg_names, 1)
        raise ValueError(
            f"{where} names {name!r}, but {inner.__name__} has the parameters "
            f"({', '.join(inner.arg_names)})" + "".join(f"; did you mean {n}?" for n in near)
        )


def _bound_arguments(
    inner: JITFunction, args: tuple[Any, ...], kwargs: Named, outputs: _Outputs
) -> tuple[Named, Named]:
    """The arguments by parameter, and the compile options."""
    positions = [name for name in inner.arg_names if name not in outputs.own_names]
    if len(args) > len(positions):
        raise TypeError(
            f"{inner.__name__} takes {len(positions)} arguments besides its outputs, not "
            f"{len(args)}"
        )
    operands = dict(zip(positions, args, strict=False))
    options: Named = {}
    for name, value in kwargs.items():
        if name in operands:
            raise TypeError(f"{inner.__name__} is called with {name!r} twice")
        if name in outputs.own_names:
            raise TypeError(
                f"{name!r} is an argument and an output of {inner.__name__}: if the kernel updates "
                f"it in place, add input_output_aliases={{{name!r}: {name!r}}}"
            )
        (operands if name in inner.arg_names else options)[name] = value
    return operands, options


def _output_names(
    inner: JITFunction, given: Named, outputs: _Outputs, args: tuple[Any, ...]
) -> list[str]:
    """The parameter of each output."""
    free = [
        param.name
        for param in inner.params
        if param.name not in given and not param.is_constexpr and not param.has_default
    ]
    own = outputs.own_names if outputs.keys is not None else free[: len(outputs.own)]
    if len(own) < len(outputs.own):
        raise TypeError(
            f"out_shape has {len(outputs.own)} outputs that are not in place, and "
            f"{inner.__name__}({', '.join(inner.arg_names)}) has {len(own)} parameters left for "
            "them: outputs take the first parameters that have no argument. A kernel that updates "
            "an argument in place has that in input_output_aliases"
        )
    positions = list(given)
    names: list[str] = []
    taken = iter(own)
    for alias in outputs.aliases:
        if alias is None:
            names.append(next(taken))
        elif isinstance(alias, int):
            if not 0 <= alias < len(args):
                raise ValueError(
                    f"input_output_aliases names argument {alias} of {len(args)} positional ones"
                )
            names.append(positions[alias])
        else:
            _require_parameter(inner, alias, "input_output_aliases")
            names.append(alias)
    return names


def _require_complete(
    kernel: Any, inner: JITFunction, given: Named, outputs: Iterable[str]
) -> None:
    computed = set(computed_names(kernel))
    known = {*given, *outputs, *computed}
    for param in inner.params:
        if param.name not in known and not param.has_default:
            what = "compile-time " if param.is_constexpr else ""
            raise TypeError(
                f"{inner.__name__} needs the {what}argument {param.name!r}, and out_shape has no "
                "output for it"
            )
        if param.name not in known:
            given[param.name] = param.default


def _split(inner: JITFunction, given: Named) -> tuple[Named, Named]:
    """The arguments that are arrays, and the others."""
    operands: Named = {}
    statics: Named = {}
    for param in inner.params:
        if param.name not in given:
            continue
        value = given[param.name]
        is_array = isinstance(value, jax.Array | np.ndarray)
        if is_array and param.is_constexpr:
            raise TypeError(
                f"the compile-time argument {param.name!r} of {inner.__name__} is "
                f"{_kind(value)}: it must be a Python value that is known when the program is "
                "traced. In a function under jax.jit, name it in static_argnames"
            )
        if is_array:
            operands[param.name] = _living(inner, param.name, value)
        else:
            statics[param.name] = _plain(inner, param.name, value)
    return operands, statics


def _living(inner: JITFunction, name: str, array: Any) -> Any:
    if isinstance(array, jax.Array) and not isinstance(array, Tracer) and array.is_deleted():
        raise ValueError(
            f"the argument {name!r} of {inner.__name__} is an array that was deleted, or donated "
            "to a function under jax.jit: use the function's result in its place, or do not name "
            "it in donate_argnums"
        )
    return array


def _kind(value: Any) -> str:
    traced = "a traced" if isinstance(value, Tracer) else "an"
    return f"{traced} array of type {value.dtype} and shape {value.shape}"


def _plain(inner: JITFunction, name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "data_ptr") or hasattr(value, "__array_interface__"):
        raise TypeError(
            f"the argument {name!r} of {inner.__name__} is a {type(value).__module__}."
            f"{type(value).__qualname__}, not an array of JAX or NumPy: convert it with "
            "jax.numpy.asarray, or launch the kernel by kernel[grid](…)"
        )
    if isinstance(value, tuple | list) and any(
        isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(value)
    ):
        raise TypeError(
            f"the argument {name!r} of {inner.__name__} is a tuple with arrays: pass each array as "
            "a parameter of its own"
        )
    return value


def _output(
    inner: JITFunction, name: str, leaf: Any, alias: Any, operands: Named, order: list[str]
) -> Output:
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        raise TypeError(
            f"out_shape has {leaf!r} for {name!r}: an output is described by a "
            "jax.ShapeDtypeStruct(shape, dtype), or by an array of its shape and type"
        )
    dtype, shape = np.dtype(leaf.dtype), tuple(map(int, leaf.shape))
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise TypeError(
            f"the output {name!r} of {inner.__name__} has type {dtype}, which JAX makes only with "
            'jax.config.update("jax_enable_x64", True)'
        )
    if alias is None:
        return Output(name, shape, dtype, NONE)
    if name not in operands:
        raise TypeError(f"input_output_aliases names {name!r}, which is not an array")
    value = operands[name]
    own = jax.dtypes.canonicalize_dtype(value.dtype)
    if tuple(value.shape) != shape or own != dtype:
        raise ValueError(
            f"the argument {name!r} of {inner.__name__} has shape {tuple(value.shape)} and type "
            f"{own}; the output that replaces it has shape {shape} and type {dtype}"
        )
    return Output(name, shape, dtype, order.index(name))
