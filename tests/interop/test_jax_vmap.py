"""`jax.vmap` of kernels: batches are one more axis of the grid."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.jax import call
from tilewright.runtime.jit import InterpretedFunction


@tw.jit
def numbers_of_this_program():
    return tl.program_id(0), tl.num_programs(0)


@tw.jit
def row_kernel(x, scale, out, extents, n, BLOCK: tl.constexpr):
    """Scale rows in two axes of the grid, and store the extents of the grid."""
    p, count = numbers_of_this_program()
    row = p * tl.num_programs(1) + tl.program_id(1)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, i < n) * tl.load(scale + i, i < n)
    tl.store(out + row * n + i, value + tl.num_programs(2), i < n)
    tl.store(extents + p, count)


def rows(x: Any, scale: Any) -> tuple[Any, Any]:
    shapes = jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((x.shape[0],), jnp.int32)
    m, k, n = x.shape
    return call(row_kernel, x, scale, n=n, BLOCK=8, grid=(m, k), out_shape=shapes)


def expected(x: Any, scale: Any) -> tuple[Any, Any]:
    return x * scale + 1, jnp.full(x.shape[0], x.shape[0], jnp.int32)


AXES = [
    ((0, 0), (0, 0)),
    ((0, None), (1, None)),
    ((None, 0), (3, None)),
    ((2, 1), (1, 0)),
    ((None, 1), (None, 1)),
    ((None, None), (0, 1)),
]


def with_axes(shape: tuple[int, ...], inner: int | None, outer: int | None) -> Any:
    """An array with an axis of 3 at `inner`, and then one of 2 at `outer`."""
    sizes = list(shape)
    for axis, size in ((inner, 3), (outer, 2)):
        if axis is not None:
            sizes.insert(axis, size)
    return jnp.arange(np.prod(sizes), dtype=jnp.float32).reshape(sizes)


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_batches_of_batches(axes: Any) -> None:
    """Batches along an axis of both arrays, of one, or of none."""
    outer, inner = axes
    x = with_axes((4, 5, 7), inner[0], outer[0])
    scale = with_axes((7,), inner[1], outer[1])

    def mapped(f: Any) -> Any:
        g = jax.vmap(f, inner)
        return g if outer == (None, None) else jax.vmap(g, outer, out_axes=1)

    found, wanted = jax.jit(mapped(rows))(x, scale), mapped(expected)(x, scale)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_three_batches() -> None:
    x, scale = with_axes((4, 5, 7), 0, 0), with_axes((7,), 0, 0)
    x = jnp.stack([x, x + 1, x * 2, x - 3])
    axes = ((0, None), (0, 0), (0, 0))

    def mapped(f: Any) -> Any:
        for pair in reversed(axes):
            f = jax.vmap(f, pair)
        return f

    jax.tree.map(np.testing.assert_array_equal, mapped(rows)(x, scale), mapped(expected)(x, scale))


@tw.jit
def add_to_kernel(total, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total + i, tl.load(total + i, i < n) + tl.load(x + i, i < n), i < n)


def add_to(total: Any, x: Any) -> Any:
    return call(
        add_to_kernel, total, x, n=x.size, BLOCK=4, grid=(tw.cdiv(x.size, 4),), out_shape=total,
        input_output_aliases={0: 0},
    )  # fmt: skip


@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None), (1, 1)], ids=str)
def test_updates_in_place(axes: tuple[Any, Any]) -> None:
    pair = [jnp.arange(33.0).reshape(3, 11) + 100 * i for i in range(2)]
    given = [a if axis is not None else a[0] for a, axis in zip(pair, axes, strict=True)]
    if axes == (1, 1):
        given = [a.T for a in given]
    before = [np.array(a) for a in given]
    found = jax.jit(jax.vmap(add_to, axes))(*given)
    np.testing.assert_array_equal(found, jax.vmap(jnp.add, axes)(*given))
    np.testing.assert_array_equal(given[0], before[0])


def test_batches_without_elements() -> None:
    assert jax.vmap(add_to)(jnp.zeros((0, 4)), jnp.zeros((0, 4))).shape == (0, 4)
    assert jax.vmap(add_to)(jnp.zeros((3, 0)), jnp.zeros((3, 0))).shape == (3, 0)


def test_elements_need_not_be_aligned() -> None:
    """Rows of 11 elements: only the first one is where an array begins."""
    x = jnp.arange(44, dtype=jnp.float16).reshape(4, 11)
    np.testing.assert_array_equal(jax.vmap(add_to)(x, x), 2 * x)


@tw.autotune([tw.Config({"BLOCK": 4}), tw.Config({"BLOCK": 16})], key=["n"])
@tw.heuristics({"AXES": lambda args: len(args["x"].shape)})
@tw.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr, AXES: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + AXES, i < n)


def test_wrappers_and_grids_see_one_element() -> None:
    x = jnp.arange(33.0).reshape(3, 11)

    def one(x: Any) -> Any:
        grid = lambda meta: (tw.cdiv(meta["x"].size, meta["BLOCK"]),)  # noqa: E731
        return call(tuned_kernel, x, n=x.size, grid=grid, out_shape=x)

    np.testing.assert_array_equal(jax.vmap(one)(x), x + 1)


@tw.jit
def printing_kernel(x, out):
    tl.device_print("value", tl.load(x))
    tl.store(out, tl.load(x) + 1)


def test_kernels_that_need_python(capfd: pytest.CaptureFixture[str]) -> None:
    x = jnp.arange(3.0)

    def one(kernel: Any) -> Any:
        return jax.vmap(lambda x: call(kernel, x, grid=(1,), out_shape=x))(x)

    np.testing.assert_array_equal(one(printing_kernel), x + 1)
    assert capfd.readouterr().out.count("value") == 3
    np.testing.assert_array_equal(one(InterpretedFunction(printing_kernel.fn)), x + 1)


def test_the_code_does_not_depend_on_the_size_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    hits: list[bool] = []
    monkeypatch.setattr(
        tw.knobs.compilation, "listener", lambda **facts: hits.append(facts["cache_hit"])
    )
    for size in (2, 3, 50):
        x = jnp.ones((size, 12))
        np.testing.assert_array_equal(jax.vmap(add_to)(x, x), np.full((size, 12), 2))
    assert hits[1:] == [True, True]


def test_too_many_programs_are_an_error() -> None:
    x = jax.ShapeDtypeStruct((1 << 20, 1), jnp.float32)

    def one(x: Any) -> Any:
        return call(
            add_to_kernel, x, x, n=1, BLOCK=4, grid=(1 << 12,), out_shape=x,
            input_output_aliases={0: 0},
        )  # fmt: skip

    with pytest.raises(ValueError, match=r"4294967296 programs .* jax.lax.map"):
        jax.jit(jax.vmap(one)).lower(x)
