"""`if`, loops, early returns and what they carry: meaning by the interpreter, structure, errors."""

from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, fails, function_from, kernel_from, launch
from tilewright.base.diagnostics import UnsupportedLanguageConstruct
from tilewright.ir.core import Module
from tilewright.ops.control import For, If, While


def run(text: str, *args: Any, n: int = 4, grid: Any = 1, **constexprs: Any) -> list[int]:
    """What a kernel leaves in its first parameter, `n` int32 that start as -1."""
    out = np.full(n, -1, np.int32)
    names = {k: constexprs.pop(k) for k in list(constexprs) if k.islower()}
    launch(kernel_from(text, **names), out, *args, grid=grid, **constexprs)
    return out.tolist()


def ops_of(module: Module, kind: type) -> list[Any]:
    return [op for op in module.walk() if isinstance(op, kind)]


# -- if --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("x", "expected"), [(5, [10, 1]), (-5, [5, 2])])
def test_run_time_if_joins_the_names_of_both_branches(x: int, expected: list[int]) -> None:
    text = """
    def kernel(out, x):
        y = x
        if x > 0:
            y = y * 2
            kind = 1
        else:
            y = -y
            kind = 2
        tl.store(out, y)
        tl.store(out + 1, kind)
    """
    assert run(text, x, n=2) == expected


@pytest.mark.parametrize(("x", "expected"), [(0, 0), (3, 1), (12, 2), (100, 3)])
def test_elif_and_nesting(x: int, expected: int) -> None:
    text = """
    def kernel(out, x):
        r = 3
        if x < 1:
            r = 0
        elif x < 10:
            r = 1
        else:
            if x < 20:
                r = 2
        tl.store(out, r)
    """
    assert run(text, x, n=1) == [expected]


def test_condition_is_compared_with_zero() -> None:
    text = "def kernel(out, x):\n    if x:\n        tl.store(out, 1)\n"
    assert run(text, 4, n=1) == [1]
    assert run(text, 0, n=1) == [-1]


def test_compile_time_if_compiles_only_one_branch() -> None:
    text = """
    def kernel(out, FLAG: tl.constexpr):
        if FLAG and FLAG > 1:
            tl.store(out, FLAG)
        elif FLAG is None:
            tl.store(out, 100)
        else:
            undefined + nonsense
    """
    assert run(text, n=1, FLAG=2) == [2]
    assert run(text, n=1, FLAG=None) == [100]
    module = build(kernel_from(text), {"out": "*i32"}, {"FLAG": 2})
    assert not ops_of(module, If)


def test_tile_of_one_element_is_a_condition_with_a_warning() -> None:
    text = "def kernel(out):\n    if tl.arange(0, 1) == 0:\n        tl.store(out, 1)\n"
    with pytest.warns(UserWarning, match="a tile of one element"):
        assert run(text, n=1) == [1]


def test_values_beyond_the_names_are_dropped_with_a_warning() -> None:
    text = """
    def kernel(out):
        (a, b), c = (1, 2, 3), 4, 5
        tl.store(out, a * 100 + b * 10 + c)
    """
    with pytest.warns(UserWarning, match="3 values are unpacked into 2; the rest is dropped"):
        assert run(text, n=1) == [124]


def test_tuples_and_none_pass_through_branches() -> None:
    text = """
    def kernel(out, x):
        pair = (x, None, (x, x))
        if x > 0:
            pair = (x + 1, None, (x + 2, x))
        tl.static_assert(pair[1] is None)
        tl.store(out, pair[0])
        tl.store(out + 1, pair[2][0])
    """
    assert run(text, 1, n=2) == [2, 3]


def test_none_is_no_value_that_branches_must_keep() -> None:
    text = """
    def kernel(out, x):
        a = None
        if x > 0:
            a = x * 2.0
        elif x == 0:
            a = 5.0
        else:
            a = -1.0
        tl.static_assert(a is not None)
        tl.store(out, a.to(tl.int32))
    """
    assert [run(text, x, n=1) for x in (1, 0, -3)] == [[2], [5], [-1]]


CONDITIONAL = [
    ("x if x > 0 else -x", 3, 3),
    ("x if x > 0 else -x", -3, 3),
    ("1 if x > 0 else 2", 3, 1),
]


@pytest.mark.parametrize(("expression", "x", "expected"), CONDITIONAL)
def test_conditional_expression(expression: str, x: int, expected: int) -> None:
    assert run(f"def kernel(out, x):\n    tl.store(out, {expression})\n", x, n=1) == [expected]


def test_conditional_expression_runs_one_side_only() -> None:
    text = """
    def kernel(out, x):
        y = tl.atomic_add(out, 5) if x > 0 else tl.atomic_add(out, 7)
        tl.store(out + 1, 1 if True else undefined)
    """
    assert run(text, 1, n=2) == [4, 1]
    assert run(text, -1, n=2) == [6, 1]


IF_ERRORS = [
    (
        "x = 1.0",
        "pass",
        "initial value for `x` is of type int32, but the then block redefines it as",
    ),
    (
        "pass",
        "x = 1.0",
        "initial value for `x` is of type int32, but the else block redefines it as",
    ),
    ("y = 1", "y = 1.0", "Mismatched type for y between then block (int32) and else block (fp32)"),
    ("c = 1", "pass", "initial value for `c` is of type constexpr_type[5], but the then block"),
    ("empty = 1", "pass", "initial value for `empty` is of type constexpr_type[None], but the"),
]


@pytest.mark.parametrize(("then", "other", "message"), IF_ERRORS)
def test_branches_must_agree(then: str, other: str, message: str) -> None:
    text = f"""
def kernel(x):
    c: tl.constexpr = 5
    empty = None
    if x > 0:
        {then}
    else:
        {other}
    x + 1
"""
    error = fails(text, 1)
    assert message in str(error)
    assert str(error).startswith("at 4:4:")


def test_name_of_one_branch_is_not_visible_after_it() -> None:
    error = fails("def k(x):\n    if x > 0:\n        y = 1\n    y + 1\n", 1)
    assert "y is not defined" in str(error)
    assert str(error).startswith("at 4:4:")


def test_conditions_of_other_kinds_are_rejected() -> None:
    error = fails("def k():\n    if 'a':\n        pass\n")
    assert "`if` conditionals can only accept values of type {bool, int, NoneType}" in str(error)
    assert "not objects of type str" in str(error)
    error = fails("def k():\n    if tl.arange(0, 4) > 2:\n        pass\n")
    assert "Boolean value of Tensor with more than one value is ambiguous" in str(error)
    error = fails("def k(x):\n    y = 1 if x > 0 else 2.0\n", 1)
    assert "inconsistent types int32 and fp32" in str(error)


# -- boolean operators -----------------------------------------------------------------------------


BOOLEANS = [
    ("x > 0 and x < 5", 3, 1),
    ("x > 0 and x < 5", 7, 0),
    ("x > 6 or x < 5", 5, 0),
    ("0 < x < 5", 3, 1),
    ("0 < x < 5", 9, 0),
    ("0 < x <= 5 != x", 5, 0),
    ("x > 0 and True", 3, 1),
    ("x > 0 and False", 3, 0),
    ("False or x > 0", 3, 1),
    ("not x > 0", 3, 0),
    ("3 < 5 > x", 4, 1),
]


@pytest.mark.parametrize(("expression", "x", "expected"), BOOLEANS)
def test_boolean_operators(expression: str, x: int, expected: int) -> None:
    assert run(f"def kernel(out, x):\n    tl.store(out, {expression})\n", x, n=1) == [expected]


def test_boolean_operators_short_circuit_at_compile_time() -> None:
    text = """
    def kernel(x):
        tl.static_assert((x > 0 and False) == False)
        tl.static_assert((False and undefined) == False)
        tl.static_assert((1 or undefined) == 1)
        tl.static_assert((0 or None) is None)
    """
    build(kernel_from(text), {"x": "i32"})


def test_boolean_operators_of_tiles_warn() -> None:
    with pytest.warns(UserWarning, match="deprecated for non-scalar tensors"):
        build(kernel_from("def k():\n    i = tl.arange(0, 4)\n    (i > 0) and (i < 3)\n"))


# -- return ----------------------------------------------------------------------------------------


def test_early_return_of_a_kernel() -> None:
    text = """
    def kernel(out, n):
        pid = tl.program_id(0)
        if pid >= n:
            return
        tl.store(out + pid, pid)
    """
    assert run(text, 2, grid=4) == [0, 1, -1, -1]
    module = build(kernel_from(text), {"out": "*i32", "n": "i32"})
    (branch,) = ops_of(module, If)
    assert not branch.results, "nothing is needed after the kernel's end"


RETURNS = """
@jit
def classify(x):
    if x < 0:
        if x < -10:
            return 1
        y = x + 1
    elif x == 0:
        return 2
    else:
        y = x * 2
        if x > 10:
            if x > 100:
                return 3
            else:
                return 4
    z = y + 1000
    if z > 1100:
        return z
    return y

def kernel(out, x):
    tl.store(out, classify(x))
"""


def classified(x: int) -> int:
    if x < 0:
        if x < -10:
            return 1
        y = x + 1
    elif x == 0:
        return 2
    else:
        y = x * 2
        if x > 10:
            return 3 if x > 100 else 4
    z = y + 1000
    return z if z > 1100 else y


@pytest.mark.parametrize("x", [-11, -10, -1, 0, 1, 10, 11, 100, 101])
def test_returns_in_nested_branches(x: int) -> None:
    assert run(RETURNS, x, n=1) == [classified(x)]


def test_rest_runs_once_where_a_branch_may_return() -> None:
    text = """
    def kernel(out, x):
        if x > 0:
            if x > 10:
                return
            tl.atomic_add(out, 10)
        tl.atomic_add(out, 100)
        if x < -5:
            return
        tl.atomic_add(out, 1000)
    """
    assert [run(text, x, n=1)[0] for x in (11, 1, 0, -6)] == [-1, 1109, 1099, 99]
    module = build(kernel_from(text), {"out": "*i32", "x": "i32"})
    assert sum(op.name == "atomic.rmw" for op in module.walk()) == 3, "code is not duplicated"


def test_statements_after_a_return_are_ignored() -> None:
    text = """
    @jit
    def f(x):
        return x + 1
        return "anything"

    def kernel(out, x):
        tl.store(out, f(x))
        return
        undefined
    """
    assert run(text, 1, n=1) == [2]


def test_falling_off_the_end_is_allowed() -> None:
    text = """
    @jit
    def f(x):
        if x > 0:
            return x * 2

    def kernel(out, x):
        tl.store(out, f(x))
    """
    assert run(text, 4, n=1) == [8]


def test_return_in_an_unrolled_loop_ends_it() -> None:
    text = """
    @jit
    def first_above(x, N: tl.constexpr):
        for i in tl.static_range(N):
            if i * i > x:
                return i
        return 100

    def kernel(out, x):
        tl.store(out, first_above(x, 4))
    """
    assert [run(text, x, n=1)[0] for x in (-1, 0, 5, 20)] == [0, 1, 3, 100]


def test_equal_returned_numbers_stay_compile_time_values() -> None:
    text = """
    @jit
    def always(x):
        if x > 0:
            return 4
        return 4

    @jit
    def differs(x):
        if x > 0:
            return (4, 1)
        return (4, 2)

    def kernel(out, x):
        i = tl.arange(0, always(x))
        tl.static_assert(differs(x)[0] == 4)
        tl.store(out + i, differs(x)[1])
    """
    assert run(text, 1) == [1] * 4
    assert run(text, -1) == [2] * 4


def test_returned_types_must_agree() -> None:
    text = """
@jit
def f(x):
    if x > 0:
        return tl.zeros((2,), tl.float32)
    else:
        return tl.zeros((4,), tl.float32)

def kernel(x):
    f(x)
"""
    error = fails(text, 1)
    assert str(error).startswith("at 2:4:")
    assert str(error.__cause__).startswith("at 1:0:")
    assert "Return type mismatch: <['2'], fp32> and <['4'], fp32>" in str(error.__cause__)
    build(kernel_from(text.replace("x > 0", "True")), {"x": "i32"})


# -- for -------------------------------------------------------------------------------------------


RANGES = [(0, 5, 1), (2, 9, 3), (5, 5, 1), (7, 2, 1), (-3, 3, 2)]


@pytest.mark.parametrize(("start", "stop", "step"), RANGES)
def test_loop_runs_over_its_range(start: int, stop: int, step: int) -> None:
    text = """
    def kernel(out, start, stop, step):
        count = 0
        total = 0
        for i in range(start, stop, step):
            count += 1
            total += i
        tl.store(out, count)
        tl.store(out + 1, total)
    """
    values = range(start, stop, step)
    assert run(text, start, stop, step, n=2) == [len(values), sum(values)]


@pytest.mark.parametrize(("start", "stop", "step"), [(10, 0, -3), (5, -1, -1), (0, 5, -1)])
def test_backward_loop(start: int, stop: int, step: int) -> None:
    text = """
    def kernel(out, start, stop, STEP: tl.constexpr):
        at = 0
        for i in range(start, stop, STEP):
            tl.store(out + at, i)
            at += 1
    """
    values = list(range(start, stop, step))
    assert run(text, start, stop, n=8, STEP=step) == values + [-1] * (8 - len(values))


def test_changes_of_index_and_bounds_do_not_change_the_trip_count() -> None:
    text = """
    def kernel(out, n):
        count = 0
        for i in range(0, n):
            i = i + 10
            n = 0
            count += 1
        tl.store(out, count)
        tl.store(out + 1, n)
    """
    assert run(text, 3, n=2) == [3, 0]


def test_loops_carry_tuples_and_nest() -> None:
    text = """
    def kernel(out, n):
        pair = (1, (0, None))
        for i in range(n):
            a, (b, nothing) = pair
            for j in range(i):
                b += j
            pair = (a * 2, (b, nothing))
        tl.store(out, pair[0])
        tl.store(out + 1, pair[1][0])
    """
    assert run(text, 4, n=2) == [16, sum(sum(range(i)) for i in range(4))]


def test_only_modified_names_are_carried() -> None:
    text = """
    def kernel(out, n):
        a = n + 1
        b = n + 2
        for i in range(n):
            a, b = a, b + i
        tl.store(out, a + b)
    """
    (loop,) = ops_of(build(kernel_from(text), {"out": "*i32", "n": "i32"}), For)
    assert len(loop.inits) == 1
    assert run(text, 3, n=1) == [4 + 5 + 3]


def test_branches_within_loops() -> None:
    text = """
    def kernel(out, n):
        even = 0
        odd = 0
        for i in range(n):
            if i % 2 == 0:
                even += i
            else:
                odd += i
        tl.store(out, even)
        tl.store(out + 1, odd)
    """
    assert run(text, 7, n=2) == [12, 9]


def test_hints_reach_the_loop() -> None:
    text = """
    def kernel(n, STAGES: tl.constexpr):
        for i in tl.range(0, n, num_stages=STAGES, loop_unroll_factor=2, flatten=True):
            pass
    """
    (loop,) = ops_of(build(kernel_from(text), {"n": "i32"}, {"STAGES": 3}), For)
    assert (loop.num_stages, loop.unroll, loop.hints) == (3, 2, ("flatten",))


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [("n, m", "int64"), ("0, n", "int32"), ("0, u", "uint32"), ("m", "int64"), ("b, n", "int32")],
)
def test_index_has_the_promoted_type(bounds: str, expected: str) -> None:
    text = f"""
    def kernel(n, m, u, b):
        for i in range({bounds}):
            tl.static_assert(i.dtype == tl.{expected})
    """
    build(kernel_from(text), {"n": "i32", "m": "i64", "u": "u32", "b": "i8"})


def test_index_is_not_usable_after_a_loop_but_after_an_unrolled_one() -> None:
    error = fails("def k(n):\n    for i in range(n):\n        pass\n    i + 1\n", 1)
    assert "i is not defined" in str(error)
    text = """
    def kernel(out):
        for i in tl.static_range(0, 6, 2):
            tl.store(out + i, i)
        tl.static_assert(i == 4)
    """
    assert run(text, n=6) == [0, -1, 2, -1, 4, -1]


def test_unrolled_loop_over_tuples() -> None:
    text = """
    def kernel(out):
        parts = (3, 4, 5)
        for i in tl.static_range(len(parts)):
            tl.store(out + i, parts[i])
    """
    assert run(text) == [3, 4, 5, -1]


LOOP_ERRORS = [
    ("x = x * 1.5", "Loop-carried variable x has initial type int32 but is re-assigned to fp32 in "
                    "loop! Please make sure that the type stays consistent."),
    ("x = (x, x)", "Loop carried variable x changed type, was int32 but is now [int32,int32]"),
    ("nothing = x", "cannot reassign constexpr nothing in the loop"),
    ("t = tl.zeros((4,), tl.int32)", "Loop-carried variable t has initial type <['2'], int32> but"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "message"), LOOP_ERRORS)
@pytest.mark.parametrize("loop", ["for i in range(x)", "while x > 0"])
def test_carried_values_keep_their_kind(loop: str, statement: str, message: str) -> None:
    text = f"""
def kernel(x):
    nothing = None
    t = tl.zeros((2,), tl.int32)
    {loop}:
        {statement}
"""
    error = fails(text, 1)
    assert message in str(error)
    assert str(error).startswith("at 4:4:")


BAD_RANGES = [
    ("range(1.5)", "For loop bounds and step must all be ints, are (int32, fp32, int32)"),
    ("range(tl.arange(0, 2))", "For upper bound must be a scalar, got <['2'], int32>"),
    ("range(0, 4, 0)", "the step of a loop must not be zero"),
    ("tl.static_range(x)", "int32[] used as tl.static_range start value is not a constexpr"),
    ("tl.static_range(0, x)", "int32[] used as tl.static_range end value is not a constexpr"),
    ("x", "Only `range` and `static_range` iterators are currently supported"),
    ("3", "Only `range` and `static_range` iterators are currently supported"),
    ("foo(x)", "foo is not defined"),
]


@pytest.mark.parametrize(("iterator", "message"), BAD_RANGES)
def test_unsupported_iterators(iterator: str, message: str) -> None:
    error = fails(f"def k(x):\n    for i in {iterator}:\n        pass\n", 1)
    assert message in str(error)
    assert str(error).startswith("at 2:")


# -- while -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [1, 6, 27])
def test_while(x: int) -> None:
    text = """
    def kernel(out, x, limit):
        steps = 0
        while (x != 1) & (steps < limit):
            x = x // 2 if x % 2 == 0 else 3 * x + 1
            steps += 1
        tl.store(out, steps)
    """
    steps, y = 0, x
    while y != 1:
        y = y // 2 if y % 2 == 0 else 3 * y + 1
        steps += 1
    assert run(text, x, 1000, n=1) == [steps]
    assert run(text, x, 2, n=1) == [min(steps, 2)]
    module = build(kernel_from(text), {"out": "*i32", "x": "i32", "limit": "i32"})
    (loop,) = ops_of(module, While)
    assert len(loop.inits) == 2, "x and steps change, limit does not"


def test_while_with_an_assignment_in_its_condition() -> None:
    text = """
    def kernel(out, x):
        y = 0
        while (y := x * 2) < 20:
            x += 3
        tl.store(out, y)
        tl.store(out + 1, x)
    """
    assert run(text, 1, n=2) == [20, 10]


def test_while_that_polls_memory() -> None:
    text = """
    def kernel(out):
        while tl.condition(tl.atomic_add(out, 1) < 5, disable_licm=True):
            pass
    """
    assert run(text, n=1) == [6]


def test_while_true_is_rejected() -> None:
    error = fails("def k(x):\n    while True:\n        x += 1\n", 1)
    assert "the condition of a `while` must be a run-time value" in str(error)


UNSUPPORTED = [
    ("for i in range(n):\n        pass\n    else:\n        pass", "`for` with an `else`"),
    ("while n > 0:\n        pass\n    else:\n        pass", "`while` with an `else`"),
]


@pytest.mark.parametrize(("statement", "message"), UNSUPPORTED)
def test_unsupported_clauses_of_loops(statement: str, message: str) -> None:
    error = fails(f"def k(n):\n    {statement}\n", 1)
    assert isinstance(error, UnsupportedLanguageConstruct)
    assert message in str(error)


def test_context_managers_of_the_language() -> None:
    entered: list[str] = []

    class Region:
        def __enter__(self) -> None:
            entered.append("in")

        def __exit__(self, *error: object) -> None:
            entered.append("out")

    def region(*, _semantic: Any) -> Region:
        return Region()

    region.__triton_builtin__ = True  # pyright: ignore[reportFunctionMemberAccess]
    text = """
    def kernel(out):
        with region():
            x = 3
        tl.store(out, x)
    """
    assert run(text, n=1, region=region) == [3]
    assert entered == ["in", "out"]
    error = fails("def k():\n    with region():\n        return\n", region=region)
    assert "Cannot have `return` statements inside `with` statements in triton" in str(error)


def test_function_from_text_is_undecorated() -> None:
    assert function_from("def f():\n    return 3\n")() == 3


def test_names_bound_within_a_conditional_expression() -> None:
    """A side that does not run binds nothing; what only one side binds is not there after it."""
    text = """
    def kernel(out, n):
        a = 5
        b = (a := n + 1) + 10 if n > 2 else (c := n) + (a := 7)
        tl.store(out, a)
        tl.store(out + 1, b)
        d = (a := a * 2) if n > 2 else 0
        tl.store(out + 2, a + d)
    """
    for n, expected in ((5, [6, 16, 24]), (1, [7, 8, 7])):
        out = np.zeros(3, np.int32)
        launch(kernel_from(text), out, n)
        assert out.tolist() == expected
    error = fails("def kernel(n):\n    b = (c := n) if n > 2 else 3\n    tl.cdiv(c, 2)\n", 5)
    assert "c is not defined" in str(error)
