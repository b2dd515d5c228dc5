"""Backward launches of liger-kernel, compiled by Triton, if both are installed and there is a GPU.

Each function returns launches by configuration, of which there is one at most.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

Run = Callable[[], object]
RIVAL = "liger-kernel, Triton"  # the name of their configuration


def _module(name: str) -> Any:
    """The module of an operator, or None."""
    found = torch.cuda.is_available() and find_spec("triton") and find_spec("liger_kernel")
    return import_module(f"liger_kernel.ops.{name}") if found else None


def _named(run: Run) -> dict[str, Run]:
    return {RIVAL: run}


def swiglu(dy: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> dict[str, Run]:
    """It overwrites its inputs."""
    liger = _module("swiglu")
    return _named(partial(liger.swiglu_backward, a.clone(), b.clone(), dy)) if liger else {}


def softmax(dy: torch.Tensor, y: torch.Tensor) -> dict[str, Run]:
    liger = _module("softmax")
    if not liger:
        return {}
    block, warps = liger.calculate_settings(y.shape[1])
    return _named(partial(liger._softmax_backward, dy, y, block, warps, False))


def rms_norm(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, rstd: torch.Tensor
) -> dict[str, Run]:
    """It overwrites the gradient of the result."""
    liger = _module("rms_norm")
    if not liger:
        return {}
    block, warps = liger.calculate_settings(x.shape[1])
    how = {"in_place": True, "row_mode": None}
    casts = liger._CASTING_MODE_LLAMA.value
    backward = liger.rms_norm_backward
    return _named(partial(backward, dy.clone(), x, w, rstd, 0.0, casts, block, warps, **how))


def layer_norm(dy: torch.Tensor, *saved: torch.Tensor) -> dict[str, Run]:
    """`saved`: x, weight, bias, mean, reciprocal standard deviation."""
    liger = _module("layer_norm")
    return _named(partial(liger.layer_norm_backward, dy, *saved)) if liger else {}
