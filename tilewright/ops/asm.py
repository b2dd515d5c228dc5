"""Inline assembly of the target, applied to the elements of tiles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, require, variadic
from tilewright.ir.index_map import IndexMap, packed
from tilewright.ir.traits import PURE, WRITES
from tilewright.ir.types import DType, Scalar, Type, element_of, shape_of, text_of, with_shape

WORD = 32  # bits of the register into which narrower elements are packed

REGISTERS = {"b": 1, "c": 16, "h": 16, "r": 32, "l": 64, "N": 64, "f": 32, "d": 64}
"""Bits of the registers that a constraint may name, as PTX does."""
_FLOATS = "fd"
_CLOBBER = r"~\{[\w.$%]+\}"


def elements_in_word(element: Scalar, pack: int) -> int:
    """The number of elements of a pack in one register."""
    bits = 8 * element.nbytes_in_memory
    return min(max(1, WORD // bits), pack)


def registers_of(element: Scalar, pack: int) -> int:
    """The number of registers of a pack of `pack` elements."""
    return -(-pack // elements_in_word(element, pack))


def split_constraints(constraints: str) -> tuple[list[str], list[str]]:
    """The constraints of the outputs and those of the inputs, in order, without clobbers.

    >>> split_constraints("=r,r,~{memory}")
    (['=r'], ['r'])
    """
    parts = [c.strip() for c in constraints.split(",") if c.strip()]
    outputs = [c for c in parts if c.startswith("=")]
    return outputs, [c for c in parts if not c.startswith(("=", "~"))]


class _InlineAsm(Op):
    """Base class of inline assembly with and without effects."""

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
        require(len(self.types) > 0, self, "results", "must have a result")
        require(self.pack > 0, self, "pack", "pack must be positive, not {n}", n=self.pack)
        outputs, inputs = split_constraints(self.constraints)
        self._verify_count("results", outputs, self.types)
        self._verify_count("operands", inputs, [element_of(v.type) for v in self.args])
        self._verify_registers(outputs, self.types, [])
        self._verify_registers(inputs, [element_of(v.type) for v in self.args], outputs)
        for clobber in self.constraints.replace(" ", "").split(","):
            known = not clobber.startswith("~") or re.fullmatch(_CLOBBER, clobber)
            self._require_known(bool(known), clobber, "a clobber is of the form ~{name}")

    def _require_known(self, known: bool, constraint: str, reason: str) -> None:
        message = "the constraint {c!r} is not supported: {reason}"
        require(known, self, "constraint", message, c=constraint, reason=reason)

    def _verify_registers(
        self, constraints: Sequence[str], elements: Sequence[Scalar], tied: Sequence[str]
    ) -> None:
        """Reject registers for which LLVM would end the process: unknown ones, and floating-point
        registers of another width.

        Args:
            tied: the outputs whose register an operand may name by number.
        """
        each = [e for e in elements for _ in range(registers_of(e, self.pack))]
        for constraint, element in zip(constraints, each, strict=True):
            letter = constraint.lstrip("=&%")
            if letter.isdigit() and int(letter) < len(tied):
                letter = tied[int(letter)].lstrip("=&%")
            known = ", ".join(REGISTERS)
            reason = f"a register is one of {known}, or the number of an output"
            self._require_known(letter in REGISTERS, constraint, reason)
            bits = 8 * element.nbytes_in_memory * elements_in_word(element, self.pack)
            width = REGISTERS[letter]
            fits = letter not in _FLOATS or max(WORD, bits) == width
            reason = f"its register has {width} bits, {text_of(element)} takes {max(WORD, bits)}"
            self._require_known(fits, constraint, reason)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return tuple(packed(shape_of(v.type), self.pack) for v in self.args)

    def _verify_count(self, what: str, actual: Sequence[str], elements: Sequence[Scalar]) -> None:
        expected = sum(registers_of(e, self.pack) for e in elements)
        require(
            len(actual) == expected,
            self,
            "constraints",
            "the constraints {c!r} name {n} registers for {what}; {types} in packs of {pack} take "
            "{expected}",
            c=self.constraints,
            n=len(actual),
            what=what,
            types=", ".join(text_of(e) for e in elements) or "none",
            pack=self.pack,
            expected=expected,
        )


class InlineAsm(_InlineAsm, name="asm.inline", traits=PURE):
    """Elementwise inline assembly without side effects, executed once for each `pack` consecutive
    elements.

    Registers are numbered from ``$0``, first those of the results, then those of the operands.
    Elements of fewer than 32 bits are packed into 32-bit registers, as many as fit, the first one
    in the least significant bits.

        %1 = asm.inline [%0], code="shl.b32 $0, $1, 3;", constraints="=r,r", types=(i32,), pack=1
          : 4xi32 -> 4xi32
    """

    no_evaluate = "the assembly is specific to a target"

    def execute(self, state: Any, *args: Any) -> Any:
        raise NotImplementedError("inline assembly can't be interpreted")


class InlineAsmEffect(_InlineAsm, name="asm.effect", traits=WRITES):
    """As `asm.inline`, for assembly with side effects: it is neither removed nor reordered.

    %1 = asm.effect [], code="mov.u32 $0, %smid;", constraints="=r", types=(i32,), pack=1
      : () -> i32
    """

    no_evaluate = "the assembly is specific to a target"

    def execute(self, state: Any, *args: Any) -> Any:
        raise NotImplementedError("inline assembly can't be interpreted")
