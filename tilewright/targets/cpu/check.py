"""The check of an assertion: a branch to a call of the launching process, and the program's end."""

from __future__ import annotations

import json
from typing import Any

from tilewright.lowering.emit import I1, I8, VOID, V
from tilewright.ops.debug import Assert, source_position
from tilewright.targets.cpu.kernel import Kernel

FAIL = "tilewright_fail"


def described(kernel: Kernel, facts: dict[str, Any]) -> V:
    """The address of a description in JSON."""
    content = json.dumps(facts).encode() + b"\0"
    return kernel.module.global_constant("text", I8, list(content), align=1)


def check(kernel: Kernel, op: Assert, holds: V) -> None:
    """Emit the check of a condition, or of each lane of one."""
    b = kernel.b
    if holds.type.lanes:
        holds = b.intrinsic("llvm.vector.reduce.and", I1, [holds], overloads=[holds.type])
    failed, passed = b.block("failed"), b.block("passed")
    b.cond_br(holds, passed, failed)
    b.at(failed)
    file, line, function = source_position(op.loc)
    facts = {"file": file, "line": line, "function": function, "message": op.message}
    b.call(FAIL, VOID, [described(kernel, facts), *kernel.program])
    b.ret()
    b.at(passed)
