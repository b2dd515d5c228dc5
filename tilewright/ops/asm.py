"""A target's own assembly, on elements of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, require, variadic
from tilewright.ir.index_map import IndexMap, packed
from tilewright.ir.traits import PURE, WRITES
from tilewright.ir.types import DType, Scalar, Type, element_of, shape_of, text_of, with_shape

WORD = 32  # bits of the register that shorter elements share


def elements_in_word(element: Scalar, pack: int) -> int:
    """How many elements of a pack share a register."""
    bits = 8 * element.nbytes_in_memory
    return min(max(1, WORD // bits), pack)


def registers_of(element: Scalar, pack: int) -> int:
    """Registers that hold so many elements."""
    return -(-pack // elements_in_word(element, pack))


def split_constraints(constraints: str) -> tuple[list[str], list[str]]:
    """The constraints of outputs and those of inputs, in order; what is clobbered is in neither."""
    parts = [c.strip() for c in constraints.split(",") if c.strip()]
    outputs = [c for c in parts if c.startswith("=")]
    return outputs, [c for c in parts if not c.startswith(("=", "~"))]


class _InlineAsm(Op):
    """The fields and rules that assembly with and without effects share."""

    args: list[Value] = variadic()
    code: str = attr()
    constraints: str = attr()
    types: tuple[DType, ...] = attr()
    pack: int = attr(1)

    def result_types(self) -> tuple[Type, ...]:
        shape = shape_of(self.args[0].type) if self.args else ()
        return tuple(with_shape(t, shape) for t in self.types)

    def verify(self) -> None:
        shapes = {shape_of(v.type) for v in self.args}
        require(len(shapes) <= 1, self, "shape", "operands are of shapes {s}", s=sorted(shapes))
        require(len(self.types) > 0, self, "results", "gives nothing")
        require(self.pack > 0, self, "pack", "takes {n} elements at once", n=self.pack)
        outputs, inputs = split_constraints(self.constraints)
        self._verify_count("results", outputs, self.types)
        self._verify_count("operands", inputs, [element_of(v.type) for v in self.args])

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return tuple(packed(shape_of(v.type), self.pack) for v in self.args)

    def _verify_count(self, what: str, given: Sequence[str], elements: Sequence[Scalar]) -> None:
        wanted = sum(registers_of(e, self.pack) for e in elements)
        require(
            len(given) == wanted,
            self,
            "constraints",
            "the constraints {c!r} name {n} registers for {what}; {types} in packs of {pack} take "
            "{wanted}",
            c=self.constraints,
            n=len(given),
            what=what,
            types=", ".join(text_of(e) for e in elements) or "none",
            pack=self.pack,
            wanted=wanted,
        )


class InlineAsm(_InlineAsm, name="asm.inline", traits=PURE):
    """Assembly that computes elements of the results from those of the operands at the same place,
    `pack` of them at once.

    Registers are numbered ``$0`` on, first those of the results, then those of the operands.
    Elements of fewer than 32 bits share one of 32, as many as fit and the pack has, the first in
    the lowest bits.

        %1 = asm.inline [%0], code="shl.b32 $0, $1, 3;", constraints="=r,r", types=(i32,), pack=1
          : 4xi32 -> 4xi32
    """

    no_evaluate = "only its target knows what the assembly does"

    def execute(self, state: Any, *args: Any) -> Any:
        raise NotImplementedError("inline assembly can't be interpreted")


class InlineAsmEffect(_InlineAsm, name="asm.effect", traits=WRITES):
    """As `asm.inline`, of assembly that does more than compute its results: it stays where it is.

    %1 = asm.effect [], code="mov.u32 $0, %smid;", constraints="=r", types=(i32,), pack=1
      : () -> i32
    """

    no_evaluate = "only its target knows what the assembly does"

    def execute(self, state: Any, *args: Any) -> Any:
        raise NotImplementedError("inline assembly can't be interpreted")
