"""The gradient of attention in one kernel: its schedule, its code, and its protocol.

Of five products in a loop, three have operands that the loop computes, one of them through shared
memory; a sum is added to global memory; and vectors are copied with the operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

from tests.covering import covering
from tests.gpu import products
from tests.gpu.programs import HOPPER, Program, source_of
from tests.targets.nvidia.lowered import lower
from tests.targets.nvidia.test_products import TARGET, check, compiled, count, lowered
from tilewright.base.diagnostics import InterpreterError
from tilewright.compiler.driver import compile
from tilewright.ir.core import Module, Op
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.control import For
from tilewright.ops.gpu import Fetch, Share
from tilewright.ops.nvidia import AddBlock, LoadBlock, WaitBlocks, Wgmma, WgmmaWait
from tilewright.ops.roles import Arrive, Roles, WaitBarrier

TILE = 64, 128


def _gradients(positions: int, *, causal: bool = False, d: int = 128) -> Program:
    return products.attention_gradients(d, positions, TILE, causal)


def _main_loop(module: Module) -> list[Op]:
    loops = [op for op in module.walk() if isinstance(op, For)]
    return next(list(loop.body) for loop in loops if any(isinstance(o, Wgmma) for o in loop.body))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("stages", "warps"), [(5, 4), (4, 8)])
def test_variant_with_fewer_spills_fits(stages: int, warps: int) -> None:
    """With two lists of heads, the code without a copying warp has fewer spills, and more shared
    memory than there is. Four warps are doubled: the code is that of eight."""
    program = products.attention_gradients(128, 384, TILE, True, 2)
    options = {"num_warps": warps, "num_stages": stages}
    kernel = compile(source_of(program)[0], HOPPER, options)
    assert kernel.metadata.shared <= TARGET.processor.shared_limit


@pytest.mark.parametrize(
    ("stages", "causal", "tensor_copies"), covering([1, 2, 3], [False, True], [False, True])
)
def test_gradients(stages: int, causal: bool, tensor_copies: bool) -> None:
    for positions in (128, 256):
        program = _gradients(positions, causal=causal)
        module, counts = lowered(program, 8, stages, tensor_copies=tensor_copies)
        assert counts["rings"] == (tensor_copies and stages > 1)
        assert counts["advanced products"] == counts["rings"] * (1 + causal)
        check(program, module, seed=positions if positions > 128 else None)


@pytest.mark.parametrize("causal", [False, True])
def test_advanced_products_of_loops_with_one_iteration_or_none(causal: bool) -> None:
    program = products.attention_gradients(64, 256 if causal else 128, (128, 128), causal, 2)
    module, counts = lowered(program, 8, 2, tensor_copies=True)
    assert counts["advanced products"] == 1 + causal
    check(program, module, seed=1)


def test_products_are_advanced_only_if_their_results_fit_into_registers() -> None:
    """Of 128 queries and 128 keys with D 128, they would take 64 registers beside 128 of sums."""
    program = products.attention_gradients(128, 256, (128, 128), False)
    _, counts = lowered(program, 8, 2, tensor_copies=True)
    assert not counts["advanced products"]


def test_four_warps_are_doubled_as_two_accumulators_fill_their_registers() -> None:
    program = _gradients(256)
    module, ctx = compiled(program, num_warps=4, num_stages=2)
    assert ctx.gpu.warps == 8
    assert any(r.by == "widen_programs" and not r.missed for r in ctx.remarks)
    check(program, module)


@pytest.mark.parametrize(
    ("shape", "options"),
    [((64, 64), {}), ((64, 128), {"maxnreg": 255}), ((64, 128), {"num_warps": 8})],
)
def test_other_programs_keep_their_warps(shape: tuple[int, int], options: dict[str, int]) -> None:
    program = products.attention_gradients(128 if options else 64, 128, shape, False)
    given = {"num_warps": 4, "num_stages": 2, **options}
    _, ctx = compiled(program, **given)
    assert ctx.gpu.warps == given["num_warps"]


@pytest.mark.parametrize(("d", "tile"), [(64, (128, 128)), (128, (64, 128))])
def test_copying_warp_leaves_registers_for_many_results(d: int, tile: tuple[int, int]) -> None:
    """Results of products take 224 registers of a thread: with 232, some are spilled."""
    module, _ = lowered(products.attention_gradients(d, 256, tile, False), 8, 2, tensor_copies=True)
    (roles,) = [op for op in module.walk() if isinstance(op, Roles)]
    assert roles.registers == (240, 24)


def test_all_loads_of_the_loop_are_tensor_copies() -> None:
    """Of queries and dO with their vectors; so are those of keys and values in the loop over
    programs."""
    module, _ = lowered(_gradients(256), 8, 2, tensor_copies=True)
    assert count(module, LoadBlock) == 4 + 2
    fetches = [op for op in module.walk() if isinstance(op, Fetch)]
    assert len(fetches) == 2
    # They stand where they are used: in front of the arithmetic on scores, which are complete when
    # an iteration begins, and on dP.
    found: list[type[Op]] = []
    for fetch in fetches:
        before = fetch.prev
        while not isinstance(before, Wgmma | WgmmaWait | WaitBarrier):
            assert before is not None
            before = before.prev
        found.append(type(before))
    assert found == [Wgmma, WgmmaWait]


def test_products_overlap() -> None:
    """The order of starts, waits and releases, with the number of products left in flight. The
    scores of the first iteration are computed before the loop."""
    module, _ = lowered(_gradients(256), 8, 2, tensor_copies=True)
    kinds = Wgmma | WgmmaWait | WaitBarrier | Arrive | AtomicRMW | Share
    found = [
        f"wait {op.pending}" if isinstance(op, WgmmaWait) else type(op).__name__
        for op in _main_loop(module)
        if isinstance(op, kinds)
    ]
    assert found == [
        *("WaitBarrier", "Wgmma"),  # dP; the exponentials under it
        *("Wgmma", "wait 1"),  # dV; dS under it
        *("Wgmma", "Share", "Wgmma"),  # dK, under which dS is stored, and dQ
        *("wait 2", "Arrive", "WaitBarrier", "Wgmma"),  # dO is read; the next scores
        *("wait 1", "AddBlock"),  # dQ is added under them
        *("wait 1", "wait 0", "Arrive"),  # the queries are read
    ]  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
def test_code(causal: bool) -> None:
    """Nothing is serialised or, without a mask, spilled; sums are added as blocks."""
    source, _ = source_of(_gradients(256, causal=causal))
    options = TARGET.parse_options({"num_warps": 8, "num_stages": 2})
    made = lower(source.module(TARGET.frontend_options(options)), num_warps=8, num_stages=2)
    text = made.stages["ptx"]
    assert isinstance(text, str)
    loops = 2 if causal else 1
    assert len(re.findall(r"cp\.reduce\.async\.bulk\.tensor\.4d\S*\.add", text)) == loops
    assert len(re.findall(r"stmatrix\S*\.x4\.shared", text)) >= 4 * loops
    assert "setmaxnreg" in text
    if not causal:
        assert made.metadata["n_spills"] == 0


def test_additions_of_both_loops_share_a_buffer() -> None:
    """Of the causal gradient: with one for each, there is no memory for three stages."""
    program = _gradients(384, causal=True)
    module, counts = lowered(program, 8, 3, tensor_copies=True)
    assert counts["added blocks"] == count(module, AddBlock) == 2
    assert count(module, WaitBlocks) == 1
    assert len({op.buffer for op in module.walk() if isinstance(op, AddBlock)}) == 1
    check(program, module)


def test_sums_are_added_from_registers_without_tensor_copies() -> None:
    source, _ = source_of(_gradients(256))
    given = {"num_warps": 8, "num_stages": 2, "tensor_copies": False}
    made = lower(source.module(TARGET.frontend_options(TARGET.parse_options(given))), **given)
    text = made.stages["ptx"]
    assert isinstance(text, str)
    assert len(re.findall(r"red\.relaxed\.gpu\.global\.add\.v2\.f32", text)) == 16
    assert "cp.reduce" not in text


# -- the machine finds what is wrong --------------------------------------------------------------


def _all(module: Module, cls: type[Op]) -> list[Op]:
    return [op for op in module.walk() if isinstance(op, cls)]


def _without(cls: type[Op], which: int) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        _all(module, cls)[which].erase()

    return spoil


def _later(which: int) -> Callable[[Module], None]:
    """A wait that leaves one more product in flight."""

    def spoil(module: Module) -> None:
        wait = _all(module, WgmmaWait)[which]
        assert isinstance(wait, WgmmaWait)
        wait.pending += 1

    return spoil


def _release_first(module: Module) -> None:
    """The queries' slot is released when dV is complete, while dK reads it."""
    place, arrival = (op for op in _main_loop(module) if isinstance(op, Arrive))
    assert arrival.parent is not None
    arrival.remove()
    assert place.parent is not None
    place.parent.insert_after(arrival, place)


MUTANTS = {
    "no wait for the keys": _without(WaitBarrier, 0),
    "no wait for the queries": _without(WaitBarrier, 1),
    "no wait for dO": _without(WaitBarrier, 2),
    "no wait for the next queries": _without(WaitBarrier, 3),
    "no wait for a free slot": _without(WaitBarrier, 4),
    "no copy of the keys": _without(LoadBlock, 0),
    "no copy of a vector": _without(LoadBlock, 3),
    "no release of dO": _without(Arrive, 0),
    "no release of the queries": _without(Arrive, 1),
    "no release of the keys": _without(Arrive, 2),
    "the queries are released too early": _release_first,
    "the first scores are waited for too late": _later(0),
    "dP is waited for too late": _later(1),
    "dV is waited for too late": _later(2),
    "dQ is waited for too late": _later(3),
    "scores are waited for too late": _later(5),
    "the buffer of sums is freed while it is read": _without(WaitBlocks, 0),
}


@cache
def _subject() -> tuple[Program, Module]:
    """What is spoiled in copies; right itself."""
    program = _gradients(384)
    module, _ = lowered(program, 8, 2, tensor_copies=True)
    check(program, module, blocks=1)
    return program, module


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str) -> None:
    program, module = _subject()
    module = module.clone()
    MUTANTS[name](module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module, blocks=1)
