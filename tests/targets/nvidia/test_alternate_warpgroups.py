"""Turns of warpgroups at starting products: where they are, their code, and their protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu import products
from tests.gpu.programs import HOPPER, Program, interpreted, source_of
from tests.targets.nvidia.test_products import check, compiled, square
from tilewright.base import knobs
from tilewright.compiler.driver import compile
from tilewright.ir.core import Module, Op
from tilewright.ops.control import For
from tilewright.ops.nvidia import Turn, Wgmma, WgmmaWait

EIGHT = {"num_warps": 8, "num_stages": 2}


def _attention(keys: int = 512, causal: bool = True) -> Program:
    """Of which one program fits on a multiprocessor, so that its loops are rotated."""
    return products.attention(128, keys, keys, (128, 128), causal, heads=1)


def _events(module: Module) -> list[list[str]]:
    """What starts, waits for or orders products in each loop that starts several."""
    found: list[list[str]] = []
    for loop in module.walk():
        if isinstance(loop, For) and sum(isinstance(op, Wgmma) for op in loop.body) > 1:
            kinds = [op for op in loop.body if isinstance(op, Turn | Wgmma | WgmmaWait)]
            found.append([_event(op) for op in kinds])
    return found


def _event(op: Op) -> str:
    if isinstance(op, Turn):
        return op.step
    return f"wait {op.pending}" if isinstance(op, WgmmaWait) else "product"


TURN = ["take", "product", "product", "pass", "wait 1", "wait 0"]


def test_products_of_an_iteration_start_in_one_turn() -> None:
    module, ctx = compiled(_attention(), **EIGHT)
    assert _events(module) == [TURN, TURN]
    assert ctx.counts["alternating"] == 2
    assert sum(isinstance(op, Turn) and op.step == "begin" for op in module.walk()) == 1


def test_no_turns_in_programs_of_equal_length() -> None:
    module, ctx = compiled(_attention(causal=False), **EIGHT)
    assert _events(module) == [["product", "product", "wait 1", "wait 0"]]
    assert not _turns(module)
    assert not ctx.counts["alternating"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("keys", [128, 256, 384, 512])
@pytest.mark.parametrize("causal", [False, True])
def test_results(keys: int, causal: bool) -> None:
    """Of one iteration, which is peeled, up to four."""
    program = _attention(keys, causal)
    check(program, compiled(program, **EIGHT)[0], seed=keys)


def test_turns_are_named_barriers_of_two_warpgroups() -> None:
    kernel = compile(source_of(_attention())[0], target=HOPPER, options=EIGHT)
    lines = [line.split() for line in kernel.asm["ptx"].splitlines()]
    of_turns = [
        line for line in lines if any(w.startswith("bar.") for w in line) and "%r" in " ".join(line)
    ]
    steps = [next(w for w in line if w.startswith("bar.")) for line in of_turns]
    assert steps == ["bar.arrive", "bar.sync", "bar.arrive"]
    assert all(line[-1] == "256;" for line in of_turns)


@tw.jit
def two_products(a, b, c, out, steps, N: tl.constexpr, USED: tl.constexpr):
    i, j = tl.arange(0, 128)[:, None], tl.arange(0, N)
    left = tl.zeros((128, N), tl.float32)
    right = tl.zeros((128, N), tl.float32)
    for step in tl.range(tl.program_id(0), steps):
        x = tl.load(a + step * 128 * 64 + i * 64 + tl.arange(0, 64))
        at = step * 64 * N + tl.arange(0, 64)[:, None] * N + j
        y, z = tl.load(b + at), tl.load(c + at)
        if USED:
            left += tl.maximum(tl.dot(x, y), 0.0) * tl.maximum(tl.dot(x, z), 0.0)
        else:
            left, right = tl.dot(x, y, left), tl.dot(x, z, right)
    tl.store(out + i * N + j, left + right)


def _two_products(used: bool, n: int = 128) -> Program:
    rng = products.rng_of(n, used)
    a = rng.integers(-2, 3, (3, 128, 64)).astype(np.float16)
    b, c = (rng.integers(-2, 3, (3, 64, n)).astype(np.float16) for _ in range(2))
    p, q = (a.astype(np.float32) @ x.astype(np.float32) for x in (b, c))
    exact = (np.maximum(p, 0) * np.maximum(q, 0) if used else p + q).sum(0)
    out = np.zeros((128, n), np.float32)
    return Program(
        two_products, [a, b, c, out, 3], {"N": n, "USED": used}, (1, 1), 0, [a, b, c, exact]
    )


def test_loops_that_do_not_compute_with_results_have_no_turns() -> None:
    used, only_sums = _two_products(True), _two_products(False)
    module, _ = compiled(used, **EIGHT)
    assert _turns(module)
    check(used, module, seed=1)
    module, _ = compiled(only_sums, **EIGHT)
    assert not _turns(module)
    check(only_sums, module, seed=1)


def test_one_warpgroup_has_no_turns() -> None:
    assert not _turns(compiled(_two_products(True, 64), num_warps=4, num_stages=2)[0])


def test_one_product_has_no_turns() -> None:
    assert not _turns(compiled(square(4), **EIGHT)[0])


def test_pass_can_be_turned_off() -> None:
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "alternate_warpgroups"
        assert not _turns(compiled(_attention(), **EIGHT)[0])


def _turns(module: Module) -> list[Turn]:
    return [op for op in module.walk() if isinstance(op, Turn)]


# -- the protocol ---------------------------------------------------------------------------------


def _steps_of(program: Program, module: Module, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The steps that a warpgroup of each program executes, in order, after its ``begin``."""
    found: list[list[str]] = []

    def execute(self: Turn, state: Any) -> tuple[()]:
        if self.step == "begin":
            found.append([])
        found[-1].append(self.step)
        return ()

    monkeypatch.setattr(Turn, "execute", execute)
    interpreted(program, module)
    return found


def _ends(steps: Sequence[str], groups: int) -> bool:
    """Whether warpgroups that execute these steps all end, whichever goes first: a barrier of two
    warpgroups completes when one has arrived and the other one waits."""
    arrived, at = [0] * groups, [0] * groups
    progress = True
    while progress:
        progress = False
        for group in reversed(range(groups)):
            if at[group] == len(steps):
                continue
            step = steps[at[group]]
            if step == "take" and not arrived[group]:
                continue
            if step == "take":
                arrived[group] -= 1
            elif step == "pass" or group == groups - 1:
                following = (group + 1) % groups
                assert not arrived[following], "arrives twice"
                arrived[following] += 1
            at[group] += 1
            progress = True
    return all(done == len(steps) for done in at)


@pytest.mark.parametrize("groups", [2, 4])
def test_no_warpgroup_waits_in_vain(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _attention(640)
    module, _ = compiled(program, **EIGHT)
    programs = _steps_of(program, module, monkeypatch)
    assert len(programs) == 5
    assert max(map(len, programs)) > 5
    assert all(_ends(steps, groups) for steps in programs)


def _without(step: str) -> Callable[[Module], Any]:
    return lambda module: next(op for op in _turns(module) if op.step == step).remove()


def _twice(module: Module) -> None:
    take = next(op for op in _turns(module) if op.step == "take")
    assert take.parent is not None
    take.parent.insert_after(take.clone({}), take)


MUTANTS = {"no end of a turn": _without("pass"), "two turns for one": _twice}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_do_not_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _attention(640)
    module, _ = compiled(program, **EIGHT)
    MUTANTS[name](module)
    longest = max(_steps_of(program, module, monkeypatch), key=len)
    assert not _ends(longest, 2)


def test_without_a_first_turn_all_wait() -> None:
    assert _ends(["begin", "take", "pass"], 2)
    assert not _ends(["take", "pass"], 2)
