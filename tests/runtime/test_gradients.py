"""`grad` and `jvp`: launches on the CPU and in the interpreter, compared with torch."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime import derivation
from tilewright.runtime.jit import InterpretedFunction

torch = pytest.importorskip("torch")


def gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=at < n)


def softmax(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * stride + at, e / tl.sum(e, 0), mask=at < n)


def scaled_rows(x_ptr, w_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n)
    w = tl.load(w_ptr + at, mask=at < n)
    tl.store(y_ptr + row * stride + at, x * w, mask=at < n)


def planes(x_ptr, w_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    w = tl.load(w_ptr + at)
    tl.store(y_ptr + place * BLOCK + at, tl.load(x_ptr + place * BLOCK + at) * w)


def gathered_rows(x_ptr, i_ptr, w_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + tl.load(i_ptr + row) * BLOCK + at)
    tl.store(y_ptr + row * BLOCK + at, tl.load(x_ptr + row * BLOCK + at) * w)


def looped_rms_norm(x_ptr, w_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0)
        total += x * x
    scale = tl.rsqrt(tl.sum(total, 0) / n + 1e-5)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n)
        w = tl.load(w_ptr + at, mask=at < n)
        tl.store(y_ptr + row * stride + at, x * scale * w, mask=at < n)


def strided_weights(x_ptr, w_ptr, y_ptr, step, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = tl.program_id(0) * BLOCK + at
    tl.store(y_ptr + place, tl.load(x_ptr + place) * tl.load(w_ptr + at * step))


def square_in_place(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x * x, mask=at < n)


def shifted(x_ptr, y_ptr, n, step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * step + tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.load(x_ptr + at) * 2)


def swish(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, (x * tl.sigmoid(x)).to(y_ptr.dtype.element_ty), mask=at < n)


KINDS = pytest.mark.parametrize("jit", [tw.jit, InterpretedFunction], ids=["cpu", "interpreter"])


@KINDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu_agrees_with_torch(jit: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = torch.randn(1000, dtype=kind, requires_grad=True)
    y, dy, dx = torch.empty_like(x), torch.randn_like(x), torch.full_like(x, torch.nan)
    kernel = jit(gelu)
    grid = (8,)
    kernel[grid](x.detach(), y.detach(), 1000, BLOCK=128)
    bwd = tw.grad(kernel)
    bwd[grid](x.detach(), y.detach(), 1000, BLOCK=128, grads={"y_ptr": dy}, into={"x_ptr": dx})
    expected = torch.autograd.grad(torch.nn.functional.gelu(x.double()), x, dy.double())[0]
    tolerance = {"float32": 1e-6, "float64": 1e-13}[dtype]
    torch.testing.assert_close(dx, expected.to(kind), rtol=tolerance, atol=tolerance)
    assert "x_ptr: stored" in bwd.explain()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gradients", [None, torch.float32])
def test_narrow_types(dtype: Any, gradients: Any) -> None:
    """Computed in fp32 and rounded once; into an array of fp32 not at all."""
    x = torch.randn(100, dtype=dtype)
    dy, dx = torch.randn(100, dtype=dtype), torch.empty(100, dtype=gradients or dtype)
    bwd = tw.grad(tw.jit(swish))
    bwd[(7,)](x, torch.empty_like(x), 100, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx})
    leaf = x.float().requires_grad_()
    (expected,) = torch.autograd.grad(torch.nn.functional.silu(leaf), leaf, dy.float())
    tolerance = 1e-5 if gradients else 1e-2
    torch.testing.assert_close(dx.float(), expected, rtol=tolerance, atol=tolerance)


@KINDS
def test_softmax_agrees_with_torch(jit: Any) -> None:
    x = torch.randn(7, 100, dtype=torch.float64, requires_grad=True)
    y = torch.softmax(x, 1)
    dy, dx = torch.randn_like(x), torch.empty_like(x)
    bwd = tw.grad(jit(softmax), wrt=("x_ptr",), outputs=("y_ptr",), deterministic=True)
    args = x.detach(), y.detach(), 100, 100
    bwd[(7,)](*args, BLOCK=128, grads={"y_ptr": dy}, into={"x_ptr": dx})
    torch.testing.assert_close(dx, torch.autograd.grad(y, x, dy)[0])


@pytest.mark.parametrize("rows", [1, 5, 700])
def test_shared_weights_are_accumulated_by_workers(rows: int) -> None:
    x, w = torch.randn(rows, 60), torch.randn(60)
    y, dy = torch.empty(rows, 60), torch.randn(rows, 60)
    dx, dw = torch.full((rows, 60), torch.nan), torch.full((60,), torch.nan)
    bwd = tw.grad(tw.jit(scaled_rows), deterministic=True)
    args = x, w, y, 60, 60
    bwd[(rows,)](*args, BLOCK=64, grads={"y_ptr": dy}, into={"x_ptr": dx, "w_ptr": dw})
    torch.testing.assert_close(dx, dy * w)
    torch.testing.assert_close(dw, (dy * x).sum(0), rtol=1e-4, atol=1e-4)
    how = "accumulated by workers" if rows > 1 else "stored"
    assert f"w_ptr: {how}" in bwd.explain()
    bwd[(rows,)](*args, BLOCK=64, grads={"y_ptr": dy}, into={"w_ptr": dw}, accumulate=True)
    torch.testing.assert_close(dw, 2 * (dy * x).sum(0), rtol=1e-4, atol=1e-4)


def test_partial_sums_of_narrow_weights_are_fp32() -> None:
    x, dy = torch.randn(700, 60, dtype=torch.float16), torch.randn(700, 60, dtype=torch.float16)
    w, y = torch.randn(60, dtype=torch.float16), torch.empty(700, 60, dtype=torch.float16)
    dw = torch.empty(60, dtype=torch.float16)
    tw.grad(tw.jit(scaled_rows))[(700,)](
        x, w, y, 60, 60, BLOCK=64, grads={"y_ptr": dy}, into={"w_ptr": dw}
    )
    expected = (dy.double() * x.double()).sum(0)
    torch.testing.assert_close(dw.double(), expected, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize(
    ("element", "of_gradient"), [(torch.float64, torch.float32), (torch.float32, torch.float64)]
)
def test_partial_sums_have_the_type_of_what_is_accumulated(
    rows: int, element: Any, of_gradient: Any
) -> None:
    x, dy = torch.randn(rows, 60, dtype=element), torch.randn(rows, 60, dtype=element)
    w, y = torch.randn(60, dtype=element), torch.empty(rows, 60, dtype=element)
    dw = torch.full((60,), torch.nan, dtype=of_gradient)
    bwd = tw.grad(tw.jit(scaled_rows))
    for _ in range(3):  # the last one in native code
        bwd[(rows,)](x, w, y, 60, 60, BLOCK=64, grads={"y_ptr": dy}, into={"w_ptr": dw})
    expected = (dy.double() * x.double()).sum(0)
    torch.testing.assert_close(dw.double(), expected, rtol=1e-4, atol=1e-4)


def test_workers_go_over_two_axes() -> None:
    x = np.random.default_rng(0).standard_normal((3, 5, 8))
    w, dw = np.full(8, 2.0), np.full(8, np.nan)
    y, dy, dx = np.zeros_like(x), np.ones_like(x), np.full_like(x, np.nan)
    bwd = tw.grad(tw.jit(planes))
    bwd[(5, 3)](x, w, y, BLOCK=8, grads={"y_ptr": dy}, into={"x_ptr": dx, "w_ptr": dw})
    np.testing.assert_allclose(dw, x.sum((0, 1)))
    np.testing.assert_allclose(dx, np.full_like(x, 2.0))
    assert "along axis 0, 1" in bwd.explain()


def test_a_row_in_several_loops() -> None:
    """Each row is loaded twice by its program, and the weights by all, in a loop: no atomics."""
    x, w, dy = torch.randn(300, 1000), torch.randn(1000), torch.randn(300, 1000)
    y, dx, dw = torch.empty_like(x), torch.full_like(x, torch.nan), torch.full_like(w, torch.nan)
    bwd = tw.grad(tw.jit(looped_rms_norm), deterministic=True)
    args = x, w, y, 1000, 1000
    further: dict[str, Any] = {"grads": {"y_ptr": dy}, "into": {"x_ptr": dx, "w_ptr": dw}}
    bwd[(300,)](*args, BLOCK=128, **further)
    leaves = x.double().requires_grad_(), w.double().requires_grad_()
    value = torch.nn.functional.rms_norm(leaves[0], (1000,), leaves[1], 1e-5)
    expected = torch.autograd.grad(value, leaves, dy.double())
    torch.testing.assert_close(dx.double(), expected[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(dw.double(), expected[1], rtol=1e-4, atol=1e-4)
    assert "x_ptr: accumulated in memory by the only program that loads" in bwd.explain()
    assert "w_ptr: stored by each program along axis 0 in its own row, then summed" in (
        bwd.explain()
    )
    bwd[(300,)](*args, BLOCK=128, accumulate=True, **further)
    torch.testing.assert_close(dx.double(), 2 * expected[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(dw.double(), 2 * expected[1], rtol=1e-4, atol=1e-4)


def test_elements_that_no_program_loads_have_no_gradient() -> None:
    """Also of shared arrays: the buffers of workers do not hold what was there before."""
    x, y, dy = torch.randn(40, 16), torch.empty(40, 16), torch.randn(40, 16)
    w, dw = torch.randn(100), torch.full((100,), torch.nan)
    bwd = tw.grad(tw.jit(scaled_rows))
    dx = torch.full((40, 16), torch.nan)
    bwd[(40,)](x, w, y, 10, 16, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx, "w_ptr": dw})
    expected = torch.zeros(100)
    expected[:10] = (dy * x).sum(0)[:10]
    torch.testing.assert_close(dw, expected, rtol=1e-4, atol=1e-4)
    assert (dx[:, 10:] == 0).all()


def test_the_proof_is_of_the_launch() -> None:
    """The same kernel with other numbers: programs that have elements in common, and not."""
    x, y, dy = torch.randn(64), torch.empty(64), torch.randn(64)
    bwd = tw.grad(tw.jit(shifted))
    for step in (16, 8):
        dx = torch.full((64,), torch.nan)
        bwd[(4,)](x, y, 64, step, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx})
        expected = torch.zeros(64)
        for program in range(4):
            expected[program * step :][:16] += 2 * dy[program * 16 :][:16]
        torch.testing.assert_close(dx, expected)
    assert "x_ptr: stored" in bwd.explain()
    assert "x_ptr: accumulated by workers" in bwd.explain()


def test_a_known_launch_derives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, dy, dx = (torch.randn(64) for _ in range(4))
    bwd = tw.grad(tw.jit(gelu))
    further = {"grads": {"y_ptr": dy}, "into": {"x_ptr": dx}}
    bwd[(4,)](x, y, 64, BLOCK=16, **further)
    bwd[(4,)](x, y, 64, BLOCK=16, **further)
    assert len(bwd.kernels) == 1
    bwd[(4,)](x, y, 63, BLOCK=16, **further)
    assert len(bwd.kernels) == 2


def test_threads_that_need_the_same_derivation_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    derive, begun = derivation.derive, []

    def recorded(*args: Any) -> Any:
        begun.append(args)
        time.sleep(0.05)  # the others come meanwhile
        return derive(*args)

    monkeypatch.setattr(derivation, "derive", recorded)
    x, y, dy = (torch.randn(64) for _ in range(3))
    bwd = tw.grad(tw.jit(gelu))
    gradients = [torch.full((64,), torch.nan) for _ in range(8)]
    barrier = threading.Barrier(len(gradients))

    def launch(dx: Any) -> None:
        barrier.wait()
        bwd[(4,)](x, y, 64, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx})

    with ThreadPoolExecutor(len(gradients)) as threads:
        list(threads.map(launch, gradients))
    assert len(begun) == 1
    assert all(torch.equal(dx, gradients[0]) for dx in gradients)
    assert not gradients[0].isnan().any()


@pytest.mark.parametrize("part", ["Proofs", "reverse_mode", "run", "compile_source"])
def test_an_interrupted_derivation_restarts(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C interrupts one."""

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    arrays = given() | {"y": torch.randn(64)}
    bwd = tw.grad(tw.jit(gelu))
    more = {"grads": {"y_ptr": arrays["dy"]}, "into": {"x_ptr": arrays["dx"]}}
    with monkeypatch.context() as patch:
        patch.setattr(derivation, part, interrupted)
        with pytest.raises(KeyboardInterrupt):
            bwd[(4,)](arrays["x"], arrays["y"], 64, BLOCK=16, **more)
    assert not bwd.kernels
    bwd[(4,)](arrays["x"], arrays["y"], 64, BLOCK=16, **more)
    x = arrays["x"].clone().requires_grad_()
    (expected,) = torch.autograd.grad(torch.nn.functional.gelu(x), x, arrays["dy"])
    torch.testing.assert_close(arrays["dx"], expected)


@KINDS
def test_tangents(jit: Any) -> None:
    x, t = torch.randn(100, dtype=torch.float64), torch.randn(100, dtype=torch.float64)
    y, ty = torch.zeros_like(x), torch.zeros_like(x)
    tw.jvp(jit(gelu))[(7,)](x, y, 100, BLOCK=16, tangents={"x_ptr": t}, into={"y_ptr": ty})
    leaf = x.clone().requires_grad_()
    expected = torch.nn.functional.gelu(leaf)
    (slope,) = torch.autograd.grad(expected.sum(), leaf)
    torch.testing.assert_close(y, expected.detach())
    torch.testing.assert_close(ty, slope * t)


def test_tangents_in_place() -> None:
    x = torch.randn(32, dtype=torch.float64)
    t, before = torch.randn_like(x), x.clone()
    expected = 2 * before * t
    both = tw.jvp(tw.jit(square_in_place))
    both[(2,)](x, 32, BLOCK=16, tangents={"x_ptr": t}, into={"x_ptr": t})
    torch.testing.assert_close(x, before * before)
    torch.testing.assert_close(t, expected)


def test_numpy_arrays() -> None:
    x = np.linspace(-1, 1, 50)
    y, dx = np.zeros(50), np.full(50, np.nan)
    tw.grad(tw.jit(gelu))[(4,)](
        x, y, 50, BLOCK=16, grads={"y_ptr": np.ones(50)}, into={"x_ptr": dx}
    )
    step = 1e-6
    erf = np.vectorize(math.erf)
    slope = [0.5 * (x + s) * (1 + erf((x + s) / np.sqrt(2))) for s in (step, -step)]
    np.testing.assert_allclose(dx, (slope[0] - slope[1]) / (2 * step), atol=1e-8)


# -- what is rejected -----------------------------------------------------------------------------


def given() -> dict[str, Any]:
    return {
        "x": torch.randn(64),
        "y": torch.empty(64),
        "dy": torch.randn(64),
        "dx": torch.empty(64),
    }


def run(kernel: Any, arrays: dict[str, Any], **options: Any) -> None:
    bwd = tw.grad(kernel, **options)
    bwd[(4,)](
        arrays["x"], arrays["y"], 64, BLOCK=16,
        grads={"y_ptr": arrays["dy"]}, into={"x_ptr": arrays["dx"]},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["dx", "dy"])
def test_a_derivative_of_another_layout_is_an_error(name: str) -> None:
    arrays = given()
    arrays[name] = torch.empty(65)
    with pytest.raises(ValueError, match=r"has shape \(65,\) and strides \(1,\)"):
        run(tw.jit(gelu), arrays)
    arrays[name] = torch.empty(128)[::2]
    with pytest.raises(ValueError, match=r"strides \(2,\).*strides \(1,\)"):
        run(tw.jit(gelu), arrays)


def test_a_derivative_of_integers_is_an_error() -> None:
    arrays = given() | {"dx": torch.empty(64, dtype=torch.int32)}
    with pytest.raises(TypeError, match="the derivative of x_ptr has elements of int32"):
        run(tw.jit(gelu), arrays)


def test_a_derivative_on_another_device_is_an_error() -> None:
    arrays = given() | {"dx": torch.empty(64, device="meta")}
    with pytest.raises(ValueError, match=r"argument `x_ptr_gradient` is a torch.Tensor .* 'meta'"):
        run(tw.jit(gelu), arrays)


@pytest.mark.parametrize(("name", "other"), [("dx", "x"), ("dx", "dy"), ("dx", "y"), ("y", "x")])
def test_shared_memory_is_an_error(name: str, other: str) -> None:
    arrays = given()
    arrays[name] = arrays[other]
    with pytest.raises(ValueError, match="shares memory with"):
        run(tw.jit(gelu), arrays)


def test_views_of_one_storage_that_are_apart_are_fine() -> None:
    whole = torch.randn(128)
    arrays = given() | {"x": whole[:64], "dx": whole[64:]}
    run(tw.jit(gelu), arrays)
    x = arrays["x"].clone().requires_grad_()
    expected = torch.autograd.grad(torch.nn.functional.gelu(x), x, arrays["dy"])[0]
    torch.testing.assert_close(arrays["dx"], expected)


def gathered(dtype: Any, **options: Any) -> tuple[Any, Any, str]:
    """Rows of a table, picked by loaded indices: its gradient, and what it should be."""
    x, dy = torch.randn(5, 8, dtype=dtype), torch.randn(5, 8, dtype=dtype)
    index = torch.tensor([1, 0, 1, 3, 1], dtype=torch.int32)
    w, dw = torch.randn(4, 8, dtype=dtype), torch.full((4, 8), torch.nan, dtype=dtype)
    bwd = tw.grad(tw.jit(gathered_rows), **options)
    args = x, index, w, torch.empty_like(x)
    bwd[(5,)](*args, BLOCK=8, grads={"y_ptr": dy}, into={"w_ptr": dw})
    expected = torch.zeros(4, 8, dtype=dtype).index_add(0, index, x * dy)
    return dw, expected, bwd.explain()


def test_gathered_rows_are_accumulated_atomically() -> None:
    found, expected, text = gathered(torch.float32)
    torch.testing.assert_close(found, expected)
    assert "w_ptr: added atomically: " in text


def test_narrow_gradients_that_are_accumulated_are_an_error() -> None:
    with pytest.raises(TypeError, match="the gradient of w_ptr is accumulated by several"):
        gathered(torch.float16)


def test_a_result_that_is_stored_twice_is_an_error() -> None:
    x, y = torch.randn(5, 60), torch.empty(60)
    with pytest.raises(tw.CompilationError, match="may be stored more than once"):
        tw.grad(tw.jit(softmax))[(5,)](
            x, y, 60, 0, BLOCK=64,
            grads={"y_ptr": torch.ones(60)}, into={"x_ptr": torch.empty(5, 60)},
        )  # fmt: skip


def test_deterministic_rejects_atomics() -> None:
    with pytest.raises(tw.CompilationError, match="requires atomic additions") as info:
        gathered(torch.float32, deterministic=True)
    assert "w = tl.load(w_ptr + tl.load(i_ptr + row) * BLOCK + at)" in str(info.value)


SCALE = 2.0


def scaled_by_a_global(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * SCALE)


def test_a_changed_global_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SCALE", tl.constexpr(2.0))
    x, y, dy, dx = (torch.ones(16) for _ in range(4))
    bwd = tw.grad(tw.jit(scaled_by_a_global))
    bwd[(1,)](x, y, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx})
    torch.testing.assert_close(dx, torch.full((16,), 2.0))
    monkeypatch.setitem(globals(), "SCALE", tl.constexpr(3.0))
    with pytest.raises(RuntimeError, match="Global variable SCALE has changed"):
        bwd[(1,)](x, y, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx})


def test_inputs_and_results_are_what_they_are_called() -> None:
    x, y, dy, dx = (torch.ones(64) for _ in range(4))
    bwd = tw.grad(tw.jit(gelu))
    with pytest.raises(ValueError, match="outputs names 'x_ptr', which the kernel does not store"):
        bwd[(4,)](x, y, 64, BLOCK=16, grads={"x_ptr": dy}, into={})
    with pytest.raises(tw.CompilationError, match="y_ptr is stored here: only arrays that are"):
        bwd[(4,)](x, y, 64, BLOCK=16, grads={}, into={"y_ptr": dx})


def test_results_that_a_launch_does_not_store_have_no_part_in_gradients() -> None:
    def kernel(x_ptr: Any, y_ptr: Any, z_ptr: Any, steps: Any) -> None:
        at = tl.arange(0, 16)
        for step in range(1, steps):
            tl.store(z_ptr + step * 16 + at, tl.load(x_ptr + at) * step)
        if steps < 2:
            tl.store(y_ptr + at, at * 1.0)

    x, y, dy, z, dz, dx = (torch.ones(size) for size in (16, 16, 16, 48, 48, 16))
    bwd = tw.grad(tw.jit(kernel))
    for steps, expected in ((1, 0.0), (3, 3.0)):
        grads = {"y_ptr": dy, "z_ptr": dz}
        bwd[(1,)](x, y, z, steps, grads=grads, into={"x_ptr": dx})
        torch.testing.assert_close(dx, torch.full((16,), expected))


def test_names_and_kernels_are_checked() -> None:
    kernel = tw.jit(gelu)
    with pytest.raises(ValueError, match="gelu has no parameter 'z'"):
        tw.grad(kernel, wrt=("z",))
    with pytest.raises(TypeError, match="is not a kernel"):
        tw.grad(gelu)
    with pytest.raises(ValueError, match="'y_ptr', which is not one of"):
        tw.grad(kernel, wrt=("x_ptr",))[(1,)](
            torch.ones(4), torch.ones(4), 4, BLOCK=4, grads={}, into={"y_ptr": torch.ones(4)}
        )
    assert "nothing has been derived yet" in tw.grad(kernel).explain()


def test_gaps_of_a_shared_array_stay_as_they_are() -> None:
    """Weights in every second element: those between them are not written."""
    x, dy = torch.randn(40, 16), torch.randn(40, 16)
    w, dw = torch.randn(32)[::2], torch.full((32,), 7.0)
    bwd = tw.grad(tw.jit(strided_weights))
    bwd[(40,)](x, w, torch.empty_like(x), 2, BLOCK=16, grads={"y_ptr": dy}, into={"w_ptr": dw[::2]})
    torch.testing.assert_close(dw[::2], (dy * x).sum(0), rtol=1e-4, atol=1e-4)
    assert (dw[1::2] == 7.0).all()


def cross_entropy(x_ptr, label_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(label_ptr + row)
    m = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n, other=-float("inf"))
        largest = tl.maximum(m, tl.max(x, 0))
        total = total * tl.exp(m - largest) + tl.sum(tl.exp(x - largest), 0)
        m = largest
    tl.store(y_ptr + row, m + tl.log(total) - tl.load(x_ptr + row * stride + label))


def test_an_element_that_is_picked_by_a_loaded_index_is_added_after_the_row() -> None:
    """Cross-entropy: the row is stored without atomics, the label's element added by one."""
    x, labels = torch.randn(5, 37), torch.tensor([3, 0, 36, 3, 17])
    y, dy, dx = torch.empty(5), torch.randn(5), torch.full((5, 37), math.nan)
    kernel = tw.jit(cross_entropy)
    args = x, labels, y, 37, 37
    backward = tw.grad(kernel)
    backward[(5,)](*args, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx})
    reference = x.clone().requires_grad_()
    torch.nn.functional.cross_entropy(reference, labels, reduction="none").backward(dy)
    assert reference.grad is not None
    torch.testing.assert_close(dx, reference.grad)
    atomics = [str(k.asm["ttir"]).count("atomic.rmw") for k in backward.kernels]
    assert atomics == [0, 1]
    assert "stored, then added atomically for line" in backward.explain()
    once = dx.clone()
    backward[(5,)](*args, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx}, accumulate=True)
    torch.testing.assert_close(dx, 2 * once)
    with pytest.raises(tw.CompilationError, match="an index is not known before the launch"):
        tw.grad(kernel, deterministic=True)[(5,)](
            *args, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx}
        )


def attention(q_ptr, k_ptr, v_ptr, o_ptr, n, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rows, dims = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    place = tl.program_id(1) * n * D + rows[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + place, mask=rows[:, None] < n, other=0.0)
    m, total = tl.full([M], -float("inf"), tl.float32), tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for start in range(0, n, N):
        columns = start + tl.arange(0, N)
        at = tl.program_id(1) * n * D + columns[:, None] * D + dims[None, :]
        k = tl.load(k_ptr + at, mask=columns[:, None] < n, other=0.0)
        v = tl.load(v_ptr + at, mask=columns[:, None] < n, other=0.0)
        s = tl.where(columns[None, :] < n, tl.dot(q, tl.trans(k)) * 0.25, -float("inf"))
        largest = tl.maximum(m, tl.max(s, 1))
        p, alpha = tl.exp(s - largest[:, None]), tl.exp(m - largest)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = largest
    tl.store(o_ptr + place, acc / total[:, None], mask=rows[:, None] < n)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)]
)
def test_attention_agrees_with_torch(dtype: Any, tolerance: float) -> None:
    q, k, v, do = (torch.randn(3, 40, 16).to(dtype) for _ in range(4))
    o = torch.empty_like(q)
    kernel, grid = tw.jit(attention), (3, 3)
    args = q, k, v, o, 40
    kernel[grid](*args, M=16, N=8, D=16)
    backward = tw.grad(kernel, deterministic=True)
    into = {name: torch.full_like(q, math.nan) for name in ("q_ptr", "k_ptr", "v_ptr")}
    for _ in range(2):  # the second launch is native
        backward[grid](*args, M=16, N=8, D=16, grads={"o_ptr": do}, into=into)
        wide = [x.double().requires_grad_() for x in (q, k, v)]
        scores = wide[0] @ wide[1].transpose(1, 2) * 0.25
        (scores.softmax(-1) @ wide[2]).backward(do.double())
        for found, reference in zip(into.values(), wide, strict=True):
            assert reference.grad is not None
            error = (found.double() - reference.grad).abs().max() / reference.grad.abs().max()
            assert error < tolerance
    assert not any("atomic" in str(k.asm["ttir"]) for k in backward.kernels)
    assert len(backward.kernels) == 2


def scaled_product(a_ptr, s_ptr, b_ptr, t_ptr, c_ptr, M: tl.constexpr, K: tl.constexpr):
    m, k = tl.arange(0, M), tl.arange(0, K)
    group = tl.arange(0, K // 32)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * M + m[None, :])
    s = tl.load(s_ptr + m[:, None] * (K // 32) + group[None, :])
    t = tl.load(t_ptr + m[:, None] * (K // 32) + group[None, :])
    c = tl.dot_scaled(a, s, "bf16", b, t, "e4m3")
    tl.store(c_ptr + m[:, None] * M + m[None, :], c)


@KINDS
def test_block_scaled_product(jit: Any) -> None:
    """It is differentiated as the ordinary product that it is expanded to."""
    m, k = 16, 64
    a = torch.randint(-4, 5, (m, k)).to(torch.bfloat16)
    b = torch.randint(-4, 5, (k, m)).to(torch.float32).to(torch.float8_e4m3fn)
    s, t = (torch.randint(126, 129, (m, k // 32), dtype=torch.uint8) for _ in range(2))
    dc = torch.randint(-4, 5, (m, m)).to(torch.float32)
    da = torch.zeros_like(a)
    bwd = tw.grad(jit(scaled_product))
    bwd[(1,)](
        a, s, b, t, torch.zeros(m, m), M=m, K=k, grads={"c_ptr": dc}, into={"a_ptr": da}
    )  # fmt: skip
    factors = [torch.exp2(x.float() - 127).repeat_interleave(32, 1) for x in (s, t)]
    expected = (dc @ (b.float() * factors[1].T).T) * factors[0]
    torch.testing.assert_close(da.float(), expected.to(torch.bfloat16).float())


def test_arrays_in_tuples_have_no_derivatives() -> None:
    @tw.jit
    def kernel(xs: Any, y_ptr: Any):
        tl.store(y_ptr, tl.load(xs[0]) * tl.load(xs[1]))

    x, y, dx = (np.ones(1) for _ in range(3))
    launch: dict[str, Any] = {"grads": {"y_ptr": x.copy()}, "into": {"xs": (dx, dx.copy())}}
    with pytest.raises(TypeError, match="xs is a tuple: arrays in tuples have no derivatives"):
        tw.grad(kernel)[(1,)]((x, x.copy()), y, **launch)
