"""Profiles of kernel launches, by scopes of the program: the interface of Triton's proton.

    import tilewright.profiler as proton        # or triton.profiler, if `triton` is tilewright

    proton.start("step", hook="triton")         # with the flops and bytes of `launch_metadata`
    with proton.scope("forward"):
        kernel[grid](x, y, n)
    proton.finalize()                           # writes step.hatchet

`python -m tilewright profile step.hatchet -m time/ms,gbyte/s` prints it, as does proton's viewer.
"""

from tilewright.profiler.scopes import (
    cpu_timed_scope,
    enter_scope,
    enter_state,
    exit_scope,
    exit_state,
    scope,
    state,
)
from tilewright.profiler.sessions import (
    DEFAULT_PROFILE_NAME,
    activate,
    deactivate,
    finalize,
    profile,
    start,
)

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "activate",
    "cpu_timed_scope",
    "deactivate",
    "enter_scope",
    "enter_state",
    "exit_scope",
    "exit_state",
    "finalize",
    "profile",
    "scope",
    "start",
    "state",
]
