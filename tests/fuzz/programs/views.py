"""Expressions that move elements several times over, between shapes of any extents."""

from __future__ import annotations

from math import prod

from tests.fuzz.programs.kinds import Shape, Value
from tests.fuzz.programs.memory import READABLE
from tests.fuzz.programs.writer import Writer, expression
from tilewright.ir.types import I32


def factored(w: Writer, count: int) -> Shape:
    """Extents of a tile of so many elements."""
    parts: list[int] = [1] * w.one_in(4)
    for _ in range(1 + w.below(3)):
        parts.append(w.choose([d for d in range(1, count + 1) if count % d == 0]))
        count //= parts[-1]
    return (*parts, count)


@expression(8)
def views(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A few moves of what memory holds, of positions or of a value that there is."""
    if w.pure or not shape:
        return None
    moves: list[str] = []
    for _ in range(1 + w.below(4)):
        shape, text = w.choose((_reshaped, _reshaped, _permuted, _permuted, _cut, _flipped,
                                _broadcast))(w, shape)  # fmt: skip
        moves.append(text)
    source = _source(w, shape)
    return Value(source.text + "".join(reversed(moves)), source.dtype)


def _source(w: Writer, shape: Shape) -> Value:
    count = prod(shape)
    places = f"tl.arange(0, {count}).reshape({', '.join(map(str, shape))})"
    match w.below(4 if count < READABLE else 2):
        case 0:
            return Value(places, I32)
        case 1:
            return w.leaf(shape)
        case _:
            array = w.choose(w.arrays)
            start = w.below(READABLE - count)
            return Value(f"tl.load({array.name} + {start} + {places})", array.dtype)


def _reshaped(w: Writer, shape: Shape) -> tuple[Shape, str]:
    return factored(w, prod(shape)), f".reshape({', '.join(map(str, shape))})"


def _permuted(w: Writer, shape: Shape) -> tuple[Shape, str]:
    order = w.random.sample(range(len(shape)), len(shape))
    source = [0] * len(shape)
    for to, axis in enumerate(order):
        source[axis] = shape[to]
    return tuple(source), f".permute({', '.join(map(str, order))})"


def _along(shape: Shape, axis: int, part: str) -> str:
    """A subscript of one axis."""
    return f"[{', '.join([':'] * axis + [part] + [':'] * (len(shape) - axis - 1))}]"


def _flipped(w: Writer, shape: Shape) -> tuple[Shape, str]:
    return shape, _along(shape, w.below(len(shape)), "::-1")


def _cut(w: Writer, shape: Shape) -> tuple[Shape, str]:
    """Some places of a longer axis."""
    axis, step, start = w.below(len(shape)), w.choose((1, 1, 2, 3)), w.below(5)
    extent = start + (shape[axis] - 1) * step + 1 + w.below(3)
    if extent * prod(shape) // shape[axis] > 2 * w.book.largest:
        return _flipped(w, shape)
    stop = start + (shape[axis] - 1) * step + 1
    if w.one_in(3):  # backwards, from the last of these places
        before = start - 1 if start else ""
        part = f"{stop - 1}:{before}:{-step}"
    else:
        part = f"{start}:{stop}:{step}"
    return (*shape[:axis], extent, *shape[axis + 1 :]), _along(shape, axis, part)


def _broadcast(w: Writer, shape: Shape) -> tuple[Shape, str]:
    axis = w.below(len(shape))
    numbers = ", ".join(map(str, shape))
    return (*shape[:axis], 1, *shape[axis + 1 :]), f".broadcast_to({numbers})"
