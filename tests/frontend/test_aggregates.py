"""Aggregates: fields, methods, operators, how they are made and passed, and their errors."""

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.frontend.kernels import constexpr_function, fails, jit, kernel_from, launch
from tilewright.frontend.source import SourceFunction
from tilewright.language.core import builtin
from tilewright.language.semantic import arith

aggregate = tilewright.aggregate


def run(text: str, *args: Any, n: int = 4, **names: Any) -> list[int]:
    """What a kernel leaves in its first parameter, `n` int32 that start as -1."""
    out = np.full(n, -1, np.int32)
    launch(kernel_from(text, **names), out, *args)
    return out.tolist()


@aggregate
class Span:
    start: tl.tensor
    count: tl.constexpr = 2  # pyright: ignore[reportAssignmentType]

    @jit
    def stop(self) -> Any:
        return self.start + self.count

    @jit
    def moved(self, by: Any, times: Any = 1) -> Any:
        return Span(self.start + by * times, self.count)

    @constexpr_function
    def doubled(self, more: Any) -> Any:
        assert type(more) is int
        return self.count.value * 2 + more

    @builtin
    def negated(self, *, _semantic: Any = None) -> Any:
        return arith.neg(_semantic, self.start)

    def plain(self, by: Any, _semantic: Any = None) -> Any:
        return arith.add(_semantic, self.start, by)

    @staticmethod
    @jit
    def at(x: Any) -> Any:
        return Span(x, 3)


def test_fields_and_methods() -> None:
    text = """
    def kernel(out, x):
        s = Span(x, count=3)
        tl.static_assert(s.count == 3 and isinstance(s, Span) and s.doubled(1) == 7)
        tl.static_assert(hasattr(s, "start") and not hasattr(s, "end"))
        tl.store(out, s.stop())
        s = s.moved(10).moved(by=1, times=2)
        tl.store(out + 1, s.start)
        tl.store(out + 2, s.negated() + s.plain(100))
        tl.store(out + 3, Span.at(x).stop() + Span(x).count)
    """
    assert run(text, 5, Span=Span) == [8, 17, 100, 10]


def test_carried_joined_passed_and_returned() -> None:
    text = """
    @jit
    def pick(s, t, c):
        if c:
            return s
        return t

    def kernel(out, x):
        s = Span(x, 3)
        for i in range(4):
            if i % 2 == 0:
                s = s.moved(i)
        i = 0
        while i < 3:
            s = tl.aggregate_replace(s, start=s.start + 100)
            i += 1
        tl.store(out, s.start)
        t = pick(s, s.moved(1), x > 5)
        tl.store(out + 1, t.start)
        u = s if x > 5 else t
        tl.store(out + 2, u.start)
        both = (s, t)
        tl.store(out + 3, both[1].stop())
    """
    assert run(text, 5, Span=Span) == [307, 308, 308, 311]
    assert run(text, 6, Span=Span) == [308, 308, 308, 311]


@jit
def _tripled(x: Any, n: Any) -> Any:
    return x * n


@builtin
def thrice(x: Any, *, _semantic: Any = None, _generator: Any = None) -> Any:
    return _generator.call_JitFunction(_tripled, [x], {"n": 3})


@aggregate
class Calls:
    x: tl.tensor

    def __init__(self, x: Any, _generator: Any = None) -> None:
        self.x = _generator.call_JitFunction(_tripled, [x, 5])

    def more(self, _semantic: Any = None, _generator: Any = None) -> Any:
        return _generator.call_JitFunction(_tripled, (self.x, 7))


def test_primitives_call_functions_of_the_language() -> None:
    text = """
    def kernel(out, x):
        tl.store(out, thrice(x))
        c = Calls(x)
        tl.store(out + 1, c.x)
        tl.store(out + 2, c.more())
    """
    assert run(text, 2, n=3, thrice=thrice, Calls=Calls) == [6, 10, 70]


@aggregate
class Nested:
    """Fields whose names are those of members of every value."""

    values: tl.tuple
    inner: Span
    type: tl.constexpr

    @jit
    def total(self) -> Any:
        return self.values[0] + self.values[1] + self.inner.start


def test_nested_aggregates() -> None:
    text = """
    def kernel(out, x):
        n = Nested((x, x * 2), Span(x), tl.float32)
        for i in range(2):
            n = tl.aggregate_replace(n, inner=n.inner.moved(1))
        tl.static_assert(n.type == tl.float32 and n.inner.count == 2)
        tl.store(out, n.total())
    """
    assert run(text, 5, n=1, Nested=Nested, Span=Span) == [22]


@aggregate
class Wide(Span):
    extra: tl.constexpr = None  # pyright: ignore[reportAssignmentType]
    count: tl.constexpr = 7  # pyright: ignore[reportAssignmentType]

    @jit
    def moved(self, by: Any) -> Any:
        return Wide(self.start - by, self.count, 5)


def test_inheritance_adds_and_overrides() -> None:
    text = """
    def kernel(out, x):
        w = Wide(x)
        tl.static_assert(isinstance(w, Span) and w.extra is None)
        tl.store(out, w.stop())
        w = w.moved(3)
        tl.store(out + 1, w.stop())
        tl.static_assert(w.extra == 5)
    """
    assert list(Wide.aggregate_fields) == ["start", "count", "extra"]
    assert run(text, 5, n=2, Wide=Wide, Span=Span) == [12, 9]


@aggregate
class Own:
    x: tl.tensor
    n: tl.constexpr

    def __init__(self, x: Any, n: Any = 4) -> None:
        self.x = x
        self.n = tl.constexpr(n * 2)


@aggregate
class Deferred:
    x: tl.tensor
    n: tl.constexpr

    @constexpr_function
    def __init__(self, x: Any, n: Any) -> None:
        assert type(n) is int
        self.x = x
        self.n = tl.constexpr(n + 1)


@aggregate
class Building:
    x: "tl.tensor"

    def __init__(self, x: Any, _semantic: Any = None) -> None:
        self.x = arith.add(_semantic, x, 1)


@aggregate
class Below(Own):
    more: tl.constexpr

    def __init__(self, x: Any) -> None:
        super().__init__(x, 5)
        self.more = tl.constexpr(9)


def test_constructors_of_the_user() -> None:
    text = """
    def kernel(out, x):
        tl.static_assert(Own(x).n == 8 and Own(x, n=1).n == 2 and Deferred(x, 3).n == 4)
        tl.store(out, Building(x).x + Own(x).x)
        b = Below(x)
        tl.static_assert(b.n == 10 and b.more == 9)
    """
    assert run(text, 5, n=1, Own=Own, Deferred=Deferred, Building=Building, Below=Below) == [11]


@aggregate
class Number:
    """Records which of its methods ran, in the hundreds."""

    x: tl.tensor

    @jit
    def __add__(self, other: Any) -> Any:
        return self.x + 100

    @jit
    def __radd__(self, other: Any) -> Any:
        return self.x + 200

    @jit
    def __lt__(self, other: Any) -> Any:
        return self.x + 300

    @jit
    def __gt__(self, other: Any) -> Any:
        return self.x + 400

    @jit
    def __neg__(self) -> Any:
        return self.x + 500

    @jit
    def __getitem__(self, i: Any) -> Any:
        return self.x + 600 + i

    @jit
    def __call__(self, i: Any, j: Any = 1) -> Any:
        return self.x + 700 + i + j

    @jit
    def __not__(self) -> Any:
        return self.x + 800

    @constexpr_function
    def __mul__(self, other: Any) -> Any:
        return NotImplemented


@aggregate
class Other:
    x: tl.tensor

    @jit
    def __radd__(self, other: Any) -> Any:
        return self.x + 900

    @jit
    def __rmul__(self, other: Any) -> Any:
        return self.x + 1000


OPERATORS = [
    ("a + a", 100),
    ("a + 1", 100),
    ("a + x", 100),
    ("x + a", 200),
    ("1 + a", 200),
    ("tl.arange(0, 2) + a", 200),
    ("a + b", 100),
    ("x + b", 900),
    ("a * b", 1000),
    ("a < x", 300),
    ("x < a", 400),
    ("1 > a", 300),
    ("-a", 500),
    ("a[3]", 603),
    ("a(3)", 704),
    ("a(x, j=x)", 700),
    ("not a", 800),
]


@pytest.mark.parametrize(("expression", "expected"), OPERATORS)
def test_operators(expression: str, expected: int) -> None:
    text = f"""
    def kernel(out, x):
        a = Number(x)
        b = Other(x)
        tl.store(out, {expression})
    """
    assert run(text, 0, n=1, Number=Number, Other=Other) == [expected]


def test_augmented_assignment_is_an_operator() -> None:
    text = """
    def kernel(out, x):
        a = Number(x)
        a += 1
        tl.store(out, a)
    """
    assert run(text, 5, n=1, Number=Number) == [105]


ERRORS = [
    ("Span()", "Span.__init__() missing required argument: 'start'"),
    ("Span(x, nothing=1)", "Span.__init__() got an unexpected keyword argument 'nothing'"),
    ("Span(x, start=1)", "Span.__init__() got multiple values for argument 'start'"),
    ("Span(x, 1, 2)", "Span.__init__() takes 2 positional arguments but 3 were given"),
    ("Span(1)", "Expected <class 'tilewright.language.values.tensor'> for attribute 'start', got"),
    ("Span(x, x)", "for attribute 'count', got <class 'tilewright.language.values.tensor'>"),
    ("tl.aggregate_replace(Span(x), end=1)", "Span has no field 'end'"),
    ("tl.aggregate_replace(Span(x), start=1)", "Expected <class"),
    ("tl.aggregate_replace(x, end=1)", "aggregate_replace() expects an aggregate instance, got te"),
    ("Forgets(x)", "constructor for Forgets did not initialize attribute 'y'"),
    ("Invents(x)", "Invents has no attribute 'z'"),
]


@aggregate
class Forgets:
    x: tl.tensor
    y: tl.tensor

    def __init__(self, x: Any) -> None:
        self.x = x


@aggregate
class Invents:
    x: tl.tensor

    def __init__(self, x: Any) -> None:
        self.z = x


@pytest.mark.parametrize(("expression", "message"), ERRORS)
def test_wrong_use_is_the_cause_of_an_error_at_the_call(expression: str, message: str) -> None:
    names = {"Span": Span, "Forgets": Forgets, "Invents": Invents}
    error = fails(f"def kernel(x):\n    {expression}\n", 1, **names)
    assert str(error).startswith("at 2:4:")
    assert message in str(error.__cause__)
    assert isinstance(error.__cause__, TypeError | AttributeError)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("s.start = x", "Attribute assignment is not supported in triton"),
        ("s.start += x", "Attribute assignment is not supported in triton"),
        ("s[0] = x", "__setitem__ is not supported in triton"),
        ("s[0] += x", "__setitem__ is not supported in triton"),
        ("s.nothing", "Span has no attribute 'nothing'"),
        ("s + x", "unsupported operand type(s) for +: 'Span' and 'int32'"),
        ("s == s", "unsupported operand type(s) for ==: 'Span' and 'Span'"),
        ("-s", "AST unary operator '__neg__' is not (currently) implemented on type Span"),
        ("s[0]", "'Span' object is not subscriptable"),
        ("s()", "'Span' object is not callable"),
        ("for i in range(x):\n        s = Span(x, 3)", "Loop-carried variable s has initial type"),
        ("if x > 0:\n        s = Span(x, 3)\n    s.count", "value for `s` is of type Span<"),
    ],
)
def test_errors_in_kernels(statement: str, message: str) -> None:
    error = fails(f"def kernel(x):\n    s = Span(x)\n    {statement}\n", 1, Span=Span)
    assert message in str(error)


def test_errors_of_the_class() -> None:
    class Base:
        pass

    with pytest.raises(TypeError, match="can only inherit from other aggregates, but got non-aggr"):

        @aggregate
        class _A(Base):
            x: tl.tensor

    with pytest.raises(ValueError, match=r"_B.__init__ cannot be a @triton\.jit function"):

        @aggregate
        class _B:
            x: tl.tensor

            @jit
            def __init__(self, x: Any) -> None:
                self.x = x

    with pytest.raises(TypeError, match="field x of aggregate _C is annotated 5"):

        @aggregate
        class _C:
            x: 5  # pyright: ignore[reportGeneralTypeIssues]


def test_instances_do_not_change() -> None:
    # An instance of compile-time fields can be made on the host.
    fixed = Fixed(tl.constexpr(3))
    with pytest.raises(AttributeError, match="cannot assign to field 'n' on immutable aggregate F"):
        fixed.n = tl.constexpr(4)
    with pytest.raises(AttributeError, match="Fixed has no attribute 'z'"):
        fixed.z = 4
    assert tl.aggregate_replace(fixed, n=tl.constexpr(4)).n.value == 4
    assert fixed.n.value == 3
    assert repr(fixed) == "Fixed(n=constexpr[3])"
    with pytest.raises(TypeError, match="expects an aggregate instance, got int"):
        tl.aggregate_replace(4, n=1)


@aggregate
class Fixed:
    n: tl.constexpr


@aggregate
class Marked:
    x: tl.tensor

    @tilewright.must_use_result
    @jit
    def compute(self) -> Any:
        return self.x

    @tilewright.must_use_result("It changes nothing.")
    @constexpr_function
    def power(self) -> Any:
        return 1


def test_results_of_methods_must_be_used() -> None:
    error = fails("def k(x):\n    a = Marked(x)\n    a.compute()\n", 1, Marked=Marked)
    assert str(error).endswith("The result of a.compute is not being used.")
    error = fails("def k(x):\n    a = Marked(x)\n    a.power()\n", 1, Marked=Marked)
    assert str(error).endswith("The result of a.power is not being used. It changes nothing.")


def test_decorator_may_be_applied_below_jit() -> None:
    @jit
    @tilewright.must_use_result("extra")
    def cube(x: Any) -> Any:
        return x * x * x

    error = fails("def k(x):\n    cube(x)\n", 1, cube=cube)
    assert str(error).endswith("The result of cube is not being used. extra")
    assert run("def k(out, x):\n    tl.store(out, cube(x))\n", 2, n=1, cube=cube) == [8]


def _with(factor: int) -> SourceFunction:
    scale = tl.constexpr(factor)

    @aggregate
    class Scaled:
        x: tl.tensor

        @jit
        def get(self) -> Any:
            return self.x * scale

    @jit
    def kernel(out: Any, x: Any) -> None:
        tl.store(out, Scaled(x).get())

    return kernel


def test_methods_are_part_of_the_key() -> None:
    @aggregate
    class First:
        x: tl.tensor

        @jit
        def get(self) -> Any:
            return self.x + 1

    @aggregate
    class Second:
        x: tl.tensor

        @jit
        def get(self) -> Any:
            return self.x + 2

    def keyed(cls: Any) -> Any:
        return kernel_from("def kernel(out, x):\n    tl.store(out, C(x).get())\n", C=cls)

    assert keyed(First).cache_key == keyed(First).cache_key
    assert keyed(First).cache_key != keyed(Second).cache_key
    kernel = _with(3)
    assert kernel.cache_key != _with(4).cache_key
    assert [value.value for value, _ in kernel.used_global_vals.values()] == [3]
    out = np.zeros(1, np.int32)
    launch(kernel, out, 5)
    assert out.tolist() == [15]
