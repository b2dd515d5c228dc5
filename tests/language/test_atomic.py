"""Atomics: every operation on every type, order and scope, on every target; what they reject."""

import re
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, fails, kernel_from, launch
from tests.ir_values import random_array
from tests.language.all_targets import run_everywhere
from tests.targets.cpu.harness import run_compiled
from tests.targets.nvidia.lowered import ptx_of
from tilewright.base.diagnostics import InterpreterError
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import PassContext, run
from tilewright.ir.types import SCALARS, DType, Tile

TYPES = {t.short: t for t in SCALARS}
WIDE_INTEGERS = ("i32", "u32", "i64", "u64")
SUPPORTED: dict[str, tuple[str, ...]] = {
    "add": (*WIDE_INTEGERS, "fp16", "bf16", "fp32", "fp64"),
    "max": (*WIDE_INTEGERS, "fp32", "fp64"),
    "min": (*WIDE_INTEGERS, "fp32", "fp64"),
    "and": (*WIDE_INTEGERS, "fp32", "fp64"),
    "or": (*WIDE_INTEGERS, "fp32", "fp64"),
    "xor": (*WIDE_INTEGERS, "fp32", "fp64"),
    "xchg": (*WIDE_INTEGERS, "fp32", "fp64"),
}
EVERY = [(kind, t) for kind in SUPPORTED for t in TYPES]


def message_of(kind: str, element: DType) -> str:
    """The language's error for a type that an operation does not support."""
    return f"atomic_{kind} does not support {element}"


UPDATE = """
def kernel(x, values, old, n):
    i = tl.arange(0, 32)
    v = tl.load(values + i)
    before = tl.atomic_{kind}(x + i, v, mask=i < n, sem="{sem}", scope="{scope}")
    tl.store(old + i, before)
    x.atomic_{kind}(tl.load(values))
"""


@pytest.mark.parametrize(("kind", "short"), EVERY)
def test_operation_on_type(kind: str, short: str) -> None:
    element = TYPES[short]
    text = UPDATE.format(kind=kind, sem="relaxed", scope="gpu")
    rng = np.random.default_rng(5)
    x, values, old = (random_array(Tile((32,), element), rng) for _ in range(3))
    if short not in SUPPORTED[kind]:
        assert str(fails(text, x, values, old, 20).__cause__) == message_of(kind, element)
        return
    if element.is_floating() and kind in ("add", "max", "min"):
        x, values = (rng.integers(-40, 40, len(a)).astype(a.dtype) for a in (x, values))
    want, expected = x.copy(), np.zeros_like(old)
    with np.errstate(all="ignore"):
        for i in range(20):
            expected[i] = want[i]
            want[i] = folded(kind, want[i], values[i])
        want[0] = folded(kind, want[0], values[0])
    run_everywhere(text, x, values, old, 20)
    np.testing.assert_array_equal(x.view(np.uint8), want.view(np.uint8))
    np.testing.assert_array_equal(old.view(np.uint8), expected.view(np.uint8))


def folded(kind: str, x: Any, y: Any) -> Any:
    """The numbers combined, or their bits."""
    if x.dtype.kind == "f" and kind in ("and", "or", "xor"):
        bits = np.dtype(f"u{x.dtype.itemsize}")
        return FOLD[kind](x.view(bits), y.view(bits)).view(x.dtype)
    return FOLD[kind](x, y).astype(x.dtype)


FOLD: dict[str, Any] = {
    "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "xchg": lambda old, new: new,
}  # fmt: skip


@pytest.mark.parametrize("sem", ["acquire", "release", "acq_rel", "relaxed"])
@pytest.mark.parametrize("scope", ["gpu", "cta", "sys"])
def test_order_and_scope(sem: str, scope: str) -> None:
    text = UPDATE.format(kind="add", sem=sem, scope=scope)
    x, values, old = (np.arange(32, dtype=np.int32) for _ in range(3))
    module = run_everywhere(text, x, values, old, 32)
    np.testing.assert_array_equal(x, np.arange(32) * 2)
    assert f"atom.{sem}.{scope}.global.add.u32" in ptx_of(module)


@pytest.mark.parametrize("short", TYPES)
def test_compare_and_swap(short: str) -> None:
    text = """
    def kernel(x, expected, values, old):
        i = tl.arange(0, 16)
        e, v = tl.load(expected + i), tl.load(values + i)
        tl.store(old + i, tl.atomic_cas(x + i, e, v, sem="relaxed"))
        x.atomic_cas(tl.load(values), tl.load(expected))
    """
    element = TYPES[short]
    x, other, values, old = (
        random_array(Tile((16,), element), np.random.default_rng(n)) for n in range(4)
    )
    expected = np.where(np.arange(16) % 3 == 0, other, x)
    if element.primitive_bitwidth < 16:
        error = fails(text, x, expected, values, old)
        message = "atomic_cas only supports elements with width {16, 32, 64}"
        assert str(error.__cause__) == message
        return
    bits: Any = [a.view(f"u{a.dtype.itemsize}") for a in (x, expected, values, old)]
    want, before = bits[0].copy(), bits[0].copy()
    want[:] = np.where(before == bits[1], bits[2], before)
    if want[0] == bits[2][0]:
        want[0] = bits[1][0]
    module = run_everywhere(text, x, expected, values, old)
    np.testing.assert_array_equal(bits[0], want)
    np.testing.assert_array_equal(bits[3], before)
    assert re.search(r"atom\.relaxed\.gpu\.(global\.)?cas\.b", ptx_of(module))


@pytest.mark.parametrize("element", [np.uint32, np.int32, np.uint64, np.int64])
def test_compare_and_swap_of_integers_of_the_other_sign(element: type[np.integer[Any]]) -> None:
    text = """
    def kernel(x, old, WIDE: tl.constexpr):
        i = tl.arange(0, 16)
        e = i.to(tl.uint64 if WIDE else tl.uint32)
        v = (-1 - i).to(tl.int64 if WIDE else tl.int32)
        tl.store(old + i, tl.atomic_cas(x + i, e, v))
    """
    x = np.where(np.arange(16) % 3 == 0, np.arange(16), 100).astype(element)
    old, before = np.zeros_like(x), x.copy()
    run_everywhere(text, x, old, constexprs={"WIDE": x.itemsize == 8})
    want = np.where(before == np.arange(16), -1 - np.arange(16), before.astype(np.int64))
    np.testing.assert_array_equal(x, want.astype(element))
    np.testing.assert_array_equal(old, before)


def test_lock_in_memory_of_unsigned_words() -> None:
    text = """
    def kernel(lock, x):
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
        tl.store(x, tl.load(x) + 1)
        tl.atomic_xchg(lock, 0)
    """
    lock, x = np.zeros(1, np.uint32), np.zeros(1, np.int32)
    run_everywhere(text, lock, x)
    assert (lock[0], x[0]) == (0, 1)


# -- loads, stores, waits --------------------------------------------------------------------------

COPY = """
def kernel(x, y, n):
    i = tl.arange(0, 32)
    v = tl.atomic_load(x + i, mask=i < n, sem="{load}", scope="{scope}")
    tl.static_assert(v.dtype == x.dtype.element_ty)
    tl.atomic_store(y + i, v, mask=i > 2, sem="{store}", scope="{scope}")
    y.atomic_store((x + 5).atomic_load())
"""


@pytest.mark.parametrize("short", TYPES)
def test_every_type_is_loaded_and_stored(short: str) -> None:
    rng = np.random.default_rng(6)
    x, y = (random_array(Tile((32,), TYPES[short]), rng) for _ in range(2))
    want = np.where(np.arange(32) < 20, x, np.zeros_like(x))
    want[:3] = y[:3]
    want[0] = x[5]
    module = run_everywhere(COPY.format(load="acquire", store="release", scope="gpu"), x, y, 20)
    np.testing.assert_array_equal(y.view(np.uint8), want.view(np.uint8))
    bits = max(8, TYPES[short].primitive_bitwidth)
    text = ptx_of(module)
    assert f"ld.acquire.gpu.global.b{bits}" in text
    assert f"st.release.gpu.global.b{bits}" in text


@pytest.mark.parametrize("scope", ["gpu", "cta", "sys"])
@pytest.mark.parametrize(("load", "store"), [("acquire", "release"), ("relaxed", "relaxed")])
def test_order_and_scope_of_loads_and_stores(load: str, store: str, scope: str) -> None:
    module = build(
        kernel_from(COPY.format(load=load, store=store, scope=scope)),
        {"x": "*i32", "y": "*i32", "n": "i32"},
    )
    text = ptx_of(module)
    assert f"ld.{load}.{scope}.global.b32" in text
    assert f"st.{store}.{scope}.global.b32" in text


def test_barriers_extend_the_order_to_all_threads() -> None:
    for line, count in (
        ("tl.atomic_store(x, 1)", 1),
        ("tl.atomic_store(x, 1, sem='relaxed')", 0),
        ("tl.store(x, tl.atomic_load(x))", 1),
        ("tl.atomic_poll(x, 1)", 0),  # nothing follows that could be early
        ("tl.atomic_poll(x, 1); tl.store(x + 1, 1)", 1),
        ("tl.atomic_poll(x, 1, sem='relaxed'); tl.store(x + 1, 1)", 0),
    ):
        text = ptx_of(build(kernel_from(f"def k(x):\n    {line}\n"), {"x": "*i32"}))
        assert text.count("bar.sync") + text.count("barrier.sync") == count, line


@pytest.mark.parametrize("short", ["i16", "u16", *WIDE_INTEGERS])
def test_wait_ends_with_an_error_where_memory_never_changes(short: str) -> None:
    text = """
    def kernel(x, expected, y, z):
        i = tl.arange(0, 32)
        e = tl.load(expected + i)
        tl.store(y + i, tl.atomic_poll(x + i, e, timeout_ns=1000))
        tl.store(z, x.atomic_poll(7, sem="relaxed", scope="sys", timeout_ns=0))
    """
    rng = np.random.default_rng(7)
    x = random_array(Tile((32,), TYPES[short]), rng)
    x[0] = 7
    expected = np.where(np.arange(32) % 3 == 0, ~x, x)
    y, z = np.zeros(32, np.bool_), np.zeros(1, np.bool_)
    run_everywhere(text, x, expected, y, z)
    np.testing.assert_array_equal(y, np.arange(32) % 3 != 0)
    assert z[0]


def test_released_stores_are_visible_after_an_acquire() -> None:
    """Programs that run at the same time: each waits for the one before it."""
    text = """
    def kernel(data, flags, N: tl.constexpr):
        p = tl.program_id(0)
        i = tl.arange(0, N)
        if p > 0:
            tl.atomic_poll(flags + p - 1, 1)
        x = tl.load(data + p * N + i)
        tl.store(data + (p + 1) * N + i, x + 1)
        tl.atomic_store(flags + p, 1)
    """
    kernel = kernel_from(text)
    data, flags = np.zeros((33, 64), np.int32), np.zeros(32, np.int32)
    module = launch(kernel, data, flags, grid=(32,), N=64)
    np.testing.assert_array_equal(data[:, 5], np.arange(33))
    run(module, STEPS, PassContext(), [])
    for _ in range(20):
        data[...], flags[...] = 0, 0
        run_compiled(module, (32, 1, 1), [data, flags], threads=2)
        np.testing.assert_array_equal(data, np.arange(33)[:, None] + np.zeros(64, np.int32))


def test_endless_wait_of_an_interpreted_program_is_reported() -> None:
    text = "def kernel(x):\n    tl.atomic_poll(x + 1, 5)\n"
    with pytest.raises(InterpreterError, match=r"deadlock: .* waits until 5 is in byte 4 of"):
        launch(kernel_from(text), np.zeros(2, np.int32))


REJECTED = [
    ("tl.atomic_load(n)", "Unsupported ptr type int32 in `tl.atomic_load`"),
    ("tl.atomic_load(x, mask=i < 2)",
     "Mask argument cannot be block type if pointer argument is not a block"),
    ("tl.atomic_load(x + i, mask=i)", "Mask must have boolean scalar type"),
    ("tl.atomic_load(x, sem='release')",
     "atomic_load only supports acquire and relaxed semantics"),
    ("tl.atomic_load(x, scope='world')", "Memory semantic world not supported"),
    ("tl.atomic_store(n, 1)", "Unsupported ptr type int32 in `tl.atomic_store`"),
    ("tl.atomic_store(x, i)",
     "Value argument cannot be block type if pointer argument is not a block"),
    ("tl.atomic_store(x, 1, sem='acq_rel')",
     "atomic_store only supports release and relaxed semantics"),
    ("tl.atomic_store(x + i, i[:, None])",
     "Expected pointer argument to have shape [4, 4] but got [4]"),
    ("tl.atomic_poll(n, 1)", "Unsupported ptr type int32 in `tl.atomic_poll`"),
    ("tl.atomic_poll(f, 1)",
     "atomic_poll only supports integer elements with width {16, 32, 64}, not fp32"),
    ("tl.atomic_poll(x.to(tl.pointer_type(tl.int8)), 1)",
     "atomic_poll only supports integer elements with width {16, 32, 64}, not int8"),
    ("tl.atomic_poll(x, 1, sem='release')",
     "atomic_poll only supports acquire and relaxed semantics"),
    ("tl.atomic_poll(x, 1, timeout_ns=-1)", "atomic_poll timeout_ns must be non-negative"),
    ("tl.atomic_poll(x, 1, timeout_ns=1.5)", "atomic_poll timeout_ns must be a scalar integer"),
    ("tl.atomic_poll(x, 1, timeout_ns=i)", "atomic_poll timeout_ns must be a scalar integer"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "message"), REJECTED)
def test_wrong_operands_are_rejected(expression: str, message: str) -> None:
    text = f"def k(x, f, n):\n    i = tl.arange(0, 4)\n    {expression}\n"
    error = fails(text, np.ones(4, np.int32), np.ones(4, np.float32), 5)
    assert str(error.__cause__).startswith(message)
    assert str(error).startswith("at 3:4:")


def test_constants_are_loaded_and_not_stored_to() -> None:
    build(kernel_from("def k(x):\n    tl.atomic_load(x)\n"), {"x": "*ki32"})
    with pytest.raises(Exception, match="Cannot store to a constant pointer"):
        build(kernel_from("def k(x):\n    tl.atomic_store(x, 1)\n"), {"x": "*ki32"})


def test_tiles_of_any_extent_access_nothing_beyond_them() -> None:
    """Their padding neither loads, nor stores, nor waits."""
    text = """
    def kernel(x, y, z):
        i = tl.arange(0, 48)
        v = tl.atomic_load(x + i)
        tl.atomic_store(y + i, v + 1)
        tl.store(z + i, tl.atomic_poll(x + i, v))
    """
    x = np.arange(48, dtype=np.int32)
    y, z = np.zeros(64, np.int32), np.zeros(64, np.bool_)
    run_everywhere(text, x, y, z)
    np.testing.assert_array_equal(y[:48], x + 1)
    assert z[:48].all()
    assert not y[48:].any()
    assert not z[48:].any()
