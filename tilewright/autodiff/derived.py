"""A derived kernel, and the roles of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilewright.autodiff.tapes import Tape
from tilewright.base.record import field, record
from tilewright.ir.core import Function, Module
from tilewright.ir.types import DType, Pointer
from tilewright.ops.memory import Load


class Role(NamedTuple):
    """The role of an argument of a derived kernel.

    Attributes:
        kind: "argument" (of the forward kernel), "tangent", "cotangent" or "gradient" (of an
            array).
        name: the argument or array.
    """

    kind: str
    name: str


@record
class Saved:
    """A buffer with values of each program, which another kernel needs.

    Attributes:
        name: of the buffer.
        element: the type of its elements.
        lanes: how many a program has.
    """

    name: str
    element: DType
    lanes: int


@record
class Derived:
    """A derived kernel.

    Attributes:
        module: its tile IR, on which the tile passes are still to run.
        roles: what each of its arguments is.
        reached: of reverse mode, the loads of the forward kernel whose gradients are written.
        saved: the buffers that it writes for other kernels, or reads.
        tapes: the buffers in which it records what loops carry.
        numbers: arguments that are numbers, by kind and name.
    """

    module: Module
    roles: tuple[Role, ...]
    reached: tuple[Load, ...] = ()
    saved: tuple[Saved, ...] = ()
    tapes: tuple[Tape, ...] = ()
    numbers: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


class Roles:
    """The arrays of a kernel by their part in its differentiation.

    Args:
        fn: the kernel.
        wrt, outputs, aux: names of pointer arguments.

    Raises:
        ValueError: a name that is not an array of floats, or is listed in two ways that exclude
            each other.
    """

    def __init__(
        self, fn: Function, wrt: Sequence[str], outputs: Sequence[str], aux: Sequence[str]
    ) -> None:
        self.names = list(fn.arg_names)
        self.wrt, self.outputs, self.aux = tuple(wrt), tuple(outputs), tuple(aux)
        for part, names in (("wrt", wrt), ("outputs", outputs), ("aux", aux)):
            for name in names:
                self._require_array(fn, part, name)
        both = [name for name in self.outputs if name in self.aux]
        if both:
            raise ValueError(f"{both[0]!r} is named in outputs and in aux")

    def _require_array(self, fn: Function, part: str, name: str) -> None:
        if name not in self.names:
            raise ValueError(
                f"{part} names {name!r}, which is not an argument of {fn.name}; its arguments are "
                f"{', '.join(self.names)}"
            )
        type = fn.args[self.names.index(name)].type
        if not isinstance(type, Pointer) or not type.element_ty.is_floating():
            raise ValueError(f"{part} names {name!r}, which is not an array of floats")
