"""A builder of inline PTX for memory accesses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.lowering.emit import VOID, Builder, LType, V, struct

# Constraint letters of registers, by their bits; 1 is a predicate.
LETTERS = {1: "b", 16: "h", 32: "r", 64: "l"}


class Code:
    """Inline assembly under construction, which clobbers memory.

    code = Code([I32])
    text = f"ld.global.b32 {code.outputs()}, [{code.input(address)}]"
    (value,) = code.emit(b, text)
    """

    def __init__(self, results: Sequence[LType]) -> None:
        self.results = results
        self.constraints = [f"={LETTERS[t.bits]}" for t in results]
        self.args: list[V] = []

    def outputs(self) -> str:
        """All results in PTX syntax."""
        return row(f"${i}" for i in range(len(self.results)))

    def input(self, value: V) -> str:
        """Add an operand, and return its placeholder."""
        letter = "l" if value.type.is_ptr else LETTERS[value.type.bits]
        self.constraints.append(letter)
        self.args.append(value)
        return f"${len(self.constraints) - 1}"

    def tie(self, values: Sequence[V]) -> None:
        """Set the initial values of the results; no operand may be added afterwards."""
        self.constraints += [str(i) for i in range(len(values))]
        self.args += values

    def emit(self, b: Builder, text: str) -> list[V]:
        """Emit the code, and return its results."""
        constraints = ",".join([*self.constraints, "~{memory}"])
        if not self.results:
            b.inline_asm(f"{text};", constraints, VOID, self.args, True)
            return []
        one = len(self.results) == 1
        ret = self.results[0] if one else struct(*self.results)
        got = b.inline_asm(f"{text};", constraints, ret, self.args, True)
        return [got] if one else [b.extract_value(got, i, t) for i, t in enumerate(self.results)]


def row(names: Iterable[str]) -> str:
    """Operands in PTX syntax: several of them in braces, as a vector."""
    listed = list(names)
    return f"{{{', '.join(listed)}}}" if len(listed) > 1 else listed[0]
