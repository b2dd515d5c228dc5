"""The way of a kernel from the passes to machine code enters no folder twice.

Folders that are consulted on the way, such as analyses, are not on it: only those that compile.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.compiler.build import context_for, lower
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import ASTSource
from tilewright.ir.passes import run
from tilewright.targets.nvidia.assemble import find_assembler
from tilewright.targets.registry import target as find_target

PACKAGE = Path(tw.__file__).parent
CONSULTED = ("analysis", "base", "ir", "layout", "lowering", "ops", "passes", "targets")
LONG = 200  # characters of text or bytes from which a value is a stage


@tw.jit
def kernel(x_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + i, x * tl.sum(x, 0))


def is_stage(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return len(value) > LONG
    return type(value).__name__ in ("ThreadCode", "Lowered")


class Walk:
    """The folders whose functions take the kernel in one of its forms, in order of the calls."""

    def __init__(self, *forms: Any) -> None:
        self.forms = {id(form): form for form in forms}  # kept, so that no other has its id
        self.folders: list[str] = []

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if PACKAGE not in path.parents:
            return
        if event == "return" and is_stage(value):
            self.forms[id(value)] = value
        elif event == "call":
            names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
            if any(id(frame.f_locals.get(name)) in self.forms for name in names):
                self.enter(str(path.parent.relative_to(PACKAGE)))

    def enter(self, folder: str) -> None:
        if folder not in CONSULTED and self.folders[-1:] != [folder]:
            self.folders.append(folder)


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("cpu", ["compiler", "targets/cpu"]),
        ("cuda:90", ["compiler", "targets/gpu", "lowering/simt", "targets/nvidia"]),
    ],
)
def test_way_of_a_kernel_enters_no_folder_twice(name: str, folders: list[str]) -> None:
    if name != "cpu" and find_assembler() is None:
        pytest.skip("needs ptxas or nvJitLink")
    target = find_target(name)
    target.key()  # caches facts about the machine
    options = target.parse_options({})
    source = ASTSource(kernel, {"x_ptr": "*fp32", "o_ptr": "*fp32"}, {"N": 512})
    module = source.module(target.frontend_options(options))
    ctx = context_for(target, options)
    run(module, pipeline(target), ctx)
    walk = Walk(module, module.entry)
    sys.setprofile(walk)
    try:
        lower(module, target, options, (), ctx=ctx)
    finally:
        sys.setprofile(None)
    assert walk.folders == folders
