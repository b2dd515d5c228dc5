"""Derived kernels on a GPU: gradients are those of torch's autograd, or of the interpreter.

pytest tests/gpu/test_derivatives.py -n0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from benchmarks.gradients.kernels import cross_entropy
from tests.autodiff.cases import NAMES, OVERLAPPING, case
from tests.autodiff.harness import copied, forward_module, run_forward, vjp
from tests.autodiff.recurrences import LOOPS, interpreted
from tests.frontend.kernels import function_from
from tilewright.runtime.gradients import Gradient

pytestmark = pytest.mark.gpu


@tw.jit
def layer_norm(x_ptr, w_ptr, b_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + row * stride + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / n
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n + 1e-5)
    w = tl.load(w_ptr + at, mask=inside).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside).to(tl.float32)
    y = centred * scale * w + b
    tl.store(y_ptr + row * stride + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@dataclass
class OnGpu:
    """A kernel of `cases`, its arguments on the GPU, and what its gradient is launched with."""

    kernel: Any
    backward: Gradient
    grid: tuple[int, ...]
    args: dict[str, Any]
    constexprs: dict[str, Any]
    grads: dict[str, torch.Tensor]
    wrt: tuple[str, ...]

    def gradients(self, into: dict[str, torch.Tensor]) -> None:
        launch = self.backward[self.grid]
        launch(**self.args, **self.constexprs, grads=self.grads, into=into)

    def new(self) -> dict[str, torch.Tensor]:
        """Arrays for the gradients, whose elements are NaN."""
        return {name: torch.full_like(self.args[name], torch.nan) for name in self.wrt}


def on_gpu(name: str) -> tuple[OnGpu, dict[str, Any]]:
    """A kernel of `cases` that has run, and its gradients by the interpreter."""
    text, grid, args, wrt, outputs, constexprs = case(name)
    module = forward_module(text, args, constexprs)
    run_forward(module, grid, args)
    rng = np.random.default_rng(0)
    cotangents = {n: rng.standard_normal(args[n].shape) for n in outputs}
    expected = vjp(module, grid, copied(args), cotangents, wrt)
    given = {
        k: torch.from_numpy(v).cuda() if isinstance(v, np.ndarray) else v for k, v in args.items()
    }
    grads = {k: torch.from_numpy(v).cuda() for k, v in cotangents.items()}
    tables = tuple(name for name in args if name.startswith("starts"))
    kernel = tw.jit(function_from(text))
    backward = tw.grad(kernel, deterministic=True, tables=tables)
    extents = grid if isinstance(grid, tuple) else (grid,)
    return OnGpu(kernel, backward, extents, given, constexprs, grads, wrt), expected


@pytest.mark.parametrize("name", [*NAMES, OVERLAPPING])
def test_gradients_equal_those_of_the_interpreter_twice(name: str) -> None:
    """The second launch, which native code repeats, has the same bits."""
    found, expected = on_gpu(name)
    once, again = found.new(), found.new()
    found.gradients(once)
    found.gradients(again)
    for key, value in expected.items():
        np.testing.assert_allclose(once[key].cpu().numpy(), value, rtol=1e-9, atol=1e-12)
        assert torch.equal(once[key], again[key])


@pytest.mark.parametrize("name", LOOPS)
def test_states_that_loops_carry_have_the_gradients_of_the_interpreter(name: str) -> None:
    text, args, cotangents, expected = interpreted(name)
    given = {
        k: torch.from_numpy(v).cuda() if isinstance(v, np.ndarray) else v for k, v in args.items()
    }
    grads = {"y_ptr": torch.from_numpy(cotangents["y_ptr"]).cuda()}
    into = {key: torch.full_like(given[key], torch.nan) for key in expected}
    backward = tw.grad(tw.jit(function_from(text)))
    for _ in range(2):
        backward[(2,)](**given, grads=grads, into=into)
        for key, value in expected.items():
            np.testing.assert_allclose(into[key].cpu().numpy(), value, rtol=1e-9, atol=1e-12)
            into[key].fill_(torch.nan)


@pytest.mark.parametrize("name", [name for name in NAMES if "variable" not in name])
def test_a_graph_of_cuda_repeats_a_kernel_and_its_gradient(name: str) -> None:
    """Replayed for other inputs, a graph has the gradients of launches."""
    found, _ = on_gpu(name)
    into, expected = found.new(), found.new()

    def step(target: dict[str, torch.Tensor]) -> None:
        found.kernel[found.grid](**found.args, **found.constexprs)
        found.gradients(target)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(into)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(into)
    for value in (*(found.args[n] for n in found.wrt), *found.grads.values()):
        value.mul_(0.75)
    for value in into.values():
        value.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    step(expected)
    for key in found.wrt:
        assert torch.equal(into[key], expected[key])
        assert not into[key].isnan().any()


def _normalisation() -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
    """An operator of torch for layer norm, and its inputs."""
    normalised = tw.autograd_function(
        layer_norm,
        grid=lambda a: (a["x_ptr"].shape[0],),
        outputs={"y_ptr": lambda a: torch.empty_like(a["x_ptr"])},
    )
    x = torch.randn(64, 500, device="cuda", requires_grad=True)
    w, b = (torch.randn(500, device="cuda", requires_grad=True) for _ in range(2))
    return normalised, x, w, b


def test_a_graph_of_cuda_repeats_a_step_of_training() -> None:
    """Of torch's own kind: autograd through the operator is captured, and replayed for new data."""
    normalised, x, w, b = _normalisation()

    def step() -> tuple[torch.Tensor, ...]:
        y = normalised(x, w, b, 500, 500, BLOCK=512)
        return torch.autograd.grad((y**2).sum(), (x, w, b))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
        w.mul_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    expected = torch.nn.functional.layer_norm(x, (500,), w, b)
    reference = torch.autograd.grad((expected**2).sum(), (x, w, b))
    for one, other in zip(captured, reference, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("rows", "n"), [(1, 100), (333, 1000), (8192, 4096)])
def test_layer_norm_equals_that_of_torch(rows: int, n: int, dtype: Any) -> None:
    x = torch.randn(rows, n, dtype=dtype, device="cuda")
    w, b = (torch.randn(n, dtype=dtype, device="cuda") for _ in range(2))
    y, dy = torch.empty_like(x), torch.randn_like(x)
    args = x, w, b, y, n, n
    runs: list[list[Any]] = []
    backward = tw.grad(layer_norm, deterministic=True)
    for _ in range(2):
        into = {"x_ptr": x, "w_ptr": w, "b_ptr": b}
        into = {k: torch.full_like(v, torch.nan) for k, v in into.items()}
        block = tw.next_power_of_2(n)
        backward[(rows,)](*args, BLOCK=block, grads={"y_ptr": dy}, into=into, num_warps=8)
        runs.append(list(into.values()))
    leaves = [v.double().requires_grad_() for v in (x, w, b)]
    value = torch.nn.functional.layer_norm(leaves[0], (n,), leaves[1], leaves[2])
    expected = torch.autograd.grad(value, leaves, dy.double())
    tolerance = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]
    for once, again, reference in zip(*runs, expected, strict=True):
        assert torch.equal(once, again)
        scale = float(reference.abs().max())
        torch.testing.assert_close(once.double() / scale, reference / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("warps", [1, 4, 16])
def test_picked_elements_are_added_to_rows_that_other_threads_have_stored(
    warps: int, dtype: Any
) -> None:
    rows, n = 1000, 3000
    x = torch.randn(rows, n, dtype=dtype, device="cuda")
    label = torch.randint(n, (rows,), device="cuda")
    loss, lse = (torch.empty(rows, device="cuda") for _ in range(2))
    dloss, dx = torch.randn(rows, device="cuda"), torch.full_like(x, torch.nan)
    args = x, label, loss, lse, n, n
    cross_entropy[(rows,)](*args, BLOCK=1024)
    backward = tw.grad(cross_entropy, aux=("lse_ptr",), deterministic=True)
    more = {"grads": {"loss_ptr": dloss}, "into": {"x_ptr": dx}}
    for _ in range(20):
        dx.fill_(torch.nan)
        backward[(rows,)](*args, BLOCK=1024, num_warps=warps, **more)
        leaf = x.double().requires_grad_()
        exact = torch.nn.functional.cross_entropy(leaf, label, reduction="none")
        (expected,) = torch.autograd.grad(exact, leaf, dloss.double())
        torch.testing.assert_close(dx.double(), expected, rtol=0, atol=4e-3)


def test_an_operator_of_torch_on_a_gpu() -> None:
    normalised, x, w, b = _normalisation()

    def loss(x: Any, w: Any, b: Any) -> Any:
        return (normalised(x, w, b, 500, 500, BLOCK=512) ** 2).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected = (torch.nn.functional.layer_norm(x, (500,), w, b) ** 2).sum()
    reference = torch.autograd.grad(expected, (x, w, b))
    for run in (loss, compiled):
        found = torch.autograd.grad(run(x, w, b), (x, w, b))
        for one, other in zip(found, reference, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
