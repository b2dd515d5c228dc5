"""Accumulators of matrix instructions in registers, and code of several instructions on them.

Accumulators are tied operands of inline assembly, in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.emit import (
    F16,
    F32,
    F64,
    I32,
    V,
    const,
    vector,
)
from tilewright.lowering.simt.kernel import Kernel, Registers
from tilewright.lowering.simt.words import words
from tilewright.ops.arith import is_positive_zero

TYPE_NAMES = {
    ir.FP16: "f16", ir.BF16: "bf16", ir.FP32: "tf32", ir.I8: "s8", ir.U8: "u8",
    ir.FP8E4NV: "e4m3", ir.FP8E5: "e5m2", ir.FP64: "f64",
}  # fmt: skip
RESULT_NAMES = {ir.FP32: "f32", ir.FP16: "f16", ir.I32: "s32", ir.FP64: "f64"}

# Element type of accumulators -> the letter of an assembly operand, and its type.
_OPERANDS = {ir.FP32: ("f", F32), ir.FP64: ("d", F64)}


class Accumulators:
    """Accumulators in the instructions' registers: fp16 in pairs, others one in each."""

    def __init__(self, kernel: Kernel, value: Value) -> None:
        self.kernel = kernel
        self.element = ir.dtype_of(value.type)
        values = kernel.env[value]
        self.registers = (
            words(kernel.b, values, value.type) if self.element == ir.FP16 else list(values)
        )
        # Whether they are known to be zeros before the first product.
        self.zero = is_positive_zero(value)
        self.letter, self.type = _OPERANDS.get(self.element, ("r", I32))

    @property
    def per_register(self) -> int:
        return 2 if self.element == ir.FP16 else 1

    def values(self) -> Registers:
        b = self.kernel.b
        if self.element != ir.FP16:
            return self.registers
        pairs = [b.bitcast(word, vector(F16, 2)) for word in self.registers]
        return [b.extract(pair, i) for pair in pairs for i in range(2)]

    def zeros(self, count: int) -> Accumulators:
        """As many accumulators of the same type, of zeros."""
        assert self.element == ir.FP32
        found = copy(self)
        found.registers = [const(F32, 0.0)] * count
        found.zero = True
        return found

    def add(self, first: int, other: Accumulators) -> None:
        """Add others to the accumulators from `first` on."""
        b = self.kernel.b
        for i, value in enumerate(other.registers, first):
            self.registers[i] = b.fadd(self.registers[i], value)

    def wait(self, pending: int = 0) -> None:
        """Wait for all products except the last ones. The accumulators are operands, so that no use
        of them can be moved above the wait."""
        code = f"wgmma.wait_group.sync.aligned {pending};"
        self.update(0, len(self.registers), code, "", [])

    def keep_moves_after(self) -> None:
        """Keep moves of the accumulators to other registers after the last update: LLVM places
        those that tied operands need directly before the assembly, here one without code."""
        self.update(0, len(self.registers), "", "", [])

    def update(
        self,
        first: int,
        count: int,
        code: str,
        letters: str,
        inputs: list[V],
        *,
        overwrites: bool = False,
    ) -> None:
        """Emit code that reads and writes `count` accumulators from `first` on.

        They are ``$0`` to ``$(count - 1)`` in the code. As each is a tied input too, the further
        inputs start at ``$(2 * count)``; at ``$count`` if the code `overwrites` the accumulators.
        """
        b = self.kernel.b
        old = [] if overwrites else self.registers[first : first + count]
        ties = [str(i) for i in range(len(old))]
        # Further inputs may be read after accumulators have been written.
        result = f"=&{self.letter}" if inputs else f"={self.letter}"
        constraints = [result] * count + ties + list(letters)
        ret = b.module.row(self.type, count) if count > 1 else self.type
        new = b.inline_asm(code, ",".join(constraints), ret, [*old, *inputs], True, True)
        for i in range(count):
            self.registers[first + i] = b.extract_value(new, i, self.type) if count > 1 else new


class Chain:
    """Inline assembly of instructions along K, which follow each other and share accumulators.

    With a statement for each, accumulators would pass from one to the next, and most of LLVM's time
    for a product would be spent on that.
    """

    def __init__(self, first: int) -> None:
        self.first = first  # the number of the first further input
        self.inputs: list[V] = []
        self.letters = ""
        self.lines: list[str] = []

    def input(self, value: V, letter: str) -> str:
        """Add a further input; its text."""
        self.inputs.append(value)
        self.letters += letter
        return f"${self.first + len(self.inputs) - 1}"

    def group(self, values: Iterable[V], letter: str) -> str:
        """Add further inputs; the text of all of them."""
        return f"{{{', '.join([self.input(value, letter) for value in values])}}}"

    def add_to(
        self, acc: Accumulators, first: int, count: int, *, overwrites: bool = False
    ) -> None:
        """Emit the code, which updates `count` accumulators from `first` on."""
        code = "\n\t".join(self.lines)
        acc.update(first, count, code, self.letters, self.inputs, overwrites=overwrites)


def registers_text(first: int, count: int) -> str:
    return f"{{{', '.join(f'${i}' for i in range(first, first + count))}}}"
