"""Functions for reductions and scans: such as are associative, whatever they look like.

Of an operation that is, any renaming of its values is too: with a function g that has an inverse,
``g'(g(a) + g(b))``. So the functions here may be written in many ways and still have one result,
in whatever order a target combines.
"""

from __future__ import annotations

from tests.fuzz.programs.kinds import INTEGERS, WIDE, tl
from tests.fuzz.programs.writer import Writer
from tilewright.ir.types import I32, DType

# A function and its inverse.
RENAMINGS = (
    ("{}", "{}"),
    ("({} ^ {c})", "({} ^ {c})"),
    ("({} + {c})", "({} - {c})"),
    ("(~{})", "(~{})"),
    ("(-{})", "(-{})"),
)


def written(w: Writer, name: str, params: str, lines: list[str]) -> str:
    w.book.text += ["", "", "@tw.jit", f"def {name}({params}):", *(f"    {x}" for x in lines)]
    return name


def _joined(w: Writer, a: str, b: str, dtype: DType) -> list[str]:
    """Lines that set `r` to a combination of two integers of the type."""
    sign = w.choose("+*&|^")
    forms = [
        [f"r = {a} {sign} {b}"],
        [f"r = tl.{w.choose(('minimum', 'maximum'))}({a}, {b})"],
        [f"r = {a} if {a} {w.choose('<>')} {b} else {b}"],
        [f"r = tl.where({a} {w.choose(('<', '>='))} {b}, {a}, {b})"],
        [f"r = {b}", f"if {a} {w.choose('<>')} {b}:", f"    r = {a}"],
        [f"r = {a} + {b} - 7" if dtype.is_int_signed() else f"r = {a} + {b} + 7"],
        [f"r = {a} + {b}", f"for _ in range({w.below(3)}):", "    r += 5"],
    ]
    return w.choose(forms)


def combining(w: Writer, dtype: DType) -> str:
    """The name of a function of two integers, associative and commutative."""
    there, back = w.choose(RENAMINGS)
    c = w.random.randint(1, 100)
    lines = [f"x = {there.format('a', c=c)}", f"y = {there.format('b', c=c)}"]
    lines += _joined(w, "x", "y", dtype)
    last = back.format("r", c=c)
    if w.one_in(3):
        lines += ["if a == b:", f"    return {last}"]
    return written(w, w.book.name("combine"), "a, b", [*lines, f"return {last}"])


def combine_of_pair(w: Writer) -> tuple[str, tuple[DType, DType]]:
    """The name of a function of two pairs, commutative too, and the types of a pair."""
    first, second = w.choose(INTEGERS), w.choose(INTEGERS)
    name = w.book.name("combine")
    if w.one_in(2):
        sign = w.choose("<>")
        lines = [
            f"better = a {sign} b or (a == b and i < j)"
            if w.one_in(2)
            else f"better = (a {sign} b) | ((a == b) & (i < j))",
            *w.choose((
                ["return tl.where(better, a, b), tl.where(better, i, j)"],
                ["if better:", "    return a, i", "return b, j"],
                ["if better:", "    k, m = a, i", "else:", "    k, m = b, j", "return (k, m)"],
            )),
        ]  # fmt: skip
        return written(w, name, "a, i, b, j", lines), (first, second)
    f, g = combining(w, first), combining(w, second)
    lines = w.choose((
        [f"return {f}(a, b), {g}(i, j)"],
        [f"x = {f}(b=b, a=a)", f"return (x, {g}(j, i))"],
        [f"pair = ({f}(a, b), {g}(i, j))", "return pair"],
    ))  # fmt: skip
    return written(w, name, "a, i, b, j", lines), (first, second)


def scanning(w: Writer) -> tuple[str, tuple[DType, ...]]:
    """The name of a function that is associative, though maybe not commutative, and its types."""
    name = w.book.name("combine")
    t = w.choose(WIDE)
    match w.below(4):
        case 0:
            return written(w, name, "a, b", ["return a if b == 0 else b"]), (t,)
        case 1:
            text = ["return a * c, b * c + d"]
            return written(w, name, "a, b, c, d", text), (t, t)
        case 2:
            lines = [f"total = d + b * (c == 0).to({tl(t)})", "return a | c, total"]
            return written(w, name, "a, b, c, d", lines), (I32, t)
        case _:
            params = "a, b, c, d, e, f, g, h"
            lines = ["top = (a * e + b * g, a * f + b * h)",
                     "bottom = (c * e + d * g, c * f + d * h)",
                     "return top + bottom"]  # fmt: skip
            return written(w, name, params, lines), (t, t, t, t)
