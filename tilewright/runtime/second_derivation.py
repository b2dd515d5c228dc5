"""The kernel whose gradient is the gradient of a gradient; see `gradients.SecondGradient`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.autodiff.arrays import Array, arrays_of
from tilewright.autodiff.forward import forward_mode, tangent_of
from tilewright.compiler.source import ArgPath
from tilewright.ir.core import Module
from tilewright.ir.types import DType
from tilewright.runtime.derived_launch import Request


def with_tangents(
    module: Module, request: Request, types: Mapping[str, DType], paths: list[ArgPath]
) -> tuple[Module, Request]:
    """The kernel that computes the tangents of results, and the request for its gradient.

    Args:
        request: its outputs are results, whose cotangents are given, and inputs, whose tangents
            are.
        types: the element types of the further arrays; an input's is that of its tangents.
        paths: where the arguments of the kernel are; those of its tangents are appended.

    Raises:
        TypeError: tangents have another type than their array.
    """
    arrays = list(arrays_of(module.entry).values())
    results = [a.name for a in arrays if a.writes and a.name in request.outputs]
    directions = [name for name in request.outputs if name not in results]
    require_own_types(arrays, {name: types[name] for name in directions})
    derivative = forward_mode(module, directions, results, request.aux, results=False)
    first, count = len(request.kernel.params), len(request.wrt)
    places = {name: first + count + i for i, name in enumerate(request.outputs)}
    paths += [(places[role.name],) for role in derivative.roles if role.kind == "tangent"]
    further = [
        ("tangent", name) if name in directions else ("cotangent", tangent_of(name))
        for name in request.outputs
    ]
    outputs = tuple(map(tangent_of, results))
    return derivative.module, request._replace(
        mode="reverse", outputs=outputs, further=(*request.further[:count], *further)
    )


def require_own_types(arrays: Iterable[Array], types: Mapping[str, DType]) -> None:
    """Raise TypeError unless tangents have the types of their arrays."""
    for array in arrays:
        element = types.get(array.name, array.element)
        if element != array.element:
            raise TypeError(
                f"the tangents of {array.name} have elements of {element}; they must be "
                f"{array.element}"
            )
