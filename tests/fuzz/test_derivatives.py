"""Random kernels: what is proven of their addresses, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.autodiff.harness import forward_module, launch_verdicts
from tests.frontend.kernels import kernel_from
from tests.fuzz.derivatives.applied import FAMILIES, Applied
from tests.fuzz.derivatives.axes import ACROSS, ALONG, LANES, Axes
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
from tests.fuzz.derivatives.composed import STATEMENTS, Composed
from tests.fuzz.derivatives.nested import Nested
from tests.fuzz.derivatives.program import PROGRAMS, Program, arguments
from tests.fuzz.derivatives.shaped import LOADS, OPERATIONS, STORES, Shaped


def test_gradients_of_random_kernels(fuzz_seed: int) -> None:
    check_mixed(fuzz_seed)


def test_gradients_of_random_kernels_on_the_cpu(fuzz_seed: int) -> None:
    check_mixed_launched(fuzz_seed)


def test_gradients_of_shared_tiles(fuzz_seed: int) -> None:
    check_tiled(fuzz_seed)


def test_gradients_of_shared_tiles_on_the_cpu(fuzz_seed: int) -> None:
    check_tiled_launched(fuzz_seed)


def test_gradients_of_shapes_of_published_kernels(fuzz_seed: int) -> None:
    check_shaped(fuzz_seed)


def test_gradients_of_shapes_of_published_kernels_on_the_cpu(fuzz_seed: int) -> None:
    check_shaped_launched(fuzz_seed)


def test_gradients_of_composed_statements(fuzz_seed: int) -> None:
    check_composed(fuzz_seed)


def test_gradients_of_composed_statements_on_the_cpu(fuzz_seed: int) -> None:
    check_composed_launched(fuzz_seed)


def test_gradients_of_nested_statements(fuzz_seed: int) -> None:
    check_nested(fuzz_seed)


def test_gradients_of_nested_statements_on_the_cpu(fuzz_seed: int) -> None:
    check_nested_launched(fuzz_seed)


def test_gradients_of_tiles_of_several_axes(fuzz_seed: int) -> None:
    check_axes(fuzz_seed)


def test_gradients_of_tiles_of_several_axes_on_the_cpu(fuzz_seed: int) -> None:
    check_axes_launched(fuzz_seed)


def test_gradients_of_gradients_of_tiles_of_several_axes(fuzz_seed: int) -> None:
    check_axes_twice(fuzz_seed)


def test_gradients_of_common_kernels(fuzz_seed: int) -> None:
    check_applied(fuzz_seed)


def test_gradients_of_common_kernels_on_the_cpu(fuzz_seed: int) -> None:
    check_applied_launched(fuzz_seed)


def test_gradients_of_narrow_floats(fuzz_seed: int) -> None:
    check_applied_narrow(fuzz_seed)


def test_gradients_of_gradients(fuzz_seed: int) -> None:
    check_applied_twice(fuzz_seed)


def used_by(program: Callable[[np.random.Generator], Any], count: int) -> set[str]:
    """What so many random programs use."""
    return set[str]().union(*(program(np.random.default_rng(seed)).used for seed in range(count)))


def test_random_kinds_of_kernels_are_all_reached() -> None:
    used = used_by(Applied, 150)
    assert {f"kind: {family}" for family in FAMILIES} <= used


def test_random_shapes_reach_each_kind() -> None:
    used = used_by(Shaped, 150)
    assert {f"load: {kind}" for kind in LOADS} <= used
    assert {f"store: {kind}" for kind in STORES} <= used
    assert {f"op: {kind}" for kind in OPERATIONS} <= used
    assert {"two passes", "a sum over blocks", "a state over blocks", "unrolled"} <= used


def test_random_statements_are_all_composed() -> None:
    used = used_by(Composed, 150)
    assert {f"statement: {kind}" for kind in STATEMENTS} <= used
    assert {f"load: {kind}" for kind in ("row", "flat", "shared", "gathered", "pairs")} <= used
    assert {"store: pairs", "store: transposed", "states: tuple", "load: descriptor"} <= used
    assert {"a result without a gradient", "rows: loop", "rows: return"} <= used


def test_random_statements_are_nested() -> None:
    used = used_by(Nested, 100)
    assert {
        f"{kind}, {depth} deep" for kind in ("for", "while", "if") for depth in range(3)
    } <= used
    assert {"break", "store in a loop", "an index that is loaded", "fp32"} <= used
    assert {f"programs: {kind}" for kind in ("program", "flat", "persistent")} <= used


def test_random_axes_reach_each_kind() -> None:
    used = used_by(Axes, 150)
    assert {f"along: {kind}" for kind in ALONG} <= used
    assert {f"across: {kind}" for kind in ACROSS} <= used
    assert {f"lanes: {kind}" for kind in LANES} <= used
    assert {f"{kind}, {depth} deep" for kind in ("for", "sum", "if") for depth in range(2)} <= used
    assert {"product", "a product with a sum", "a function as an argument", "indirect"} <= used
    assert {"function: loop", "function: unrolled", "store in a loop", "added atomically"} <= used


def test_random_kernels_reach_each_kind() -> None:
    used: set[str] = set()
    verdicts: list[bool] = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        program = Program(rng)
        program_text = program.text()
        module = forward_module(kernel_from(program_text), arguments(rng), {})
        used |= program.used
        loads, _ = launch_verdicts(module, program.grid, {**arguments(rng)})
        verdicts += [loads[name].distinct for name in ("a_ptr", "b_ptr")]
    assert {"random strides", "remainder", "sum in a loop", "if", "early return"} <= used
    assert {"replaced index", "running maximum"} <= used
    assert {f"programs by {kind}" for kind in PROGRAMS} <= used
    assert {"shared tiles", "shared tiles in a branch"} <= used
    assert {"scan", "a state, for", "a state, checkpoints", "a state, while"} <= used
    assert {f"mask of {k}" for k in ("rows", "columns", "both", "none", "other", "causal")} <= used
    assert sum(verdicts) >= 5
    assert not all(verdicts)
