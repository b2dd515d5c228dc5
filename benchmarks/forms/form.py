"""A form: one kernel in a form that people publish, with the launch that they give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.gpu.case import Setting

Launch = Callable[[Any], Any]


@dataclass(frozen=True)
class Prepared:
    """The inputs of a form, and its launch.

    Attributes:
        launch: launches the kernel of a loaded file, `kernels/<file>.py`; returns what the launch
            returns.
        outputs: the tensors that it writes.
        tolerance: the largest difference between the results of two compilers, as a part of the
            norm of the result. Additions in another order, and functions within their error
            bounds, may differ.
        reset: prepares a launch whose results are compared: the kernel adds to its outputs, or
            works in place.
    """

    launch: Launch
    outputs: Sequence[torch.Tensor]
    tolerance: float = 2e-3
    reset: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Form:
    """A kernel and its launch parameters, which are the same under all compilers.

    Attributes:
        name: unique; `--only` selects by parts of it.
        file: the file in `kernels/`, without suffix.
        prepare: allocates the inputs.
    """

    name: str
    file: str
    prepare: Callable[[Setting], Prepared]


Prepare = Callable[[Setting], Prepared]


class Forms:
    """The forms of one file of kernels, declared by a decorator.

    forms = Forms("training")

    @forms.form("packed SwiGLU 8192x4096")
    def packed(setting: Setting) -> Prepared: ...
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.all: dict[str, Form] = {}

    def form(self, name: str) -> Callable[[Prepare], Prepare]:
        def declare(prepare: Prepare) -> Prepare:
            self.add(name, prepare)
            return prepare

        return declare

    def add(self, name: str, prepare: Prepare) -> None:
        assert name not in self.all, name
        self.all[name] = Form(name, self.file, prepare)


def union(*groups: Forms) -> Mapping[str, Form]:
    """All forms by name."""
    found: dict[str, Form] = {}
    for group in groups:
        assert not found.keys() & group.all.keys()
        found.update(group.all)
    return found
