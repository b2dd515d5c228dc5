"""Functions of a program: written when something is to call them, and called again later."""

from __future__ import annotations

from math import prod

from tests.fuzz.programs.kinds import ALL, Kind, Shape, Value, text_of
from tests.fuzz.programs.writer import Array, Helper, Writer, expression

LEVELS = 2  # of functions that call functions
MOST = 7  # functions of a program


def write(w: Writer, params: tuple[Kind, ...], results: tuple[Kind, ...], *, pure: bool) -> Helper:
    """Write a function of these parameters that returns these results."""
    inner = Writer(w.book, pure=pure, level=w.level + 1)
    inner.returns = results
    names = tuple(inner.define(p) for p in params)
    array = None if pure else w.choose(w.arrays).dtype
    if array is not None:
        inner.arrays = [Array(w.book.name("q"), array)]
    name = w.book.name("helper")
    inner.statements(w.random.randint(1, 3))
    returned(inner)
    names += tuple(a.name for a in inner.arrays)
    w.book.text += ["", "", "@tw.jit", f"def {name}({', '.join(names)}):", *inner.lines]
    made = Helper(name, params, names, results, array)
    w.book.helpers.append(made)
    return made


def returned(w: Writer) -> None:
    assert w.returns is not None
    w.emit(f"return {', '.join(w.of(k, 1) for k in w.returns)}")


def helper(w: Writer, results: tuple[Kind, ...]) -> Helper | None:
    """A function with these results, one there is or a new one."""
    known = {None, *(a.dtype for a in w.arrays)}
    found = [h for h in w.book.helpers if h.results == results and h.array in known]
    if found and w.one_in(2):
        return w.choose(found)
    if w.level >= LEVELS or len(w.book.helpers) >= MOST:
        return None
    params = tuple(
        Kind(w.choose(ALL), _operand(w, results[0].shape)) for _ in range(w.below(3) + 1)
    )
    return write(w, params, results, pure=w.pure)


def _operand(w: Writer, shape: Shape) -> Shape:
    return shape if w.below(3) else ()


def call(w: Writer, made: Helper, depth: int) -> str:
    args = [w.of(k, depth) for k in made.params]
    if made.array is not None:
        args.append(w.choose([a.name for a in w.arrays if a.dtype is made.array]))
    if w.one_in(3):
        named = [f"{n}={a}" for n, a in zip(made.names, args, strict=True)]
        first = w.below(len(args) + 1)
        rest = named[first:]
        w.random.shuffle(rest)
        args = args[:first] + rest
    elif w.one_in(4):
        return f"{made.name}(*({', '.join(args)},))"
    return f"{made.name}({', '.join(args)})"


@expression(3)
def called(w: Writer, shape: Shape, depth: int) -> Value | None:
    made = helper(w, (Kind(w.choose(ALL), shape),))
    return made and Value(call(w, made, depth), made.results[0].dtype)


@expression(1)
def called_for_two(w: Writer, shape: Shape, depth: int) -> Value | None:
    made = helper(w, (Kind(w.choose(ALL), shape), Kind(w.choose(ALL), shape)))
    part = w.below(2)
    return made and Value(f"{call(w, made, depth)}[{part}]", made.results[part].dtype)


@expression(2)
def mapped(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A function of scalars, for each element."""
    # The interpreter runs the elements one after the other.
    if not 0 < prod(shape) <= 32 or not shape or w.pure or len(w.book.helpers) >= MOST + 2:
        return None
    params = tuple(Kind(w.choose(ALL)) for _ in range(w.below(2) + 1))
    made = write(w, params, (Kind(w.choose(ALL)),), pure=True)
    args = ", ".join(w.typed(k.dtype, shape, depth) for k in params)
    return Value(f"tl.map_elementwise({made.name}, {args})", made.results[0].dtype)


@expression(1)
def general(w: Writer, shape: Shape, depth: int) -> Value | None:
    """Functions that stand in every program: a function as an argument, recursion, ``*args``."""
    x = w.integer(shape, depth)
    match w.below(4):
        case 0:
            return Value(f"apply({w.choose(('twice', 'flipped'))}, {x.text})", x.dtype)
        case 1:
            return Value(f"repeated({x.text}, {w.below(4)})", x.dtype)
        case 2:
            others = [w.typed(x.dtype, shape, 0) for _ in range(w.below(3))]
            return Value(f"total({', '.join([x.text, *others])})", x.dtype)
        case _:
            y = w.typed(x.dtype, shape, depth)
            by = f", by={text_of(w.below(9) + 1)}" if w.one_in(2) else ""
            late = f", late={w.choose(('True', 'False'))}" if w.one_in(2) else ""
            return Value(f"mixed({x.text}, {y}{by}{late})", x.dtype)


COMMON = """
@tw.jit
def twice(x):
    return x + x


@tw.jit
def flipped(x):
    return ~x


@tw.jit
def apply(function: tl.constexpr, x):
    return function(function(x)) ^ function(x)


@tw.jit
def repeated(x, n: tl.constexpr):
    if n == 0:
        return x
    else:
        return repeated(x * 3 + 1, n - 1)


@tw.jit
def total(*values):
    found = values[0]
    for value in values[1:]:
        found += value
    return found


@tw.jit
def mixed(x, y, by: tl.constexpr = 2, *, late: tl.constexpr = False):
    if late:
        return y * by + x
    return x * by + y
"""
