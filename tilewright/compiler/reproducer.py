"""Reproducers: when a pass fails, the IR before it and all that is needed to run it again.

A reproducer is tile IR text that begins with comments:

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
    """A step of the compiler and what it was given.

    Attributes:
        kernel: name of the kernel.
        target: what to compile for.
        options: the kernel's options by name.
        steps: names of the tile passes that were still to run, the failing one first; none when
            the target failed.
        module: the IR before the first of these.
        error: what was raised.
        versions: of what could make a difference.
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
        """Write it to a new file in `folder`, which is made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        kernel = "".join(c if c.isalnum() or c in "_-" else "_" for c in self.kernel)[:100]
        path = folder / f"{kernel}-{self.failing}-{os.urandom(4).hex()}{SUFFIX}"
        with path.open("x", encoding="utf-8") as file:
            file.write(self.text())
        return path

    @classmethod
    def read(cls, path: Path) -> Reproducer:
        """The reproducer in a file.

        Raises:
            ValueError: the file is something else.
            IRError: its IR is not valid text.
        """
        text = path.read_text("utf-8")
        lines = text.split("\n", 2)
        if len(lines) < 3 or "reproducer" not in lines[0] or not lines[1].startswith("# {"):
            raise ValueError(f"{path} is not a reproducer: it does not begin as one")
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
    """The value with tuples where JSON has lists: options are hashable."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
