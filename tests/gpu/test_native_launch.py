"""Native launches on a real GPU: torch's tensors, streams, graphs and devices.

`tests/runtime/test_native_cuda.py` looks at the same without a GPU.
"""

from typing import Any

import pytest
import torch

import tilewright.language as tl
from tilewright.runtime.jit import JITFunction, jit

pytestmark = pytest.mark.gpu

N = 1000


def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (-(-meta["n"] // meta["BLOCK"]),)


def vectors(where: str = "cuda") -> tuple[Any, Any, Any]:
    x, y = torch.randn(N, device=where), torch.randn(N, device=where)
    return x, y, torch.zeros(N, device=where)


def ready(monkeypatch: pytest.MonkeyPatch, *devices: str) -> JITFunction:
    """The kernel, after a launch on each device; from then on a launch by Python is a failure."""
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("needs a torch that describes its tensors by DLPack's C functions")
    kernel = jit(add)
    for device in devices or ("cuda",):
        for _ in range(2):  # the first finds torch
            with torch.cuda.device(device):
                kernel[grid](*vectors(device), N, BLOCK=128)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("launched by Python")

    monkeypatch.setattr(JITFunction, "run", refuse)
    return kernel


@pytest.mark.parametrize("chosen", [grid, (8,)])
def test_torch_tensors(monkeypatch: pytest.MonkeyPatch, chosen: Any) -> None:
    kernel = ready(monkeypatch)
    x, y, out = vectors()
    for _ in range(3):
        out.zero_()
        kernel[chosen](x, y, out, N, BLOCK=128)
        assert torch.equal(out, x + y)


def test_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ready(monkeypatch)
    for _ in range(8):
        x, y, out = vectors()
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x.mul_(2)
            kernel[grid](x, y, out, N, BLOCK=128)
            total = out.sum()
        stream.synchronize()
        assert torch.equal(out, x + y)
        assert torch.equal(total, out.sum())


def test_graph_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ready(monkeypatch)
    x, y, out = vectors()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[grid](x, y, out, N, BLOCK=128)
    assert not out.any()
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + y)


def test_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    kernel = ready(monkeypatch, "cuda:0", "cuda:1")
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        x, y, out = vectors(device)
        with torch.cuda.device(device):
            kernel[grid](x, y, out, N, BLOCK=128)
        assert torch.equal(out, x + y)
