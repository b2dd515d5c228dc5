"""Which of the cubins that an assembler makes of a kernel is taken."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from tests.targets.nvidia.modules import wgmma
from tilewright.targets.nvidia import best_cubin as searched
from tilewright.targets.nvidia import emit
from tilewright.targets.nvidia.assemble import (
    Assembler,
    Cubin,
    Rejection,
    Request,
    find_assembler,
)
from tilewright.targets.nvidia.best_cubin import (
    LONG_PTX,
    MANY_CARRIED,
    Attempts,
    Demand,
    best_cubin,
)
from tilewright.targets.nvidia.cubin import Resources
from tilewright.targets.nvidia.features import processor

HOPPER = processor(90)
REQUEST = Request("sm_90a")
SLOW = "ptxas info    : (C7510) Potential Performance Loss: instructions are serialized\n"
PLAIN = 0  # a cubin without a number of CTAs


def resources_of(made: Mapping[int, tuple[int, int]]) -> Callable[[bytes, str], Resources]:
    """Registers and spilled ones of cubins by their number, in place of what cubins say."""

    def resources(cubin: bytes, name: str) -> Resources:
        assert name == "kernel"
        registers, spilled = made[int(cubin)]
        return Resources(registers, spilled * 4, shared_bytes=0)

    return resources


class FixedReports(Assembler):
    """An assembler whose cubins use the given registers; it rejects other requests.

    Args:
        registers: of a thread, with the words that spill, for each number of CTAs.
        slow: the numbers of CTAs with which products are serialised.
    """

    name = "fixed reports"

    def __init__(self, registers: dict[int, tuple[int, int]], slow: Collection[int] = ()) -> None:
        self.registers = registers
        self.slow = slow
        self.runs: list[int] = []

    def version(self) -> str:
        return "1"

    def attempt(self, ptx: str, request: Request) -> Cubin | Rejection:
        ctas = held(ptx)
        self.runs.append(ctas)
        if ctas not in self.registers:
            return Rejection("too few registers", [])
        return Cubin(b"%d" % ctas, SLOW if ctas in self.slow else "")


def text(lines: int, live: int = 0, loop: bool = False) -> str:
    """PTX of so many lines, with so many registers that are live at once, and perhaps a loop."""
    registers = "".join(f"%r{i} " for i in range(live))
    code = f"$L__BB0_1:\n{'@%p1 bra $L__BB0_1;' if loop else ''}\n"
    return f".reqntid 256\n{{\n{registers}{registers}\n{code}" + "\n" * lines


@pytest.fixture(autouse=True)
def carries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cubins of fixed reports have no machine code: they count as those that may mix carries with
    other predicates, and wait for no loads."""
    monkeypatch.setattr(searched, "mixes_carries", lambda cubin, kernel, **_: True)
    monkeypatch.setattr(searched, "load_waits", lambda cubin, kernel: 0)


def held(ptx: str) -> int:
    """How many CTAs a kernel is to hold."""
    found = re.findall(r"^\.minnctapersm (\d+)$", ptx, re.MULTILINE)
    assert len(found) < 2
    return int(found[0]) if found else PLAIN


@pytest.mark.parametrize(
    ("made", "taken"),
    [
        pytest.param({PLAIN: (31, 0)}, PLAIN, id="as it is"),
        pytest.param({PLAIN: (32, 0), 6: (36, 0)}, 6, id="squeezed"),
        pytest.param({PLAIN: (32, 0)}, PLAIN, id="squeezed, and rejected with more"),
        pytest.param({PLAIN: (33, 0), 6: (33, 0)}, PLAIN, id="just not squeezed"),
        pytest.param({PLAIN: (40, 9), 1: (250, 0)}, 1, id="spills without need"),
        pytest.param({PLAIN: (255, 9), 1: (255, 0)}, PLAIN, id="spills in need"),
        pytest.param({PLAIN: (74, 0), 4: (64, 0)}, 4, id="one more"),
        pytest.param({PLAIN: (80, 0), 4: (64, 5)}, 4, id="one more spills little"),
        pytest.param({PLAIN: (79, 0), 4: (64, 5)}, PLAIN, id="one more spills"),
        pytest.param({PLAIN: (74, 0)}, PLAIN, id="one more is rejected"),
        pytest.param({PLAIN: (96, 0), 2: (116, 0)}, 2, id="spare registers"),
        pytest.param({PLAIN: (96, 0), 3: (80, 9), 2: (116, 0)}, 2, id="one more spills, spare"),
        pytest.param({PLAIN: (113, 0), 2: (116, 0)}, PLAIN, id="few spare registers"),
        pytest.param({PLAIN: (98, 0), 2: (116, 0)}, PLAIN, id="spare, but not saved"),
    ],
)
def test_selected_cubin(
    made: dict[int, tuple[int, int]], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched, "resources", resources_of(made))
    best = best_cubin(Attempts(FixedReports(made), REQUEST, "kernel"), text(3), HOPPER, Demand(256))
    assert (held(best.ptx), int(best.cubin)) == (taken, taken)
    assert best.used.registers == made[taken][0]


@pytest.mark.parametrize(
    ("loop", "used", "waits", "taken"),
    [
        pytest.param(True, 55, {PLAIN: 4, 4: 2}, 4, id="loads of a loop together"),
        pytest.param(True, 58, {PLAIN: 4, 4: 2}, 4, id="a part of a unit is free"),
        pytest.param(True, 64, {PLAIN: 4, 4: 2}, PLAIN, id="none is free"),
        pytest.param(True, 55, {PLAIN: 4, 4: 4}, PLAIN, id="one by one in any case"),
        pytest.param(True, 55, {PLAIN: 2, 4: 1}, PLAIN, id="few waits"),
        pytest.param(False, 55, {PLAIN: 4, 4: 2}, PLAIN, id="no loop"),
    ],
)
def test_loops_that_wait_for_each_load_get_registers_that_are_free(
    loop: bool, used: int, waits: dict[int, int], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {PLAIN: (used, 0), 4: (62, 0)}
    monkeypatch.setattr(searched, "resources", lambda cubin, _: Resources(*made[int(cubin)], 0))
    monkeypatch.setattr(searched, "load_waits", lambda cubin, kernel: waits[int(cubin)])
    attempts = Attempts(FixedReports(made), REQUEST, "kernel")
    assert held(best_cubin(attempts, text(3, loop=loop), HOPPER, Demand(256)).ptx) == taken


def test_a_kernel_that_reads_only_its_carries_for_carries_may_be_squeezed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(searched, "resources", lambda cubin, _: Resources(32, 0, 0))
    monkeypatch.setattr(searched, "mixes_carries", lambda cubin, kernel, **_: False)
    assembler = FixedReports({PLAIN: (32, 0), 6: (36, 0)})
    best = best_cubin(Attempts(assembler, REQUEST, "kernel"), text(3), HOPPER, Demand(256))
    assert (held(best.ptx), assembler.runs) == (PLAIN, [PLAIN])


@pytest.mark.parametrize(
    ("live", "made", "mixes", "runs", "taken"),
    [
        pytest.param(48, {PLAIN: (40, 0), 8: (32, 0)}, False, [PLAIN, 8], 8, id="saved"),
        pytest.param(48, {PLAIN: (33, 0), 8: (32, 0)}, False, [PLAIN, 8], 8, id="one saved"),
        pytest.param(49, {PLAIN: (40, 0)}, False, [PLAIN], PLAIN, id="many live"),
        pytest.param(48, {PLAIN: (41, 0)}, False, [PLAIN], PLAIN, id="more to save"),
        pytest.param(48, {PLAIN: (40, 0), 8: (32, 1)}, False, [PLAIN, 8], PLAIN, id="spills"),
        pytest.param(48, {PLAIN: (40, 0), 8: (32, 0)}, True, [PLAIN, 8], PLAIN, id="doubtful"),
        pytest.param(48, {PLAIN: (32, 0), 6: (40, 0)}, True, [PLAIN, 6], 6, id="with room"),
    ],
)
def test_a_few_registers_are_saved_for_all_warps(
    live: int,
    made: dict[int, tuple[int, int]],
    mixes: bool,
    runs: list[int],
    taken: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight CTAs of 256 threads are resident with 32 registers."""

    monkeypatch.setattr(searched, "resources", resources_of(made))
    monkeypatch.setattr(searched, "mixes_carries", lambda cubin, kernel, **_: mixes)
    assembler = FixedReports(made)
    best = best_cubin(Attempts(assembler, REQUEST, "kernel"), text(3, live), HOPPER, Demand(256))
    assert (assembler.runs, held(best.ptx)) == (runs, taken)


@pytest.mark.parametrize(
    ("live", "made", "runs"),
    [
        pytest.param(250, {3: (168, 0)}, [3], id="at once"),
        pytest.param(250, {3: (168, 10)}, [3], id="spills little"),
        pytest.param(250, {3: (168, 12), PLAIN: (184, 0)}, [3, PLAIN, 2], id="spills"),
        pytest.param(250, {3: (168, 12), PLAIN: (208, 0)}, [3, PLAIN], id="spills little of many"),
        pytest.param(250, {PLAIN: (208, 0)}, [3, PLAIN], id="rejected"),
        pytest.param(190, {PLAIN: (152, 0), 3: (168, 0)}, [PLAIN, 3], id="few live"),
        pytest.param(340, {PLAIN: (255, 0)}, [PLAIN], id="too many live"),
    ],
)
def test_a_limit_that_is_probably_chosen_is_tried_first(
    live: int,
    made: dict[int, tuple[int, int]],
    runs: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is run once: memory allows three CTAs of 128 threads, with 168 registers each."""

    monkeypatch.setattr(searched, "resources", resources_of(made))
    assembler = FixedReports(made)
    demand = Demand(128, 70_000, carried=76, held=139)
    best_cubin(Attempts(assembler, REQUEST, "kernel"), text(3, live), HOPPER, demand)
    assert assembler.runs == runs


@pytest.mark.parametrize(
    ("ptx", "made", "runs"),
    [
        pytest.param(text(3), {PLAIN: (30, 0)}, [PLAIN], id="few registers"),
        pytest.param(text(3), {PLAIN: (32, 0), 6: (40, 0)}, [PLAIN, 6], id="squeezed"),
        pytest.param(text(3), {PLAIN: (74, 0), 4: (64, 0)}, [PLAIN, 4], id="one more"),
        pytest.param(text(LONG_PTX), {PLAIN: (74, 0), 4: (64, 0)}, [PLAIN], id="long, one more"),
        pytest.param(text(LONG_PTX), {PLAIN: (32, 9), 1: (250, 0)}, [PLAIN, 1], id="long, spills"),
        pytest.param(text(LONG_PTX), {PLAIN: (32, 0), 6: (70, 0)}, [PLAIN, 6], id="long, squeezed"),
        pytest.param(text(LONG_PTX), {PLAIN: (255, 9)}, [PLAIN], id="long, spills in need"),
        pytest.param(text(LONG_PTX), {PLAIN: (96, 0), 2: (116, 0)}, [PLAIN], id="long, spare"),
        pytest.param(
            text(3, loop=True), {PLAIN: (111, 0), 2: (116, 0)}, [PLAIN, 2, 3], id="spare, in a loop"
        ),
    ],
)
def test_number_of_assembler_runs(
    ptx: str, made: dict[int, tuple[int, int]], runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched, "resources", resources_of(made))
    assembler = FixedReports(made)
    best_cubin(Attempts(assembler, REQUEST, "kernel"), ptx, HOPPER, Demand(256))
    assert sorted(assembler.runs) == runs


@pytest.mark.parametrize(
    ("ptx", "registers", "runs"),
    [
        pytest.param(text(3, 101), 101, [PLAIN], id="all of them"),
        pytest.param(text(3, 100), 101, [PLAIN, 3], id="more than are live"),
        pytest.param(text(3, 151), 101, [PLAIN], id="most of them"),
        pytest.param(text(3, 152), 101, [PLAIN, 3], id="many fewer than are live"),
        pytest.param(text(3, 101, loop=True), 101, [PLAIN, 3], id="in a loop"),
        pytest.param(text(3, 99), 99, [PLAIN, 3], id="less than a fifth to save"),
    ],
)
def test_registers_are_not_limited_to_fewer_than_values_need(
    ptx: str, registers: int, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three blocks of 256 threads have 80 registers for each."""
    made = {PLAIN: (registers, 0), 3: (80, 0)}
    monkeypatch.setattr(searched, "resources", lambda cubin, _: Resources(*made[int(cubin)], 0))
    assembler = FixedReports(made)
    best_cubin(Attempts(assembler, REQUEST, "kernel"), ptx, HOPPER, Demand(256))
    assert assembler.runs == runs


@pytest.mark.parametrize(
    ("demand", "runs"),
    [
        (Demand(256), [PLAIN, 4]),
        (Demand(256, held=48), [PLAIN, 4]),
        (Demand(256, held=49), [PLAIN]),
        (Demand(256, carried=32), [PLAIN, 4]),
        (Demand(256, carried=33), [PLAIN]),
    ],
)
def test_registers_are_not_limited_to_fewer_than_a_kernel_holds(
    demand: Demand, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four blocks of 256 threads have 64 registers for each."""
    made = {PLAIN: (74, 0), 4: (64, 0)}
    monkeypatch.setattr(searched, "resources", lambda cubin, _: Resources(*made[int(cubin)], 0))
    assembler = FixedReports(made)
    best_cubin(Attempts(assembler, REQUEST, "kernel"), text(3), HOPPER, demand)
    assert assembler.runs == runs


@pytest.mark.parametrize(
    ("carried", "made", "runs"),
    [
        (MANY_CARRIED - 1, {PLAIN: (32, 9), 1: (255, 9)}, [PLAIN, 1]),
        (MANY_CARRIED, {PLAIN: (32, 9), 1: (255, 9)}, [1]),
        (MANY_CARRIED, {PLAIN: (255, 9)}, [1, PLAIN]),
    ],
)
def test_a_loop_that_carries_all_registers_is_not_assembled_for_several_ctas(
    carried: int,
    made: dict[int, tuple[int, int]],
    runs: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(searched, "resources", resources_of(made))
    assembler = FixedReports(made)
    ptx = ".reqntid 256\n{\n" + "\n" * LONG_PTX
    best = best_cubin(
        Attempts(assembler, REQUEST, "kernel"), ptx, HOPPER, Demand(256, carried=carried)
    )
    assert assembler.runs == runs
    assert int(best.cubin) == runs[-1]


@pytest.mark.parametrize(
    ("slow", "taken"), [((), 4), ((4,), PLAIN), ((PLAIN, 4), 4), ((PLAIN,), 4)]
)
def test_one_more_cta_does_not_justify_serialised_products(
    slow: tuple[int, ...], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resources(cubin: bytes, name: str) -> Resources:
        return Resources(64 if int(cubin) else 74, 0, shared_bytes=0)

    monkeypatch.setattr(searched, "resources", resources)
    reported = FixedReports({PLAIN: (74, 0), 4: (64, 0)}, slow)
    best = best_cubin(
        Attempts(reported, REQUEST, "kernel"), ".reqntid 256\n{\n", HOPPER, Demand(256)
    )
    assert int(best.cubin) == taken


def test_a_product_that_does_not_fit_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path))
    assembler = find_assembler()
    if assembler is None:
        pytest.skip("needs ptxas or nvJitLink")
    ptx = emit.compile_text(wgmma(emit.kernel_attributes(256), 128), "sm_90a", 81)[1]
    attempts = Attempts(assembler, REQUEST, "wgmma")
    assert attempts.plain(ptx).used.registers > 64
    assert attempts.holding(6, ptx) is None  # 40 registers
    assert list(tmp_path.iterdir()) == []
