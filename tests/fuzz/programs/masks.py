"""Masks: bounds of positions, such as hold everywhere or nowhere, and what is made of them."""

from __future__ import annotations

from math import prod

from tests.fuzz.programs.kinds import Shape, Value
from tests.fuzz.programs.writer import Writer, expression, mark
from tilewright.ir.types import I1

COMPARISONS = ("<", "<", "<=", ">", ">=", "==", "!=")


def mask(w: Writer, shape: Shape, depth: int = 1) -> str:
    """A mask of the shape: often one as bounds make it."""
    return _mask(w, shape, min(depth, 2)) if w.one_in(2) else w.typed(I1, shape, depth)


@expression(3)
def masked(w: Writer, shape: Shape, depth: int) -> Value:
    return Value(_mask(w, shape, min(depth, 2)), I1)


def _mask(w: Writer, shape: Shape, depth: int) -> str:
    if depth > 0 and w.one_in(2):
        left, right = _mask(w, shape, depth - 1), _mask(w, shape, depth - 1)
        return w.choose((f"({left} & {right})", f"({left} & {right})", f"({left} | {right})",
                         f"(~{left})", f"({left} ^ {right})"))  # fmt: skip
    if w.pure or not shape:
        return w.typed(I1, shape, depth)
    places = w.offsets(shape)
    match w.below(8):
        case 0:
            mark(w, "mask: never")
            return w.choose((f"tl.full({shape}, False, tl.int1)", f"({places} < 0)",
                             f"({places} >= {prod(shape)})",
                             f"(({places} < 3) & ({places} > 5))"))  # fmt: skip
        case 1:
            mark(w, "mask: always")
            return w.choose((f"tl.full({shape}, True, tl.int1)", f"({places} >= 0)",
                             f"({places} < {prod(shape)})", f"({places} == {places})"))  # fmt: skip
        case 2:
            mark(w, "mask: bound of the run time")
            return f"({places} {w.choose(COMPARISONS)} {w.leaf_of_integers()})"
        case 3:
            mark(w, "mask: of one axis")
            axis = w.below(len(shape))
            index = ", ".join(":" if a == axis else "None" for a in range(len(shape)))
            limit = w.choose((str(w.below(shape[axis] + 2)), w.leaf_of_integers()))
            line = f"(tl.arange(0, {shape[axis]})[{index}] {w.choose(COMPARISONS)} {limit})"
            return f"tl.broadcast_to({line}, {shape})"
        case 4:
            mark(w, "mask: modulo")
            by = w.random.randint(2, 9)
            sign = w.choose(("%", "//"))
            return f"(({places} {sign} {by}) {w.choose(COMPARISONS)} {w.below(by)})"
        case 5:
            mark(w, "mask: unsigned")
            return (f"(({places} - {w.below(prod(shape) + 1)}).to(tl.uint32, bitcast=True)"
                    f" < {w.below(prod(shape) + 2)})")  # fmt: skip
        case 6:
            mark(w, "mask: of one scalar")
            return f"tl.broadcast_to({w.condition(0)}, {shape})"
        case _:
            mark(w, "mask: constant bound")
            return f"({places} {w.choose(COMPARISONS)} {w.below(prod(shape) + 2)})"
