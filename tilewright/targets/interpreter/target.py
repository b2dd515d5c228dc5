"""The target whose code is tile IR, which `ir/interpret.py` executes on NumPy.

`TILEWRIGHT_INTERPRET=1` selects it. A kernel passes through the same front end and tile passes as
for any other target, so the interpreted IR is the IR that would be compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.base.located import error_at
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.define import REGISTRY
from tilewright.ir.passes import PassContext, Step
from tilewright.ir.printer import print_module
from tilewright.targets.base_backend import BaseBackend
from tilewright.targets.protocol import Lowered, Stage

CODE = "located"


@dataclass(frozen=True)  # without slots: programs read its __dict__
class InterpreterOptions:
    """The options that affect interpretation. Others, which tune machine code, are ignored.

    Attributes:
        debug, sanitize_overflow: if both are set, report signed integer overflow.
        check_races: report accesses of two programs to the same byte without atomics.
        check_uninitialised: report reads of uninitialised bytes.
        seed: execute the programs in an order shuffled by this seed; None for x fastest.
        launch_cooperative_grid: rejected for more than one program, as they run sequentially.
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    debug: bool = False
    sanitize_overflow: bool = True
    enable_fp_fusion: bool = True
    check_races: bool = False
    check_uninitialised: bool = False
    seed: int | None = None
    launch_cooperative_grid: bool = False


class InterpreterTarget(BaseBackend):
    """See `targets/protocol.py` for the members."""

    name = "interpreter"
    without_effect = frozenset({"num_warps", "num_stages", "num_ctas"})

    def __init__(self, arch: int | str = "") -> None:
        self.arch = arch

    def key(self) -> str:
        # Constants are folded by NumPy, so its version affects the code.
        return f"interpreter numpy-{np.__version__} ml_dtypes-{ml_dtypes.__version__}"

    def features(self) -> frozenset[str]:
        return frozenset({"dot_scaled"})

    def parse_options(self, given: Mapping[str, Any]) -> InterpreterOptions:
        """Options of other targets are dropped, so that kernels tuned for them run here too."""
        known = {f.name for f in fields(InterpreterOptions)}
        return InterpreterOptions(**{k: v for k, v in given.items() if k in known})

    def frontend_options(self, options: InterpreterOptions) -> FrontendOptions:
        return FrontendOptions(
            backend_name=self.name,
            debug=options.debug,
            sanitize_overflow=options.sanitize_overflow,
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            enable_fp_fusion=options.enable_fp_fusion,
        )

    def steps(self) -> Sequence[Step]:
        return ()

    def compile(self, module: Module, ctx: PassContext, options: InterpreterOptions) -> Lowered:
        """Print the module with locations, so that errors name lines of the source."""
        for op in module.walk():
            if REGISTRY.get(op.name) is not type(op):
                raise error_at(op.loc, f"{op.name} can't be interpreted: it is not part of the IR")
        text = ctx.replaced_text(CODE) or print_module(module, locations=True)
        return Lowered({CODE: text}, {"name": module.entry.name})

    def derive(self, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]) -> Stage:
        raise KeyError(stage)
