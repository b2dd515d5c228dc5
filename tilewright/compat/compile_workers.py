"""The compiler is loaded once for all of Inductor's compile workers.

They are forked, as many as `torch._inductor.config.compile_threads`, from a process that imports
`triton` for that reason. But tilewright imports its compiler, some 300 modules and LLVM, for the
first kernel only, which would be in each of them.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from tilewright.base.lazy_import import lazy_import

if TYPE_CHECKING:
    from tilewright.compiler import build, source
    from tilewright.compiler import driver as compiler
    from tilewright.runtime import driver, jit
    from tilewright.targets import protocol, registry
    from tilewright.targets.protocol import GPUTarget
else:
    build = lazy_import("tilewright.compiler.build")
    compiler = lazy_import("tilewright.compiler.driver")
    driver = lazy_import("tilewright.runtime.driver")
    jit = lazy_import("tilewright.runtime.jit")
    protocol = lazy_import("tilewright.targets.protocol")
    registry = lazy_import("tilewright.targets.registry")
    source = lazy_import("tilewright.compiler.source")

PROGRAM = os.path.join("torch", "_inductor", "compile_worker", "__main__.py")
"""The end of the path of the program that compile workers are forked from."""


def load_before_forks() -> None:
    """Load the compiler if this process is the one that compile workers are forked from."""
    program = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    if program.endswith(PROGRAM):
        with suppress(Exception):  # which each kernel will meet, and report
            load_compiler()


def load_compiler() -> None:
    """Import what compiling for the current device does, by compiling an empty kernel, and hash the
    compiler's files, for the cache key of each kernel."""
    device = _current_target()
    options = registry.target(device).parse_options({})
    kernel = source.ASTSource(jit.jit(_nothing), {})
    build.build(kernel, device, options, compiler.cache_key(kernel, device, options))


def _current_target() -> GPUTarget:
    """The target of the current device. A child asks the driver for it: drivers do not support
    fork, so one that was started here would be of no use to the workers."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            target = driver.active.get_current_target()
            answer = {"target": [target.backend, target.arch, target.warp_size]}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        try:
            os.write(write, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    answer = json.loads(text or "{}")
    if "target" not in answer:  # a driver may also end the process
        error = answer.get("error", f"exit status {os.waitstatus_to_exitcode(status)}")
        raise RuntimeError(f"no current device in the process that torch forks from: {error}")
    return protocol.GPUTarget(*answer["target"])


def _nothing() -> None:
    pass
