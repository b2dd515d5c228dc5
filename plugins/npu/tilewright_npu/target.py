"""The compiler of the NPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.compiler.version import hash_of_tree
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, Step
from tilewright.targets.protocol import Lowered, Stage, options_from
from tilewright_npu.codegen import generate
from tilewright_npu.instructions import Image
from tilewright_npu.rewrites import STEPS

VERSION = "0.1.0"


@dataclass(frozen=True)
class NpuOptions:
    """The launch options. The number of warps and of stages has no effect on the NPU."""

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    debug: bool = False


class NpuTarget:
    """See `tilewright.targets.protocol.Target`."""

    name = "npu"
    interface = 1
    without_effect = frozenset({"num_warps", "num_stages", "num_ctas"})

    def __init__(self, arch: int | str = "") -> None:
        if arch not in ("", "v1"):
            raise ValueError(f"there is one architecture of the NPU, v1, not {arch!r}")
        self.arch = arch

    def key(self) -> str:
        return f"npu v1 {VERSION} {hash_of_tree(os.path.dirname(__file__))}"

    def features(self) -> frozenset[str]:
        return frozenset()

    def parse_options(self, given: Mapping[str, Any]) -> NpuOptions:
        return options_from(NpuOptions, given)

    def frontend_options(self, options: NpuOptions) -> FrontendOptions:
        return FrontendOptions(
            backend_name=self.name, num_warps=options.num_warps, num_stages=options.num_stages,
            debug=options.debug, enable_fp_fusion=False,
        )  # fmt: skip

    def steps(self) -> Sequence[Step]:
        return STEPS

    def compile(self, module: Module, ctx: PassContext, options: NpuOptions) -> Lowered:
        return Lowered({"image": generate(module).encode()}, {"name": module.entry.name})

    def derive(self, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]) -> Stage:
        if stage != "listing":
            raise KeyError(stage)
        image = stages["image"]
        assert isinstance(image, bytes)
        return Image.decode(image).listing()
