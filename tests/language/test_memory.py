"""Loads, stores and atomics: what they do on every target, and what they reject."""

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.frontend.kernels import build, fails, function_from, kernel_from, launch
from tests.language.all_targets import run_everywhere
from tilewright.ops.memory import Load, Store


def test_masked_off_lanes_load_other_and_are_not_stored() -> None:
    x, y = np.arange(8, dtype=np.float32), np.full(8, -1, np.float32)
    run_everywhere(
        """
    def kernel(x, y, n):
        i = tl.arange(0, 8)
        tl.store(y + i, tl.load(x + i, mask=i < n, other=9.0) * 2, mask=i > 1)
    """,
        x,
        y,
        5,
    )
    np.testing.assert_array_equal(y, [-1, -1, 4, 6, 8, 18, 18, 18])


def test_load_broadcasts_the_pointer_to_mask_and_other() -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros((2, 4), np.float32)
    run_everywhere(
        """
    def kernel(x, y):
        i = tl.arange(0, 2)[:, None]
        j = tl.arange(0, 4)[None, :]
        v = tl.load(x + j, mask=(i + j) > 1, other=i.to(tl.float32) * 10)
        tl.static_assert(v.shape == (2, 4))
        tl.store(y + i * 4 + j, v)
    """,
        x,
        y,
    )
    np.testing.assert_array_equal(y, [[0, 0, 2, 3], [10, 1, 2, 3]])


def test_values_are_stored_to_bools_by_way_of_int8() -> None:
    """As in Triton, which stores bools as int8: what int8 has no bits of is false."""
    x = np.array([0.5, -0.25, 1.5, 2.0, -0.0, -1.0], np.float32)
    y, z = np.zeros(6, np.bool_), np.zeros((3, 6), np.bool_)
    run_everywhere(
        """
    def kernel(x, y, z):
        i = tl.arange(0, 8)
        tl.store(y + i, tl.load(x + i, i < 6), i < 6)
        tl.store(z + i, i * 128, i < 6)
        tl.store(z + 6 + i, 256, i < 6)
        tl.store(z + 12 + i, 0.75, i < 6)
    """,
        x,
        y,
        z,
    )
    np.testing.assert_array_equal(y, [0, 0, 1, 1, 0, 1])
    np.testing.assert_array_equal(z, [[0, 1, 0, 1, 0, 1], [0] * 6, [0] * 6])
    assert set(y.view(np.uint8)) == set(z.view(np.uint8).ravel()) == {0, 1}


def test_values_are_cast_to_the_pointee() -> None:
    x, y = np.array([1.75, -2.5], np.float32), np.zeros(2, np.int8)
    run_everywhere(
        """
    def kernel(x, y):
        i = tl.arange(0, 2)
        tl.store(y + i, tl.load(x + i, mask=i < 1, other=300))
    """,
        x,
        y,
    )
    np.testing.assert_array_equal(y, [1, np.array(300.0).astype(np.int32).clip(-128, 127)])


def test_bools_are_bytes_in_memory() -> None:
    x, y = np.array([True, False, True, False]), np.zeros(4, np.bool_)
    run_everywhere(
        """
    def kernel(x, y):
        i = tl.arange(0, 4)
        v = tl.load(x + i, mask=i < 3, other=True)
        tl.static_assert(v.dtype == tl.int1)
        tl.store(y + i, ~v)
        tl.store(y, True)
    """,
        x,
        y,
    )
    np.testing.assert_array_equal(y, [True, True, False, False])


def test_scalar_loads_and_stores() -> None:
    x, y = np.array([3, 4], np.int32), np.zeros(2, np.int64)
    run_everywhere(
        """
    def kernel(x, y, n):
        y.store(tl.load(x) + tl.load(x + 1, mask=n > 0, other=0))
        tl.store(y + 1, 7, mask=n > 5)
    """,
        x,
        y,
        1,
    )
    np.testing.assert_array_equal(y, [7, 0])


def test_cache_hints_reach_the_op() -> None:
    text = """
    def kernel(x):
        tl.load(x, cache_modifier=".cg", eviction_policy="evict_last", volatile=True)
    """
    module = build(kernel_from(text), {"x": "*fp32"})
    load = next(op for op in module.walk() if isinstance(op, Load))
    assert (load.cache, load.evict, load.volatile) == ("cg", "evict_last", True)


def test_volatile_load_of_one_element_under_a_mask() -> None:
    """Its value is not used; what follows it is still in its place."""
    text = """
    def kernel(x, y, n):
        one = tl.arange(0, 1)
        tl.load(x + one, mask=one < n, other=7, volatile=True)
        tl.store(y, n)
    """
    y = np.zeros(1, np.int32)
    run_everywhere(text, np.zeros(1, np.int32), y, 3)
    assert y.tolist() == [3]


def test_cache_hints_have_every_spelling() -> None:
    text = """
    def kernel(x):
        tl.load(x, None, None, (), "", "ca", "evict_normal", False)
        tl.load(x, cache_modifier=".cv")
        tl.load(x, eviction_policy="evict_first")
        tl.store(x, 1.0, None, (), ".wt", "evict_last")
        x.store(1.0, cache_modifier="wb")
    """
    module = build(kernel_from(text), {"x": "*fp32"})
    loads = [(op.cache, op.evict, op.volatile) for op in module.walk() if isinstance(op, Load)]
    assert loads == [("ca", "", False), ("cv", "", True), ("", "evict_first", False)]
    stores = [(op.cache, op.evict) for op in module.walk() if isinstance(op, Store)]
    assert stores == [("wt", "evict_last"), ("wb", "")]


REJECTED = [
    ("tl.load(n)", "Unsupported ptr type int32 in `tl.load`"),
    ("tl.load(3)", "Unsupported ptr type 3 in `tl.load`"),
    ("tl.store(n, 1)", "Unsupported ptr type int32 in `tl.store`"),
    ("tl.load(x, other=1.0)", "`other` cannot be provided without `mask`"),
    ("tl.load(x + i, mask=i)", "Mask must have boolean scalar type"),
    ("tl.store(x + i, 1.0, mask=i)", "Mask must have boolean scalar type"),
    ("tl.load(x, mask=i < 2)",
     "Mask argument cannot be block type if pointer argument is not a block"),
    ("tl.load(x, mask=n > 0, other=i)",
     "Other argument cannot be block type if pointer argument is not a block"),
    ("tl.store(x, i)", "Value argument cannot be block type if pointer argument is not a block"),
    ("tl.store(x, 1.0, i < 2)",
     "Mask argument cannot be block type if pointer argument is not a block"),
    ("tl.store(x + i, i[:, None])", "Expected pointer argument to have shape [4, 4] but got [4]"),
    ("tl.store(x + i, 1.0, i[:, None] < 2)",
     "Expected pointer argument to have shape [4, 4] but got [4]"),
    ("tl.load(x + i, mask=tl.arange(0, 8) < 3)", "Cannot make_shape_compatible: incompatible"),
    ("tl.load(x, cache_modifier='.xx')", "Unsupported cache modifier '.xx'"),
    ("tl.load(x, eviction_policy='never')", "Unsupported eviction policy 'never'"),
    ("tl.load(x, boundary_check=(0,))", "`padding_option` or `boundary_check`"),
    ("tl.load(x, padding_option='zero')", "`padding_option` or `boundary_check`"),
    ("tl.atomic_add(n, 1)", "Unsupported ptr type int32 in `tl.atomic_add`"),
    ("tl.atomic_add(x + i, 1.0, mask=i)", "Mask must have boolean scalar type"),
    ("tl.atomic_add(x, 1.0, sem='strong')", "Memory semantic strong not supported"),
    ("tl.atomic_add(x, 1.0, scope='world')", "Memory semantic world not supported"),
    ("tl.atomic_add(x, i)",
     "Value argument cannot be block type if pointer argument is not a block"),
    ("tl.atomic_cas(x, 1, 2.0)", "atomic_cas takes a cmp of type fp32, got int32"),
    ("tl.atomic_cas(x + i, 1.0, 2.0)", "atomic_cas takes a cmp of type <['4'], fp32>, got fp32"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "message"), REJECTED)
def test_memory_function_rejects(expression: str, message: str) -> None:
    text = f"def k(x, n):\n    i = tl.arange(0, 4)\n    {expression}\n"
    error = fails(text, np.ones(1, np.float32), 5)
    assert str(error.__cause__).startswith(message)
    assert str(error).startswith("at 3:4:")


@pytest.mark.parametrize("expression", ["tl.store(x, 1)", "tl.atomic_add(x, 1)", "x.store(2)"])
def test_constant_pointer_is_not_stored_through(expression: str) -> None:
    kernel = kernel_from(f"def k(x):\n    {expression}\n")
    with pytest.raises(Exception, match="Cannot store to a constant pointer"):
        build(kernel, {"x": "*ki32"})


STYLES = ["tl.const", "'tl.const'", "'const fp32*'", "'*kfp32'",
          "tl.pointer_type(tl.float32, const=True)"]  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_every_declaration_of_a_constant_pointer_counts(style: str) -> None:
    kernel = tw.jit(function_from(f"def kernel(x: {style}):\n    tl.store(x, 1)\n"))
    with pytest.raises(tw.CompilationError) as info:
        kernel[(1,)](np.ones(4, np.float32))
    assert str(info.value.__cause__) == "Cannot store to a constant pointer"


ATOMICS = [
    ("add", np.float16, True),
    ("add", np.int64, True),
    ("add", np.int16, "atomic_add does not support int16"),
    ("add", np.uint8, "atomic_add does not support uint8"),
    ("add", np.bool_, "atomic_add does not support int1"),
    ("max", np.float16, "atomic_max does not support fp16"),
    ("max", np.float64, True),
    ("xor", np.uint64, True),
    ("xor", np.uint16, "atomic_xor does not support uint16"),
    ("xchg", np.float32, True),
]


@pytest.mark.parametrize(("kind", "dtype", "outcome"), ATOMICS)
def test_atomic_exists_on_the_types_of_the_table(kind: str, dtype: Any, outcome: Any) -> None:
    text = f"def k(x):\n    tl.atomic_{kind}(x, 1)\n"
    if outcome is True:
        launch(kernel_from(text), np.ones(1, dtype))
    else:
        assert str(fails(text, np.ones(1, dtype)).__cause__) == outcome


def test_atomics_return_the_previous_value() -> None:
    x, old = np.array([5, 6, 7, 8], np.int32), np.zeros(4, np.int32)
    run_everywhere(
        """
    def kernel(x, old):
        i = tl.arange(0, 4)
        tl.store(old + i, tl.atomic_add(x + i, i, mask=i < 3, sem="relaxed", scope="cta"))
        tl.atomic_max(x, 100)
        x.atomic_xchg(3)
        tl.atomic_cas(x + 1, 7, 70)
    """,
        x,
        old,
    )
    np.testing.assert_array_equal(old, [5, 6, 7, 0])
    np.testing.assert_array_equal(x, [3, 70, 9, 8])


def test_programs_add_up_atomically() -> None:
    x = np.zeros(1, np.float32)
    run_everywhere("def kernel(x):\n    tl.atomic_add(x, 1.0)\n", x, grid=(5, 2))
    assert x[0] == 10
    assert tl.atomic_add.__name__ == "atomic_add"


def test_pointers_are_true_unless_they_are_null() -> None:
    text = """
    def kernel(x, out, n):
        null = tl.cast(0, tl.int64).to(tl.pointer_type(tl.int32))
        if not null:
            tl.store(out, 1)
        if not x:
            tl.store(out + 1, 1)
        if x and n > 0:
            tl.store(out + 2, 1)
        i = tl.arange(0, 4)
        tl.store(out + 4 + i, (not (x + i)).to(tl.int32) + 2)
    """
    out = np.zeros(8, np.int32)
    run_everywhere(text, np.zeros(4, np.int32), out, 3)
    assert out.tolist() == [1, 0, 1, 0, 2, 2, 2, 2]
