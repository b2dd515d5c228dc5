"""What finds wrong protocols on a GPU: random delays around their steps, limits of their waits."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.gpu import products
from tests.gpu.programs import HOPPER, source_of
from tests.targets.nvidia.test_products import check, compiled, square
from tilewright.compiler.driver import compile
from tilewright.ops.gpu import Allocate
from tilewright.ops.nvidia import Delay, LoadBlock
from tilewright.ops.roles import Arrive, ExpectBytes, WaitBarrier


def _seeds(**options: Any) -> list[int]:
    module, _ = compiled(square(4), num_stages=3, **options)
    return [op.seed for op in module.walk() if isinstance(op, Delay)]


@pytest.mark.parametrize("tensor_copies", [False, True])
def test_each_step_of_a_protocol_is_between_delays(tensor_copies: bool) -> None:
    options = {"tensor_copies": tensor_copies, "launch_pdl": False}
    module, _ = compiled(square(4), num_stages=3, random_delays=1, **options)
    steps = [op for op in module.walk() if op.local and not isinstance(op, Delay | Allocate)]
    assert steps
    assert {LoadBlock, Arrive, ExpectBytes, WaitBarrier} <= set(map(type, steps)) or (
        not tensor_copies
    )
    for op in steps:
        assert isinstance(op.prev, Delay)
        assert isinstance(op.next, Delay)


def test_each_delay_has_a_separate_seed() -> None:
    first, second = _seeds(random_delays=1), _seeds(random_delays=2)
    assert len(set(first)) == len(first) == len(second)
    assert not set(first) & set(second)


def test_delays_are_off_by_default() -> None:
    assert not _seeds()


def test_delays_do_not_change_results() -> None:
    for program in (square(5), products.attention(64, 128, 128, (128, 32), True, heads=1)):
        module, _ = compiled(program, num_stages=3, random_delays=3)
        check(program, module, seed=1)


def test_protocols_stay_however_slow_delays_make_them() -> None:
    program = products.attention(128, 512, 512, (128, 128), True, heads=1)
    options = {"num_warps": 8, "num_stages": 2, "random_delays": 1}
    ptx = compile(source_of(program)[0], target=HOPPER, options=options).asm["ptx"]
    assert all(step in ptx for step in ("mbarrier.try_wait", "bar.arrive", "nanosleep.u32"))


def test_delays_are_instructions() -> None:
    source, _ = source_of(square(4))
    ptx = compile(source, target=HOPPER, options={"num_stages": 3, "random_delays": 1}).asm["ptx"]
    assert isinstance(ptx, str)
    assert ptx.count("nanosleep.u32") == len(_seeds(random_delays=1))


def test_negative_seed_is_rejected() -> None:
    with pytest.raises(ValueError, match="random_delays must be 0 or a positive seed, not -1"):
        compiled(square(1), random_delays=-1)


def _waits(ptx: str) -> tuple[int, int]:
    """The waits for barriers, and those with a limit."""
    loops = re.findall(r"WAIT: mbarrier.try_wait[^}]*", ptx)
    return len(loops), sum("setp.gt.or.u64" in loop for loop in loops)


@pytest.mark.parametrize("warps", [4, 8])
def test_waits_have_limits_in_debug_builds(warps: int) -> None:
    source, _ = source_of(products.example_matmul(256, 256, 256, (128, 128, 64)))
    options = {"num_warps": warps, "sanitize_overflow": False}
    release = compile(source, target=HOPPER, options=options).asm["ptx"]
    debug = compile(source, target=HOPPER, options={**options, "debug": True}).asm["ptx"]
    assert isinstance(release, str)
    assert isinstance(debug, str)
    waits, limited = _waits(release)
    assert waits
    assert not limited
    waits, limited = _waits(debug)
    assert waits == limited > 0
    assert debug.count("__assertfail") > limited  # declared once, called by each
    assert "setmaxnreg" not in debug
