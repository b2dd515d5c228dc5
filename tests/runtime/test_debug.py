"""Printing and assertions in launches on the CPU and in the interpreter."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import knobs

HERE = Path(__file__).name


@pytest.fixture(params=["cpu", "interpreter"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TRITON_INTERPRET", "1" if request.param == "interpreter" else "0")
    return request.param


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_DEBUG", raising=False)


@tw.jit
def print_kernel(x_ptr, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + at)
    tl.device_print("x", x)
    tl.device_print("two:", tl.sum(x, 1), n, hex=True)
    tl.device_print("mask", x > 1)
    tl.device_print("program", tl.program_id(0))
    tl.device_print("done")


def test_values_are_printed_in_the_order_of_programs(target: str, capsys: Any) -> None:
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    print_kernel[(2,)](x, 5, ROWS=2, COLUMNS=2)
    expected = "".join(
        f"({i}, 0, 0) x: [[ 0.000000, 1.000000 ], [ 2.000000, 3.000000 ]]\n"
        f"({i}, 0, 0) two: (operand 0) [ 0x3f800000, 0x40a00000 ]\n"
        f"({i}, 0, 0) two: (operand 1) 0x00000005\n"
        f"({i}, 0, 0) mask: [[ 0, 0 ], [ 1, 1 ]]\n"
        f"({i}, 0, 0) program: {i}\n"
        f"({i}, 0, 0) done\n"
        for i in range(2)
    )
    assert capsys.readouterr().out == expected


@tw.jit
def loop_kernel(x_ptr, n):
    for i in range(n):
        if i % 2 == 1:
            tl.device_print("i", i, tl.load(x_ptr + i + tl.arange(0, 2)))


def test_printing_inside_control_flow(target: str, capsys: Any) -> None:
    loop_kernel[(1,)](np.arange(8, dtype=np.int64), 5)
    assert capsys.readouterr().out == (
        "(0, 0, 0) i: (operand 0) 1\n(0, 0, 0) i: (operand 1) [ 1, 2 ]\n"
        "(0, 0, 0) i: (operand 0) 3\n(0, 0, 0) i: (operand 1) [ 3, 4 ]\n"
    )


@tw.jit
def types_kernel(x_ptr, TYPE: tl.constexpr):
    tl.device_print("v", tl.load(x_ptr + tl.arange(0, 2)).to(TYPE))


@pytest.mark.parametrize(("name", "text"), [
    ("int8", "1, -2"), ("int64", "1, -2"), ("uint16", "1, 65534"), ("float16", None),
    ("bfloat16", None), ("float8e5", None), ("float8e4b15", "1.000000, -1.875000"),
    ("float64", None), ("int1", "1, 1"),
])  # fmt: skip
def test_every_type_is_printed(target: str, name: str, text: str | None, capsys: Any) -> None:
    kind = np.float32 if name.startswith("float") or name == "bfloat16" else np.int32
    types_kernel[(1,)](np.array([1, -2], kind), TYPE=getattr(tl, name))
    assert capsys.readouterr().out == f"(0, 0, 0) v: [ {text or '1.000000, -2.000000'} ]\n"


# -- assertions -----------------------------------------------------------------------------------


def check_body(x_ptr, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    x = tl.load(x_ptr + tl.program_id(0) * SIZE + i)
    tl.device_assert(x < 3, f"below {3}", mask=i < n)
    tl.store(x_ptr + tl.program_id(0) * SIZE + i, x + 1)


check_kernel: Any = tw.jit(check_body)
always_kernel: Any = tw.jit(debug=True)(check_body)
LINE = inspect.getsourcelines(check_body)[1] + 3


def raised(launch: Callable[[], Any]) -> str:
    with pytest.raises(RuntimeError) as found:
        launch()
    assert isinstance(found.value, tw.TritonError)
    return str(found.value)


def test_failure_names_location_and_message(target: str) -> None:
    x = np.array([0, 1, 2, 3], np.int32)
    message = raised(lambda: check_kernel[(1,)](x, 4, SIZE=4, debug=True))
    assert message == (f"{HERE}:{LINE}: check_body: program (0, 0, 0): Assertion `below 3` failed.")
    assert x.tolist() == [0, 1, 2, 3], "nothing is done after it"
    check_kernel[(1,)](x, 3, SIZE=4, debug=True)  # the mask leaves the last one out
    assert x.tolist() == [1, 2, 3, 4]


def test_program_that_failed_is_named(target: str) -> None:
    x = np.array([0, 0, 9, 0], np.int32)
    assert "program (1, 0, 0)" in raised(lambda: check_kernel[(2,)](x, 2, SIZE=2, debug=True))
    # and it is not reported again
    check_kernel[(1,)](x, 2, SIZE=2, debug=True)


@pytest.mark.parametrize("setting", ["env", "knob", "option", "decorator", "none"])
def test_debug_is_enabled_in_any_way(
    target: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = always_kernel if setting == "decorator" else check_kernel
    options = {"debug": True} if setting == "option" else {}
    if setting == "env":
        monkeypatch.setenv("TRITON_DEBUG", "1")
    x = np.full(4, 9, np.int32)

    def launch() -> None:
        with knobs.runtime.scope():
            if setting == "knob":
                knobs.runtime.debug = True
            kernel[(1,)](x, 4, SIZE=4, **options)

    if setting == "none":
        launch()
        assert x.tolist() == [10] * 4
    else:
        assert "below 3" in raised(launch)


def test_without_debug_nothing_is_emitted() -> None:
    x = np.zeros(4, np.int32)
    plain = check_kernel.warmup(x, 4, SIZE=4, grid=(1,))
    checked = check_kernel.warmup(x, 4, SIZE=4, grid=(1,), debug=True)
    assert "debug.assert" not in plain.asm["ttir"]
    assert "debug.assert" in checked.asm["ttir"]


@tw.jit
def nested_kernel(x_ptr, n):
    for i in range(n):
        x = tl.load(x_ptr + i)
        while x > 0:
            tl.device_assert((x - 5) * (x - 5) > 0, "five")
            x -= 1
        tl.store(x_ptr + i, x)


def test_failure_in_a_loop_ends_the_program(target: str) -> None:
    x = np.array([2, 9, 3], np.int32)
    assert "five" in raised(lambda: nested_kernel[(1,)](x, 3, debug=True))
    assert x.tolist() == [0, 9, 3]


def test_failures_on_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch that fails raises, also with concurrent launches."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    bad, good = np.full(4096, 9, np.int32), np.zeros(4096, np.int32)
    errors: list[str] = []

    def fail() -> None:
        errors.append(raised(lambda: check_kernel[(1024,)](bad.copy(), 4, SIZE=4, debug=True)))

    threads = [threading.Thread(target=fail) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(errors) == 3
    check_kernel[(1024,)](good, 4, SIZE=4, debug=True)
    assert (good == 1).all()


# -- overflow -------------------------------------------------------------------------------------


@tw.jit
def overflow_kernel(x_ptr, y_ptr, OP: tl.constexpr, SANITIZE: tl.constexpr):
    x, y = tl.load(x_ptr + tl.arange(0, 2)), tl.load(y_ptr + tl.arange(0, 2))
    if OP == "add":
        z = tl.add(x, y, sanitize_overflow=SANITIZE)
    elif OP == "sub":
        z = tl.sub(x, y, sanitize_overflow=SANITIZE)
    else:
        z = tl.mul(x, y, sanitize_overflow=SANITIZE)
    tl.store(x_ptr + tl.arange(0, 2), z)


LOW, HIGH = -(2**31), 2**31 - 1
OVERFLOWS = [
    ("add", np.int32, HIGH, 1, True), ("add", np.int32, HIGH, 0, False),
    ("add", np.int16, 2**15 - 1, 1, True), ("sub", np.int32, LOW, 1, True),
    ("sub", np.int32, 0, HIGH, False), ("mul", np.int32, 2**30, 2, True),
    ("mul", np.int8, -128, -1, True), ("mul", np.int8, 16, 7, False),
    ("add", np.uint32, 2**32 - 1, 1, True), ("sub", np.uint8, 3, 4, True),
    ("mul", np.uint32, 2**32 - 1, 2**32 - 1, True), ("mul", np.uint16, 255, 257, False),
    ("add", np.int64, 2**63 - 1, 1, False),
]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype", "x", "y", "overflows"), OVERFLOWS)
def test_overflow_is_found(
    target: str, op: str, dtype: Any, x: int, y: int, overflows: bool
) -> None:
    a, b = np.array([1, x], dtype), np.array([1, y], dtype)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op]
    with np.errstate(over="ignore"):
        wrapped = function(a, b)
    options = {"debug": True, "sanitize_overflow": True}
    for sanitize in (False, True):
        given = a.copy()

        def launch(given: Any = given, sanitize: bool = sanitize) -> None:
            overflow_kernel[(1,)](given, b, OP=op, SANITIZE=sanitize, **options)

        if overflows and sanitize:
            with pytest.raises(tw.TritonError, match="overflow"):
                launch()
        else:
            launch()
            np.testing.assert_array_equal(given, wrapped)


@tw.jit
def sum_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, 4)), 0))


def test_reductions_work_with_the_checks_on(target: str) -> None:
    x, out = np.arange(4, dtype=np.int32), np.zeros(1, np.int32)
    sum_kernel[(1,)](x, out, debug=True, sanitize_overflow=True)
    assert out[0] == 6


@tw.jit
def zero_kernel(x_ptr, MASK: tl.constexpr):
    i = tl.arange(0, 4)
    x = tl.expect_zero(tl.load(x_ptr + i), i >= MASK)
    tl.store(x_ptr + i, x + 1.0)


def test_expect_zero(target: str) -> None:
    x = np.array([1, 2, 0, 0], np.float32)
    zero_kernel[(1,)](x.copy(), MASK=2, debug=True)
    zero_kernel[(1,)](x.copy(), MASK=1)
    assert "expected zero" in raised(lambda: zero_kernel[(1,)](x.copy(), MASK=1, debug=True))
