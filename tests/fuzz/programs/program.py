"""Random programs: the text of a kernel with its functions, from a seed, and its arguments.

    program = random_program(7)
    print(program.text)

A program is a Python module. Besides the kernel it says in `ARGS` what the kernel is given (arrays
by their type, numbers as they are), in `CONSTEXPRS` what is known at compile time, and in `GRID`
how often it runs. Run as a script it does what the tests do with it.
"""

from __future__ import annotations

import random
from math import inf, nan, prod

from tests.fuzz.programs import (
    elementwise,
    functions,
    identities,
    idioms,
    loops,
    masks,
    memory,
    products,
    rare,
    shapes,
    statements,
    traffic,
    views,
    wrapping,
)
from tests.fuzz.programs.kinds import ALL, Kind, Number, Parts
from tests.fuzz.programs.writer import (
    DEEP,
    EVEN,
    EXPRESSIONS,
    LARGE,
    MARKS,
    STATEMENTS,
    UNEVEN,
    Array,
    Book,
    Writer,
)
from tilewright.ir.types import FP32, I1, I32, I64, U64

REGISTERED = (
    elementwise,
    functions,
    identities,
    idioms,
    loops,
    masks,
    memory,
    products,
    rare,
    shapes,
    statements,
    traffic,
    views,
    wrapping,
)
GRIDS = ((1,), (1,), (2,), (2,), (2,), (3,), (2, 2), (1, 3), (1, 2, 2), (7,))
EMPTY = ((0,), (2, 0), (0, 1, 3))

HEAD = '''"""Random program of seed {seed}. Run: PYTHONPATH=. python THIS"""

from math import inf, nan
from typing import NamedTuple

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice


class Pair(NamedTuple):
    x: object
    y: object


@tw.aggregate
class Both:
    x: tl.tensor
    y: tl.tensor

    @tw.jit
    def first(self):
        return self.x

    @tw.jit
    def second(self):
        return self.swapped().x

    @tw.jit
    def swapped(self):
        return Both(self.y, self.x)

'''

FOOT = """

if __name__ == "__main__":
    from tests.fuzz.programs.check import main

    main(__file__)
"""


def classes() -> set[str]:
    """The names of what programs may reach: productions, and marked variants of them."""
    return {*MARKS, *(f.__name__ for f in (*EXPRESSIONS, *STATEMENTS))}


def random_program(seed: int, *, aliases: bool = True) -> str:
    """The text of the program of a seed, maybe with arguments that share memory."""
    rng = random.Random(seed)
    book = _book(rng)
    w = Writer(book)
    w.is_kernel = True
    grid = rng.choice(GRIDS)
    if rng.random() < 0.01:
        grid = rng.choice(EMPTY)
        book.reached.add("empty grid")
    args = _arguments(w, aliases)
    w.arrays = book.arrays
    constants = _constants(w)
    w.emit(f"program = {_linear(grid)}")
    w.scopes[0]["program"] = Kind(I32)
    w.emit(f"own = {memory.READABLE} + program * {memory.region(w)}")
    w.statements(rng.choice((1, 2, 3, 4, 4, 5, 6, 8, 14)))
    _save_rest(w)
    params = [*args, *(f"{name}: tl.constexpr" for name in constants)]
    data = [
        f"SEED = {seed}",
        f"GRID = {grid}",
        f"LENGTH = {memory.length(w, prod(grid))}",
        f"ARGS = {args!r}",
        f"CONSTEXPRS = {constants!r}",
        f"REACHED = {sorted(book.reached)!r}",
    ]
    kernel = ["@tw.jit", f"def kernel({', '.join(params)}):", *w.lines]
    lines = [*book.text, "", "", *kernel, "", "", *data]
    return HEAD.format(seed=seed) + functions.COMMON.rstrip() + "\n" + "\n".join(lines) + FOOT


def _book(rng: random.Random) -> Book:
    """What tiles of the program are like: half of them of any extents, a few large."""
    kind = rng.random()
    if kind < 0.07:
        book = Book(rng, LARGE, largest=1024)
        book.reached.add("large tiles")
        return book
    if kind < 0.15:
        book = Book(rng, DEEP)
        book.reached.add("deep tiles")
        return book
    return Book(rng, EVEN if kind < 0.55 else (*EVEN, *UNEVEN))


def _arguments(w: Writer, aliases: bool) -> dict[str, object]:
    """Parameters of the kernel, with their types or values."""
    args: dict[str, object] = {}
    dtypes = [I32, FP32, w.choose((I64, U64)), *(w.choose(ALL) for _ in range(3))]
    for i, dtype in enumerate(dtypes):
        w.book.arrays.append(Array(f"x{i}", dtype))
        args[f"x{i}"] = f"*{dtype.short}"
    for array in w.book.arrays[: w.choose((0, 0, 1, 3)) if aliases else 0]:
        array.shift = w.choose((0, 16, w.below(memory.READABLE), memory.READABLE))
        array.alias = f"y{array.name[1:]}"
        args[array.alias] = f"{args[array.name]} = {array.name}[{array.shift}:]"
    for i in range(2):
        dtype, kinds = w.choose(memory.COUNTED)
        w.book.counters.append((Array(f"c{i}", dtype), w.choose(kinds)))
        args[f"c{i}"] = f"*{dtype.short}"
    scalars: dict[str, tuple[object, Kind | Number]] = {
        "n": (w.random.randint(2, 40), Kind(I32)),
        "m": (16 * w.below(9) + 2**33, Kind(I64)),
        "z": (w.choose((0, 16, -32)), Kind(I32)),
        "f": (w.choose((0.5, -3.0, 1e-3)), Kind(FP32)),
        "flag": (w.one_in(2), Kind(I1)),
        "one": (1, Number(1)),
        **_extremes(w),
    }
    for name, (value, thing) in scalars.items():
        args[name] = value
        w.scopes[0][name] = thing
    return args


def _extremes(w: Writer) -> dict[str, tuple[object, Kind | Number]]:
    """Numbers at the ends of their types."""
    narrow = (-(2**31), 2**31 - 1, -1, 0, 2**31 - 16, -(2**31) + 1, 2**30)
    wide = (-(2**63), 2**63 - 1, -(2**31) - 1, 2**32, 2**63 - 16, -(2**63) + 1)
    floats = (inf, -inf, nan, -0.0, 1e-45, -1e-40, 3.4028235e38, 2.0**-126)
    return {
        "e": (w.choose(narrow), Kind(I32)),
        "w": (w.choose(wide), Kind(I64)),
        "g": (w.choose(floats), Kind(FP32)),
    }


def _constants(w: Writer) -> dict[str, object]:
    constants = {"N": w.random.randint(0, 20), "K": w.choose((2.5, -4, True, 0))}
    for name, value in constants.items():
        w.scopes[0][name] = Number(value)
    return dict(constants)


def _linear(grid: tuple[int, ...]) -> str:
    """The number of a program among all."""
    terms = ["tl.program_id(0)", "tl.program_id(1) * tl.num_programs(0)"]
    terms.append(f"tl.program_id(2) * {prod(grid[:2])}")
    return " + ".join(terms[: len(grid)])


def _save_rest(w: Writer) -> None:
    """Store what has a name in the kernel, latest first, as far as there is room."""
    for name, thing in reversed(list(w.scopes[0].items())):
        if isinstance(thing, Kind) and name[0] == "v":
            memory.save(w, name, thing)
        elif isinstance(thing, Parts):
            for i, kind in enumerate(thing.kinds):
                memory.save(w, statements.part_text(w, name, thing, i), kind)
