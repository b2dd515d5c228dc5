"""Debugging ops that AMD GPUs do not support."""

from __future__ import annotations

from tilewright.base.located import error_at
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.ops.debug import Print
from tilewright.targets.amd.name import NAME


@emits(Print, target=NAME)
def emit_print(kernel: Kernel, op: Print) -> None:
    raise error_at(
        op.loc,
        "printing is not supported on AMD GPUs. Print on the CPU or in the interpreter "
        "(TRITON_INTERPRET=1)",
    )
