"""Derivatives of calls of kernels in JAX programs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.autodiff import kernels
from tests.frontend.kernels import function_from
from tilewright.interop import jax_gradients
from tilewright.jax import call


@tw.jit
def scale_rows_kernel(x, w, y, signs, n, power, BLOCK: tl.constexpr):
    """Rows of x² w · power, and their signs; w is shared by all rows."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + row * n + i, inside)
    tl.store(y + row * n + i, v * v * tl.load(w + i, inside) * power, inside)
    tl.store(signs + row * n + i, (v > 0).to(tl.int32), inside)


def scale_rows(x: Any, w: Any) -> Any:
    rows, n = x.shape
    shapes = x, jax.ShapeDtypeStruct(x.shape, jnp.int32)
    found, signs = call(
        scale_rows_kernel, x, w, n=n, power=3.0, BLOCK=16, grid=(rows,), out_shape=shapes
    )
    return found * signs


def plain(x: Any, w: Any) -> Any:
    return 3 * x * x * w * (x > 0)


def arrays(rows: int = 9, n: int = 11) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return (
        jnp.asarray(rng.standard_normal((rows, n)), jnp.float32),
        jnp.asarray(rng.standard_normal(n), jnp.float32),
    )


def weighted(y: Any) -> Any:
    """A sum with another weight for each element, so that no two gradients are equal."""
    return (y * (1 + jnp.arange(y.size).reshape(y.shape) % 7)).sum()


def assert_close(found: Any, wanted: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, wanted)


@pytest.mark.parametrize("which", [0, 1, (0, 1)], ids=str)
def test_gradients_of_stored_and_of_shared_arrays(which: Any) -> None:
    x, w = arrays()

    def loss(f: Any) -> Any:
        return lambda x, w: weighted(f(x, w))

    for transform in (lambda f: f, jax.jit):
        found = transform(jax.grad(loss(scale_rows), which))(x, w)
        assert_close(found, jax.grad(loss(plain), which)(x, w))


def test_one_array_in_two_places_and_one_that_is_not_differentiated() -> None:
    _, w = arrays()
    square = jnp.outer(w, w)
    assert_close(
        jax.grad(lambda w: scale_rows(square, w * w).sum())(w),
        jax.grad(lambda w: plain(square, w * w).sum())(w),
    )
    assert_close(
        jax.grad(lambda w: scale_rows(jnp.outer(w, w), w).sum())(w),
        jax.grad(lambda w: plain(jnp.outer(w, w), w).sum())(w),
    )


def test_residuals_are_those_of_the_step() -> None:
    x, w = arrays()

    def layers(f: Any) -> Any:
        def loss(x: Any) -> Any:
            y, _ = jax.lax.scan(lambda c, _: (jnp.tanh(f(c, w)), None), x, None, length=3)
            return jax.checkpoint(lambda y: f(y, w))(y).sum()

        return jax.jit(jax.grad(loss))

    assert_close(layers(scale_rows)(x), layers(plain)(x))


@tw.jit
def gather_kernel(table, index, y, n, BLOCK: tl.constexpr):
    """Rows that a table of indices picks: their gradients are added atomically."""
    row = tl.load(index + tl.program_id(0))
    i = tl.arange(0, BLOCK)
    tl.store(y + tl.program_id(0) * n + i, tl.load(table + row * n + i, i < n), i < n)


def gather(table: Any, index: Any) -> Any:
    n = table.shape[1]
    shape = jax.ShapeDtypeStruct((index.size, n), table.dtype)
    return call(gather_kernel, table, index, n=n, BLOCK=16, grid=(index.size,), out_shape=shape)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_that_are_added_atomically(dtype: str) -> None:
    table = jnp.arange(33, dtype=dtype).reshape(3, 11)
    index = jnp.asarray([0, 2, 2, 0, 0], jnp.int32)
    found = jax.jit(jax.grad(lambda t: gather(t, index).astype(jnp.float32).sum()))(table)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(jnp.float32)[:, 0], [3, 0, 2])


AXES = [(0, 0), (0, None), (None, 0)]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_gradients_and_batches(axes: Any) -> None:
    x, w = arrays()
    given = [
        jnp.stack([a, 2 * a, a - 1, a + 1]) if axis == 0 else a
        for a, axis in zip((x, w), axes, strict=True)
    ]

    def inside(f: Any) -> Any:
        return jax.vmap(jax.grad(lambda x, w: weighted(f(x, w)), (0, 1)), axes)

    def outside(f: Any) -> Any:
        return jax.grad(lambda x, w: weighted(jax.vmap(f, axes)(x, w)), (0, 1))

    for build in (inside, outside):
        assert_close(build(scale_rows)(*given), build(plain)(*given))


def test_gradients_over_two_batches() -> None:
    x, w = arrays()
    xs, ws = jnp.stack([x, x + 1, x - 1]), jnp.stack([w, 2 * w])

    def build(f: Any) -> Any:
        both = jax.vmap(jax.vmap(f, (0, None)), (None, 0))
        return jax.grad(lambda x, w: weighted(both(x, w)), (0, 1))

    assert_close(build(scale_rows)(xs, ws), build(plain)(xs, ws))


@tw.autotune([tw.Config({"BLOCK": 16}), tw.Config({"BLOCK": 64})], key=["n"])
@tw.jit
def tuned_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    tl.store(y + i, v * v, i < n)


def test_gradients_of_autotuned_kernels() -> None:
    x = jnp.arange(100.0)

    def square(x: Any) -> Any:
        grid = lambda meta: (tw.cdiv(meta["n"], meta["BLOCK"]),)  # noqa: E731
        return call(tuned_kernel, x, n=x.size, grid=grid, out_shape=x)

    assert_close(jax.grad(lambda x: square(x).sum())(x), 2 * x)


def test_an_empty_array() -> None:
    x = jnp.zeros((0, 11))
    assert jax.grad(lambda x: scale_rows(x, jnp.ones(11)).sum())(x).shape == (0, 11)
    found = jax.grad(lambda w: scale_rows(x, w).sum())(jnp.ones(11))
    np.testing.assert_array_equal(found, np.zeros(11))


# -- errors ---------------------------------------------------------------------------------------


@tw.jit
def update_kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 2 * tl.load(x + i, i < n), i < n)


@tw.jit
def bits_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n).to(tl.int32, bitcast=True)
    tl.store(y + i, (v & -2).to(tl.float32, bitcast=True), i < n)


def test_errors_say_what_to_do() -> None:
    x = jnp.ones(8)
    rest: Any = {"n": 8, "BLOCK": 8, "grid": (1,), "out_shape": x}

    def update(x: Any) -> Any:
        return call(update_kernel, x, **rest, input_output_aliases={0: 0}).sum()

    with pytest.raises(NotImplementedError, match=r"update_kernel.* in place.*custom_vjp"):
        jax.grad(update)(x)
    with pytest.raises(tw.CompilationError, match="no gradient through"):
        jax.grad(lambda x: call(bits_kernel, x, **rest).sum())(x)
    square = lambda x: call(tuned_kernel.fn, x, **rest).sum()  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"tuned_kernel.* in reverse mode.*custom_jvp"):
        jax.jvp(square, (x,), (x,))
    with pytest.raises(NotImplementedError, match=r"tuned_kernel is derived.*custom_vjp"):
        jax.grad(lambda x: jax.grad(square)(x).sum())(x)
    struct = jax.ShapeDtypeStruct((8,), jnp.float32)
    with pytest.raises(NotImplementedError, match="not on tpu"):
        jax.export.export(jax.jit(jax.grad(square)), platforms=["tpu"])(struct)


def test_gradients_for_gpus_need_a_rule() -> None:
    ctx = SimpleNamespace(module_context=SimpleNamespace(platforms=["cuda"]))
    with pytest.raises(NotImplementedError, match=r"f are derived for the CPU only.*custom_vjp"):
        jax_gradients._lower_elsewhere(ctx, gradient=SimpleNamespace(name="f"))  # pyright: ignore


@tw.jit
def decaying_kernel(x, y, n, SINE: tl.constexpr, BLOCK: tl.constexpr):
    """What it carries is needed on the way back if it takes the sine of it."""
    i = tl.arange(0, BLOCK)
    h = tl.zeros([BLOCK], tl.float32)
    for t in range(n):
        h = h * 0.5 + tl.load(x + t * BLOCK + i)
        if SINE:
            h = tl.sin(h)
    tl.store(y + i, h)


def decayed(x: Any, sine: bool = True) -> Any:
    shape = jax.ShapeDtypeStruct((x.shape[1],), x.dtype)
    return call(
        decaying_kernel, x, n=x.shape[0], SINE=sine, BLOCK=x.shape[1], grid=(1,), out_shape=shape
    )


def plain_decayed(x: Any) -> Any:
    h = jnp.zeros(x.shape[1], x.dtype)
    for t in range(x.shape[0]):
        h = jnp.sin(h * 0.5 + x[t])
    return h


def test_loops_that_need_no_tape() -> None:
    found = jax.grad(lambda x: decayed(x, False).sum())(jnp.ones((3, 8), jnp.float32))
    np.testing.assert_allclose(found, np.repeat([[0.25], [0.5], [1.0]], 8, 1))


@pytest.mark.parametrize("jit", [False, True])
def test_loops_with_a_tape(jit: bool) -> None:
    """The memory of the tape is a result that nothing uses."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 8)), jnp.float32)
    gradient = jax.grad(lambda x: weighted(decayed(x)))
    found = (jax.jit(gradient) if jit else gradient)(x)
    assert_close(found, jax.grad(lambda x: weighted(plain_decayed(x)))(x))
    assert len(jax.make_jaxpr(gradient)(x).out_avals) == 1


def test_batches_of_loops_with_a_tape() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4, 5, 8)), jnp.float32)
    for levels in (1, 2):
        given = x[0] if levels == 1 else x

        def total(f: Any, x: Any, levels: int = levels) -> Any:
            for _ in range(levels):
                f = jax.vmap(f)
            return weighted(f(x))

        found = jax.jit(jax.grad(lambda x, t=total: t(decayed, x)))(given)
        assert_close(found, jax.grad(lambda x, t=total: t(plain_decayed, x))(given))


@tw.jit
def doubled_kernel(x, w, y, flags, limit, BLOCK: tl.constexpr):
    """A number of iterations that depends on the data, with an integer and a bool as states."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    h = tl.load(x + row * BLOCK + i)
    weight = tl.load(w + i)
    turn, odd = 0, True
    while tl.sum(tl.abs(h)) < limit:
        h = tl.where(odd, h * weight + h, h * 1.5 + turn)
        turn += 1
        odd = not odd
    tl.store(y + row * BLOCK + i, h)
    tl.store(flags + row, turn)


def doubled(x: Any, w: Any) -> tuple[Any, Any]:
    shapes = jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[:1], jnp.int32)
    return call(doubled_kernel, x, w, limit=50.0, BLOCK=8, grid=x.shape[:1], out_shape=shapes)


def plain_doubled(x: Any, w: Any, turns: Any) -> Any:
    rows: list[Any] = []
    for row, count in zip(x, turns, strict=True):
        h = row
        for turn in range(int(count)):
            h = h * 1.5 + turn if turn % 2 else h * w + h
        rows.append(h)
    return jnp.stack(rows)


def test_a_while_with_a_tape_of_integers_and_of_weights_that_rows_share() -> None:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.uniform(0.5, 1, (6, 8)) * np.array([[1], [2], [3], [1], [2], [5]]))
    x, w = x.astype(jnp.float32), jnp.asarray(rng.uniform(0.5, 1, 8), jnp.float32)
    _, turns = doubled(x, w)
    assert len(set(turns.tolist())) > 1
    found = jax.grad(lambda x, w: weighted(doubled(x, w)[0]), (0, 1))(x, w)
    expected = jax.grad(lambda x, w: weighted(plain_doubled(x, w, turns)), (0, 1))(x, w)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, expected)


@tw.jit
def product_kernel(a, b, c, m, n, k, BLOCK: tl.constexpr):
    """sin(a @ b): its gradients need what the kernel on the forward grid saves."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, k, BLOCK):
        at = start + tl.arange(0, BLOCK)
        left, right = (i < m)[:, None] & (at < k)[None, :], (at < k)[:, None] & (j < n)[None, :]
        x = tl.load(a + i[:, None] * k + at[None, :], mask=left, other=0.0)
        y = tl.load(b + at[:, None] * n + j[None, :], mask=right, other=0.0)
        total = tl.dot(x, y, total)
    inside = (i < m)[:, None] & (j < n)[None, :]
    tl.store(c + i[:, None] * n + j[None, :], tl.sin(total), mask=inside)


def product(a: Any, b: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    shape = jax.ShapeDtypeStruct((m, n), a.dtype)
    grid = tw.cdiv(m, 16), tw.cdiv(n, 16)
    return call(product_kernel, a, b, m=m, n=n, k=k, BLOCK=16, grid=grid, out_shape=shape)


def test_several_kernels_of_a_product() -> None:
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((40, 37), (37, 35)))

    def plain_product(a: Any, b: Any) -> Any:
        return jnp.sin(a @ b)

    found = jax.jit(jax.grad(lambda a, b: weighted(product(a, b)), (0, 1)))(a, b)
    expected = jax.grad(lambda a, b: weighted(plain_product(a, b)), (0, 1))(a, b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-3), found, expected)
    # A batch of one of them; the gradient of the other is a sum over it.
    many = jnp.stack([a, a * 0.5, a + 1])
    for axes, given in (((0, None), (many, b)), ((0, 0), (many, jnp.stack([b, b * 2, b - 1])))):

        def total(f: Any, a: Any, b: Any, axes: Any = axes) -> Any:
            return weighted(jax.vmap(f, axes)(a, b))

        found = jax.grad(lambda a, b, t=total: t(product, a, b), (0, 1))(*given)
        expected = jax.grad(lambda a, b, t=total: t(plain_product, a, b), (0, 1))(*given)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-2), found, expected)


ATTENTION = {
    "full": kernels.FULL_ATTENTION,
    "causal": kernels.CAUSAL_ATTENTION,
    "window": kernels.WINDOWED_ATTENTION,
}


@pytest.mark.parametrize("name", ATTENTION)
def test_several_kernels_of_attention(name: str) -> None:
    """With tables of bounds, and gradients to which two kernels add."""
    text = ATTENTION[name].replace("float64", "float32")
    kernel = tw.jit(function_from(text))

    def attention(q: Any, k: Any, v: Any) -> Any:
        heads, n, d = q.shape
        shapes = q, jax.ShapeDtypeStruct((heads, n), q.dtype)
        return call(
            kernel, q, k, v, n=n, M=8, N=4, D=d, grid=(tw.cdiv(n, 8), heads), out_shape=shapes
        )[0]

    def plain_attention(q: Any, k: Any, v: Any) -> Any:
        scores, at = q @ k.swapaxes(1, 2) * 0.3, np.arange(q.shape[1])
        if name != "full":
            scores = jnp.where(at[None, :] <= at[:, None], scores, -jnp.inf)
        if name == "window":
            first = np.maximum(at // 8 * 8 - 8, 0) // 4 * 4  # of the loop over keys
            scores = jnp.where(at[None, :] >= first[:, None], scores, -jnp.inf)
        return jax.nn.softmax(scores, -1) @ v

    rng = np.random.default_rng(0)
    given = [jnp.asarray(rng.standard_normal((2, 22, 8)), jnp.float32) for _ in range(3)]
    found = jax.grad(lambda *a: weighted(attention(*a)), (0, 1, 2))(*given)
    expected = jax.grad(lambda *a: weighted(plain_attention(*a)), (0, 1, 2))(*given)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-3), found, expected)
