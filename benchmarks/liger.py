"""The operators of liger-kernel, unchanged, on tilewright: forward and backward beside torch.

    pip install --no-deps --target SOMEWHERE liger-kernel packaging
    python -m benchmarks.liger --path SOMEWHERE                # on CPU tensors
    python -m benchmarks.liger --path SOMEWHERE --device cuda

It prints a table: for each operator whether it ran, and the largest difference from torch of a
result or gradient, as a part of the largest number in it. The exit status is 1 if one of them
fails for another reason than its own demand for CUDA.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

import tilewright
from benchmarks.liger_operators import OPERATORS, Make, Operator

TOLERANCE = 2e-5  # of the largest number: what sums of thousands of fp32 numbers differ by


def _results(function: Callable[..., Any], args: tuple[Any, ...], count: int | None) -> list[Any]:
    """The first so many results, and the gradients of a weighted sum of them."""
    out = function(*args)
    results = [x for x in (out if isinstance(out, tuple) else (out,)) if x is not None][:count]
    state = torch.Generator().manual_seed(3)
    weights = [torch.randn(x.shape, generator=state).to(x.device) for x in results]
    loss = torch.stack([(x * w).sum() for x, w in zip(results, weights, strict=True)]).sum()
    leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
    values = [x.detach().clone() for x in results]  # as a backward may overwrite what it had
    return values + list(torch.autograd.grad(loss, leaves))


def difference(operator: Operator, device: str) -> tuple[float, int]:
    """The largest difference from torch, relative to the largest number of that result; and how
    many launches of kernels it took."""
    expected = _results(operator.reference, operator.inputs(Make(device)), None)
    args = operator.inputs(Make(device))
    leaves = sum(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
    module = import_module(f"liger_kernel.ops.{operator.name}")
    if operator.pose_as and device == "cpu":
        vars(module)["infer_device"] = lambda: operator.pose_as
    apply = getattr(module, operator.function).apply
    found = _results(apply, args, len(expected) - leaves)
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.isfinite(), b.isfinite())
        scale = max(b.detach().abs().max().item(), 1e-30)
        worst = max(worst, (a.reshape(b.shape) - b).detach().abs().max().item() / scale)
    return worst, _launches(lambda: _results(apply, operator.inputs(Make(device)), None))


def _launches(call: Callable[[], Any]) -> int:
    """How many kernels of tilewright a call launches: some operators have a way in torch too."""
    seen: list[Any] = []
    hook = seen.append
    tilewright.knobs.runtime.launch_enter_hook.add(hook)
    try:
        call()
    finally:
        tilewright.knobs.runtime.launch_enter_hook.remove(hook)
    return len(seen)


def main() -> int:
    parser = argparse.ArgumentParser(description="liger-kernel on tilewright, beside torch")
    parser.add_argument("--path", help="the folder that holds liger_kernel, if not installed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", help="operators whose names hold this")
    parser.add_argument("--traceback", action="store_true", help="print what failed in full")
    args = parser.parse_args()
    if args.path:
        sys.path.append(args.path)
    tilewright.install_as_triton()
    failed = 0
    print(f"| operator | {args.device} | error |\n|---|---|---|")
    for operator in OPERATORS:
        if args.only and args.only not in operator.name:
            continue
        label = f"{operator.name}: {operator.function}"
        if operator.needs_cuda and args.device == "cpu":
            print(f"| {label} | not on the CPU | {operator.needs_cuda} |", flush=True)
            continue
        try:
            error, launches = difference(operator, args.device)
        except Exception as failure:  # whatever it is, it belongs into the table
            failed += 1
            text = f"{type(failure).__name__}: {failure}".replace("\n", " ")[:200]
            print(f"| {label} | fails | {text} |", flush=True)
            if args.traceback:
                traceback.print_exc()
            continue
        failed += error > TOLERANCE
        verdict = "differs" if error > TOLERANCE else "runs" if launches else "runs, in torch alone"
        print(f"| {label} | {verdict} | {error:.1e} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
