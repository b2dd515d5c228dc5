"""What a random program of any generator is checked for, by a name and a seed.

    CHECKS["programs"](7)

Each runs the program of the seed on the interpreter and on one target, and returns what it
reached: productions of the generator, and ops of tile IR. It raises what the program's compilation
raises, or `Difference`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.amd_emulator import conformance as amd
from tests.fuzz.derivatives.check import (
    check_applied,
    check_applied_launched,
    check_applied_narrow,
    check_applied_twice,
    check_axes,
    check_axes_launched,
    check_axes_twice,
    check_composed,
    check_composed_launched,
    check_mixed,
    check_mixed_launched,
    check_nested,
    check_nested_launched,
    check_shaped,
    check_shaped_launched,
    check_tiled,
    check_tiled_launched,
)
from tests.fuzz.disabled import random_disabled
from tests.fuzz.elements import Graph, random_graph, shrunk
from tests.fuzz.forms.check import check_forms, check_forms_emulated
from tests.fuzz.ir_generator import GRID, Features, random_args, random_module
from tests.fuzz.mutants.check import check_mutant, check_mutant_amd, check_mutant_emulated
from tests.fuzz.numpy_programs import check as numpy_check
from tests.fuzz.numpy_programs.generator import random_program as numpy_program
from tests.fuzz.programs.aliased import check_aliased
from tests.fuzz.programs.check import (
    AMD_PROCESSORS,
    Difference,
    check,
    check_amd,
    check_cross,
    check_emulated,
    check_laid_out,
    check_launched,
    machine_of,
    ops_of,
)
from tests.fuzz.programs.program import random_program
from tests.fuzz.programs.relaunch import check_relaunched
from tests.fuzz.views import SLOT, views_args, views_module
from tests.ir_values import same_bits
from tests.lowering.simt import harness as simt
from tests.targets.cpu import harness as cpu
from tilewright.base.record import replace
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, run
from tilewright.ir.printer import print_module
from tilewright.ir.types import Pointer
from tilewright.ir.verify import verify_module

ON_CPU = Features(math=False, float_dot=False, float_sums=False)
EMULATED = replace(ON_CPU, races=False)
VIEWS = 20  # of one kernel
EMULATED_VIEWS = 12  # the emulator is slow

Check = Callable[[int], set[str]]
Both = Callable[[Module, Sequence[Any]], tuple[list[Any], list[Any]]]


# -- kernels in tile IR ---------------------------------------------------------------------------


def _kernel(seed: int, features: Features) -> tuple[Module, list[Any]]:
    rng = np.random.default_rng(seed)
    module = random_module(rng, size=int(rng.integers(3, 30)), features=features)
    return module, random_args(module, rng)


def kernel(seed: int) -> set[str]:
    """Random tile IR on the CPU, after the tile passes and mostly only then."""
    module, args = _kernel(seed, ON_CPU)
    found = ops_of(module)
    machine = machine_of(seed)
    if seed % 3 == 0:  # every launch is large: stores go past the caches
        machine = replace(machine, cache_bytes=1)
    if seed % 4 == 0:
        cpu.assert_same(module, (GRID, 1, 1), args, machine=machine)
    run(module, STEPS, PassContext())
    cpu.assert_same(module, (GRID, 1, 1), args, machine=machine)
    return found


def kernel_emulated(seed: int) -> set[str]:
    """Random tile IR on the emulated GPU."""
    module, args = _kernel(seed, EMULATED)
    for arg, attrs in zip(module.entry.args, module.entry.arg_attrs, strict=True):
        if isinstance(arg.type, Pointer) and seed % 3:
            attrs["divisibility"] = 16  # as NumPy's arrays are: accesses become vectors
    simt.assert_same(
        module,
        (GRID, 1, 1),
        args,
        warps=(1, 2, 4)[seed % 3],
        lanes=(2, 4, 8, 32, 64)[seed % 5],
        seed=seed,
        disabled=random_disabled(seed, (*STEPS, *simt.LAYOUT_STEPS)),
        features=frozenset({"async_copy"} if seed % 4 == 3 else ()),
    )
    return ops_of(module)


# -- views ----------------------------------------------------------------------------------------


def _wrong(seed: int, views: Sequence[int], both: Both) -> list[int]:
    """The views whose slots differ."""
    module = views_module(seed, views)
    verify_module(module)
    found, expected = both(module, views_args(seed, views))
    slots: set[int] = set()
    for x, y in zip(found, expected, strict=True):
        if isinstance(x, np.ndarray) and x.ndim:
            slots |= {int(i) // SLOT for i in np.nonzero(x != y)[0]}
    return [views[slot] for slot in sorted(slots)]


def _agree(seed: int, views: range, both: Both) -> set[str]:
    """Compute the views; show one alone that is wrong."""
    wrong = _wrong(seed, views, both)
    if wrong:
        alone = [view for view in wrong if _wrong(seed, [view], both)]
        shown = print_module(views_module(seed, (alone or wrong)[:1]))
        raise Difference(f"views {wrong} of seed {seed} differ, {alone} alone too:\n{shown}")
    return ops_of(views_module(seed, views))


def views(seed: int) -> set[str]:
    """Views of tiles on the CPU."""

    def both(module: Module, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        if seed % 2:
            run(module, STEPS, PassContext())
        return cpu.both(module, (1, 1, 1), args, machine=machine_of(seed // 2))

    return _agree(seed, range(VIEWS), both)


def views_emulated(seed: int) -> set[str]:
    """Views of tiles on the emulated GPU."""

    def both(module: Module, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        shape: Any = {"warps": (1, 2, 4)[seed % 3], "lanes": (2, 8, 32, 4)[seed % 4]}
        disabled = random_disabled(seed, (*STEPS, *simt.LAYOUT_STEPS))
        return simt.both(module, (1, 1, 1), args, seed=seed, disabled=disabled, **shape)

    return _agree(seed, range(EMULATED_VIEWS), both)


# -- elementwise ops ------------------------------------------------------------------------------


def _graph_agrees(seed: int, both: Both) -> set[str]:
    """Compute the graph; show a small one alone that is wrong."""
    graph = random_graph(seed)

    def wrong(graph: Graph) -> list[int]:
        return graph.wrong(*both(graph.module(graph.roots), graph.args()))

    for root in wrong(graph):
        alone = replace(graph, roots=[root])
        small = shrunk(alone, wrong) if wrong(alone) else graph
        shown = print_module(small.module(small.roots))
        raise Difference(f"value {root} of graph {seed} differs:\n{shown}")
    return ops_of(graph.module(graph.roots))


def elements(seed: int) -> set[str]:
    """Elementwise ops on the CPU."""

    def both(module: Module, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        run(module, STEPS, PassContext())
        return cpu.both(module, (1, 1, 1), args, machine=machine_of(seed))

    return _graph_agrees(seed, both)


def elements_amd(seed: int) -> set[str]:
    """Elementwise ops on an emulated AMD processor."""
    arch = AMD_PROCESSORS[seed % len(AMD_PROCESSORS)]

    def both(module: Module, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        return amd.both(arch, module, (1, 1, 1), args, num_warps=1)

    return _graph_agrees(seed, both)


def kernel_amd(seed: int) -> set[str]:
    """Random tile IR on an emulated AMD processor."""
    module, args = _kernel(seed, EMULATED)
    arch = AMD_PROCESSORS[seed % len(AMD_PROCESSORS)]
    warps = (1, 2, 4)[seed // len(AMD_PROCESSORS) % 3]
    both = amd.both(arch, module, (GRID, 1, 1), args, num_warps=warps)
    for i, (x, y) in enumerate(zip(*both, strict=True)):
        if not same_bits(np.asarray(x), np.asarray(y)):
            raise Difference(f"argument {i} differs on {arch}")
    return ops_of(module)


TEXTS: dict[str, tuple[Callable[[int], str], Callable[[str], set[str]]]] = {
    "programs": (random_program, check),
    "programs-launched": (random_program, check_launched),
    "programs-relaunched": (random_program, check_relaunched),
    "programs-laid-out": (random_program, check_laid_out),
    "programs-cross": (random_program, check_cross),
    "programs-emulated": (random_program, check_emulated),
    "programs-amd": (random_program, check_amd),
    "numpy": (numpy_program, numpy_check.check),
    "numpy-emulated": (numpy_program, numpy_check.check_emulated),
    "numpy-launched": (numpy_program, numpy_check.check_launched),
}
"""The checks of programs that are text, which can be reduced: their generators and checks."""


def _of_text(name: str) -> Check:
    program, check = TEXTS[name]
    return lambda seed: check(program(seed))


CHECKS: dict[str, Check] = {
    **{name: _of_text(name) for name in TEXTS},
    "programs-aliased": check_aliased,
    "forms": check_forms,
    "forms-emulated": check_forms_emulated,
    "kernels": kernel,
    "kernels-emulated": kernel_emulated,
    "kernels-amd": kernel_amd,
    "elements": elements,
    "elements-amd": elements_amd,
    "derivatives": check_mixed,
    "derivatives-launched": check_mixed_launched,
    "derivatives-tiled": check_tiled,
    "derivatives-tiled-launched": check_tiled_launched,
    "mutants": check_mutant,
    "mutants-emulated": check_mutant_emulated,
    "mutants-amd": check_mutant_amd,
    "derivatives-shaped": check_shaped,
    "derivatives-shaped-launched": check_shaped_launched,
    "derivatives-composed": check_composed,
    "derivatives-composed-launched": check_composed_launched,
    "derivatives-nested": check_nested,
    "derivatives-nested-launched": check_nested_launched,
    "derivatives-applied": check_applied,
    "derivatives-applied-launched": check_applied_launched,
    "derivatives-applied-narrow": check_applied_narrow,
    "derivatives-applied-twice": check_applied_twice,
    "derivatives-axes": check_axes,
    "derivatives-axes-launched": check_axes_launched,
    "derivatives-axes-twice": check_axes_twice,
    "views": views,
    "views-emulated": views_emulated,
}
