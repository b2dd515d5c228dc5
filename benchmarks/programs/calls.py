"""Files of calls: what a program runs, as functions.

A file of calls is a Python module with

    CALLS: dict[str, Callable[[], Callable[[], Any]]]

by name. Each value creates its inputs, on the current device and from a fixed seed, and returns the
function that is timed: without arguments, with a tensor or a nested list, tuple or dictionary of
tensors as its result. For example:

    def softmax():
        x = torch.randn(4096, 8192, device="cuda")
        return lambda: library.softmax(x)

    CALLS = {"softmax": softmax}
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

Made = Callable[[], Any]


def load(file: Path) -> dict[str, Callable[[], Made]]:
    """The calls of a file, which may import its neighbours; ValueError if it is not one."""
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not isinstance(calls := getattr(module, "CALLS", None), Mapping):
        raise ValueError(f"{file}: no dictionary CALLS")
    return dict(calls)


def tensors(result: Any) -> Iterator[torch.Tensor]:
    """The tensors in a result, in order."""
    if isinstance(result, torch.Tensor):
        yield result.detach()
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from tensors(value)
    elif isinstance(result, list | tuple):
        for value in result:
            yield from tensors(value)
