"""`break`, `continue` and `return` in loops, and loops over tuples: against Python itself."""

import random
import textwrap
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, fails, kernel_from, launch
from tilewright.base import knobs
from tilewright.base.diagnostics import UnsupportedLanguageConstruct
from tilewright.ir.core import Module
from tilewright.ops.control import For, If, While


class _Python:
    """What `tl` is when a function of scalars runs in Python."""

    static_range = range


def in_python(text: str, n: int, a: int) -> list[int]:
    """The result of the function `f` of a text for two numbers."""
    scope: dict[str, Any] = {"tl": _Python}
    exec(text, scope)
    return list(scope["f"](n, a))


def in_kernel(text: str, n: int, a: int) -> list[int]:
    """The same by a kernel that calls it."""
    text = f"@jit\n{text}\ndef kernel(out, n, a):\n    x, y, z = f(n, a)\n" + "".join(
        f"    tl.store(out + {i}, {name})\n" for i, name in enumerate("xyz")
    )
    out = np.full(3, -1, np.int32)
    launch(kernel_from(text), out, n, a)
    return out.tolist()


def check(body: str, *pairs: tuple[int, int]) -> None:
    """Have a body with the names n, a, x, y, z give the same in Python and in a kernel."""
    text = "def f(n, a):\n    x = 0\n    y = 1\n    z = a\n"
    text += textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n    return x, y, z\n"
    for n, a in pairs or ((0, 0), (1, 3), (5, 2), (9, 4), (12, -3)):
        assert in_kernel(text, n, a) == in_python(text, n, a), (text, n, a)


BODIES = {
    "break of a range": """
        for i in range(n):
            if i == a:
                break
            x += i
        """,
    "break after other statements": """
        for i in range(2, n, 3):
            x += 1
            if x > a:
                y = i
                break
        """,
    "backward": """
        for i in range(n, -3, -2):
            x += i
            if x > 10:
                break
            y += x
        """,
    "continue": """
        for i in range(n):
            t = i * 3
            if i == a:
                continue
            t = t + 1
            x += t
            y = i
        """,
    "both, nested": """
        for i in range(n):
            if i > 1:
                if i == a:
                    break
                y += 10
                if i == 3:
                    continue
                y += 100
            else:
                if a < 0:
                    continue
            x += i
        """,
    "always": """
        for i in range(n):
            x += 5
            break
        """,
    "loops within loops": """
        for i in range(n):
            for j in range(i):
                if j == a:
                    break
                if j == 1:
                    continue
                x += j
            if x > 20:
                break
            y += x
        """,
    "return": """
        for i in range(n):
            x += i
            if x > 7:
                return x, i + 100, z
        """,
    "return from two loops": """
        for i in range(n):
            for j in range(n):
                x += 1
                if i + j == a:
                    return x, i, j
                if x > 30:
                    break
            y += 1
        """,
    "while": """
        while x < n:
            x += 1
            if x == a:
                y = 50
                continue
            if x * 2 > n + a:
                break
            y += x
        """,
    "while True": """
        while True:
            x += 3
            if x > n:
                break
            y += x
        """,
    "return from while True": """
        while True:
            x += 3
            if x > n:
                return x, y, 7
            if x == a:
                break
            y += x
        z = 1000
        """,
    "while with its own names": """
        while (y := x * 2) < n + 4:
            x += 1
            if y == a:
                break
        """,
    "while of what ends at once": """
        while False:
            break
        while 0:
            return x, y, 9
        """,
    "unrolled": """
        for i in tl.static_range(6):
            if i == a:
                continue
            t = x + i
            if t > n:
                y = i
                break
            x = t + 1
        """,
    "unrolled, at compile time": """
        for i in tl.static_range(6):
            if i == 1:
                continue
            if i == 4:
                break
            x += i
        """,
    "unrolled, with names of its own": """
        for i in tl.static_range(4):
            if i == 0:
                t = a
            if x > n:
                continue
            t = t + 1
            x += t
        """,
    "unrolled, with names that outlive an iteration": """
        for i in tl.static_range(4):
            if i > 0:
                x += t
            t = a + i
            if n > 2:
                if n > 6:
                    t = t + 1
                    if x > 12:
                        break
                    y += t
                    continue
                t = t + 7
                continue
            y += 1
        """,
    "unrolled, with names that outlive the loop": """
        t = 0
        for i in tl.static_range(4):
            t = a + i
            if n > 2:
                if n > 6:
                    t = t * 2
                    break
                t = t + 7
                if i == 2:
                    break
                continue
            y += 1
        x = t
        """,
    "unrolled, always left behind what may return": """
        for i in tl.static_range(3):
            x += i
            if n > 4:
                continue
            else:
                if a > 3:
                    y += 1
                elif a > 1:
                    return x, y, 7
                break
        """,
    "unrolled, in a loop": """
        for k in range(n):
            for i in tl.static_range(3):
                if i == k:
                    break
                x += i + k
                if x > 20:
                    return x, y, k
            if k == a:
                continue
            y += x
        """,
    "over a tuple": """
        for t in (a, 3, n):
            if t < 0:
                continue
            x += t
            if x > 9:
                break
            y = y * 2 + t
        """,
    "over a tuple of tuples": """
        for t, (u, v) in ((a, (1, 2)), (n, (3, 4))):
            x += t * u
            y += v
        """,
    "over a tuple, in a loop": """
        t = a
        for k in range(n):
            for t in (k, a, k + 1):
                if t == 2:
                    break
                x += t
            y += t
        """,
}


@pytest.mark.parametrize("name", BODIES)
def test_loops_agree_with_python(name: str) -> None:
    check(BODIES[name])


class _Program:
    """A random body: loops that end, with every way of leaving them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def value(self) -> str:
        return self.random.choice(["x", "y", "z", "t", "n", "a", "1", "2", "5"])

    def condition(self) -> str:
        sign = self.random.choice(["<", ">", "==", "!=", "<="])
        return f"({self.value()} + {self.value()}) % 8 {sign} {self.random.randrange(6)}"

    def block(self, depth: int, loop: str | None) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randrange(1, 4)):
            lines += self.statement(depth, loop)
        return lines

    def statement(self, depth: int, loop: str | None) -> list[str]:
        kind = self.random.randrange(10)
        if depth == 0 or kind < 4:
            name = self.random.choice("xyzt")
            return [f"{name} = ({self.value()} * 3 + {self.value()}) & 255"]
        if kind < 6 and loop is not None:
            return [f"if {self.condition()}:", f"    {self.jump(depth)}"]
        if kind < 8:
            lines = [f"if {self.condition()}:", *self.side(depth, loop)]
            while self.random.random() < 0.2:
                lines += [f"elif {self.condition()}:", *self.side(depth, loop)]
            if self.random.random() < 0.5:
                lines += ["else:", *self.side(depth, loop)]
            return lines
        return self.loop(depth)

    def jump(self, depth: int) -> str:
        return self.random.choice(["break", "continue", "continue", f"return x, y, {depth}"])

    def side(self, depth: int, loop: str | None) -> list[str]:
        """What a branch does, which may leave the loop in any case."""
        lines = self.inner(depth, loop)
        if loop is not None and self.random.random() < 0.3:
            lines.append(f"    {self.jump(depth)}")
        return lines

    def inner(self, depth: int, loop: str | None) -> list[str]:
        return ["    " + line for line in self.block(depth - 1, loop)]

    def loop(self, depth: int) -> list[str]:
        self.count += 1
        kind = self.random.choice(["range", "range", "static", "tuple", "while"])
        i = f"i{self.count}"
        body = self.inner(depth, kind)
        if kind == "while":
            return [f"{i} = 0", f"while {i} < 4:", f"    {i} += 1", *body]
        source = {"range": "range(n % 5)", "static": "tl.static_range(3)", "tuple": "(x, a, 2)"}
        first = [f"    z = (z + {i}) & 255", f"    t = (t + {i}) & 255"]
        return [f"for {i} in {source[kind]}:", *first, *body]


@pytest.mark.parametrize("seed", range(40))
def test_random_loops_agree_with_python(seed: int) -> None:
    program = _Program(seed)
    lines = ["t = 3", *program.loop(3), *program.block(3, None)]
    check("\n".join(lines), (3, 5), (9, 2), (14, 7))


def ops_of(module: Module, kind: type) -> list[Any]:
    return [op for op in module.walk() if isinstance(op, kind)]


def test_loops_without_break_stay_counted() -> None:
    text = """
    def kernel(out, n):
        for i in range(n):
            if i == 3:
                continue
            tl.store(out + i, i)
    """
    module = build(kernel_from(text), {"out": "*i32", "n": "i32"})
    assert ops_of(module, For)
    assert not ops_of(module, While)
    (branch,) = ops_of(module, If)
    assert not branch.results
    text = """
    def kernel(out, n, FAST: tl.constexpr):
        for i in range(n):
            if FAST:
                break
            tl.store(out + i, i)
    """
    module = build(kernel_from(text), {"out": "*i32", "n": "i32"}, {"FAST": False})
    assert ops_of(module, For)
    assert not ops_of(module, While)


@pytest.mark.parametrize(("start", "stop", "step"), [(120, 127, 5), (-128, 127, 100), (5, -5, 3)])
def test_counting_does_not_overflow(start: int, stop: int, step: int) -> None:
    text = """
    def kernel(out, start, stop, step):
        k = 0
        for i in range(start, stop, step):
            tl.store(out + k, i)
            k += 1
            if k > 5:
                break
    """
    out = np.full(8, -1, np.int32)
    bounds = [np.int8(v) for v in (start, stop, step)]
    launch(kernel_from(text), out, *bounds)
    expected = list(range(start, stop, step))[:6]
    assert out.tolist() == expected + [-1] * (8 - len(expected))


def test_tiles_are_carried_out_of_a_loop() -> None:
    text = """
    @jit
    def search(p, n, limit):
        total = tl.zeros((4,), tl.int32)
        for i in range(n):
            total += tl.load(p + i * 4 + tl.arange(0, 4))
            if tl.max(total, 0) > limit:
                return total, i
        return total * 0, -1

    def kernel(out, p, n, limit):
        total, i = search(p, n, limit)
        tl.store(out + tl.arange(0, 4), total)
        tl.store(out + 4, i)
    """
    data = np.arange(24, dtype=np.int32)
    out = np.zeros(5, np.int32)
    launch(kernel_from(text), out, data, 6, 20)
    assert out.tolist() == [12, 15, 18, 21, 2]
    launch(kernel_from(text), out, data, 2, 20)
    assert out.tolist() == [0, 0, 0, 0, -1]


def test_a_temporary_may_change_its_type_after_a_continue() -> None:
    text = """
    def kernel(out, n):
        total = 0.0
        for i in range(n):
            t = i
            if t == 2:
                continue
            t = t * 0.5
            total += t
        tl.store(out, total)
    """
    out = np.zeros(1, np.float32)
    launch(kernel_from(text), out, 5)
    assert out.tolist() == [(0 + 1 + 3 + 4) * 0.5]


def test_a_name_bound_on_some_paths_only_is_not_visible() -> None:
    text = """
def kernel(out, n):
    for i in tl.static_range(3):
        if n == i:
            break
        t = n + i
        if t > 5:
            break
    tl.store(out, t)
"""
    error = fails(text, np.zeros(1, np.int32), 1)
    assert "t is not defined" in str(error)
    assert str(error).startswith("at 8:18:")


def test_carried_names_keep_their_type_at_a_break() -> None:
    text = """
def kernel(n):
    x = 1
    for i in range(n):
        if i == 2:
            x = 1.0
            break
        x += 1
"""
    error = fails(text, 1)
    assert "`x` is of type int32, but the then block redefines it as fp32" in str(error)


def test_unrolled_loop_of_many_iterations_may_break() -> None:
    body = """
        for i in tl.static_range(40):
            x += i
            if x > n * 10:
                break
        """
    check(body, (3, 0), (50, 1), (1000, 2))


STRICT_ERRORS = [
    ("for i in range(n):\n        break", "unsupported AST node type: Break"),
    ("for i in range(n):\n        continue", "unsupported AST node type: Continue"),
    ("for i in range(n):\n        return", "Cannot have `return` statements inside `while` or"),
    ("while n > 0:\n        return", "Cannot have `return` statements inside `while` or `for` st"),
    ("for i in (1, 2):\n        pass", "Only `range` and `static_range` iterators are currently"),
    ("while True:\n        break", "the condition of a `while` must be a run-time value"),
]


@pytest.mark.parametrize(("statement", "message"), STRICT_ERRORS)
def test_strict_mode_rejects_these(statement: str, message: str) -> None:
    text = f"def k(n):\n    {statement}\n"
    build(kernel_from(text), {"n": "i32"})
    with knobs.language.scope():
        knobs.language.strict_triton = True
        error = fails(text, 1)
    assert message in str(error)
    assert isinstance(error, UnsupportedLanguageConstruct) or "at 2:4:" in str(error)


def test_constexpr_of_a_tuple_is_iterated() -> None:
    text = """
    def kernel(out, N: tl.constexpr):
        for i in N:
            tl.static_assert(i > 0)
            tl.store(out + i, i)
    """
    out = np.full(4, -1, np.int32)
    launch(kernel_from(text), out, N=(1, 3))
    assert out.tolist() == [-1, 1, -1, 3]
