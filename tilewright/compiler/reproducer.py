"""Reproducers: the IR before a failing pass, with everything needed to rerun it.

A reproducer is tile IR text with a header of comments:

    # tilewright reproducer: python -m tilewright rerun FILE
    # {"kernel": "softmax", "target": ["cpu", "", 1], "options": {...}, "steps": ["licm", "dce"], …}
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.base.diagnostics import RERUN
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.targets.protocol import GPUTarget

SUFFIX = ".repro.ir"


@dataclass(frozen=True)
class Reproducer:
    """A compiler step and its inputs.

    Attributes:
        kernel: the name of the kernel.
        target: the target.
        options: the kernel's options by name.
        steps: the names of the remaining tile passes, the failing one first; empty if the target
            failed.
        module: the IR before the first of these.
        error: the exception.
        versions: versions of tilewright and its dependencies.
    """

    kernel: str
    target: GPUTarget
    options: Mapping[str, Any]
    steps: Sequence[str]
    module: Module
    error: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def failing(self) -> str:
        return self.steps[0] if self.steps else self.target.backend

    def text(self) -> str:
        target = [self.target.backend, self.target.arch, self.target.warp_size]
        facts = {
            "kernel": self.kernel,
            "target": target,
            "options": dict(self.options),
            "steps": list(self.steps),
            "error": self.error,
            "versions": {"python": sys.version, **self.versions},
        }
        header = json.dumps(facts, default=repr)
        ir = print_module(self.module, locations=True)
        return f"# tilewright reproducer: {RERUN} FILE\n# {header}\n{ir}"

    def write(self, folder: Path) -> Path:
        """Write it to a new file in `folder`, which is created if necessary."""
        folder.mkdir(parents=True, exist_ok=True)
        kernel = "".join(c if c.isalnum() or c in "_-" else "_" for c in self.kernel)[:100]
        path = folder / f"{kernel}-{self.failing}-{os.urandom(4).hex()}{SUFFIX}"
        with path.open("x", encoding="utf-8") as file:
            file.write(self.text())
        return path

    @classmethod
    def read(cls, path: Path) -> Reproducer:
        """Read a reproducer.

        Raises:
            ValueError: the file is not a reproducer.
            IRError: its IR is invalid.
        """
        text = path.read_text("utf-8")
        lines = text.split("\n", 2)
        if len(lines) < 3 or "reproducer" not in lines[0] or not lines[1].startswith("# {"):
            raise ValueError(f"{path} is not a reproducer: it lacks the header of one")
        facts = json.loads(lines[1][2:])
        options = {k: _tuples(v) for k, v in facts["options"].items()}
        return cls(
            facts["kernel"],
            GPUTarget(*facts["target"]),
            options,
            facts["steps"],
            parse_module(text, str(path)),
            facts["error"],
            facts["versions"],
        )


def _tuples(value: Any) -> Any:
    """The value with JSON lists replaced by tuples, since options are hashable."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
