"""The witnesses of all conditions; see `mutants.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.autodiff import (
    cases,
    recurrences,
    single_conditions,
    test_in_place,
    test_joined_loops,
    test_mutations,
    test_mutations_of_loops,
    test_residuals,
    test_softmax_results,
    test_wraps,
)
from tests.autodiff.harness import check_gradients
from tests.fuzz.derivatives.check import check_mixed, check_shaped, check_tiled

Witnesses = dict[str, Callable[[], object]]


def all_witnesses(seeds: int = 0) -> Witnesses:
    """The witnesses by name.

    Args:
        seeds: how many random kernels of each kind, and if any, all other kernels of the tests.
    """
    found: Witnesses = {}
    for table in (test_mutations.CONDITIONS, test_mutations_of_loops.CONDITIONS):
        found |= {witness.__name__: witness for *_, witness in table.values()}
    found |= {f"of {name}": witness for name, witness in single_conditions.WITNESSES.items()}
    for name, change in (test_softmax_results.COMPUTED | test_softmax_results.LOADED).items():
        found[f"softmax results: {name}"] = partial(test_softmax_results.checked, change)
    for case, given in (test_joined_loops.JOINED | test_joined_loops.NOT_JOINED).items():
        text = test_joined_loops.kernel(*given)
        found[f"joined loops: {case}"] = partial(test_joined_loops.agrees, text)
    for why in test_in_place.REJECTED:
        found[f"in place: {why}"] = partial(test_in_place.check_rejected, why)
    for change in test_residuals.COMPUTED + test_residuals.LOADED:
        found[f"residuals: {change}"] = partial(_residual, change)
    for change in test_wraps.UNUSED + test_wraps.USED:
        found[f"wraps: {change}"] = partial(_wrap, change)
    another = test_wraps.test_a_mask_of_another_iteration_does_not_count
    found["wraps: of another iteration"] = another
    if seeds:
        found |= {f"case: {name}": partial(_case, name) for name in cases.NAMES}
        found |= {
            f"loop: {k}": partial(recurrences.check, v, 5) for k, v in recurrences.LOOPS.items()
        }
    for check in (check_tiled, check_mixed, check_shaped):
        found |= {f"{check.__name__} {seed}": partial(check, seed) for seed in range(seeds)}
    return found


def _case(name: str) -> None:
    text, grid, args, wrt, outputs, constexprs = cases.case(name)
    check_gradients(text, grid, args, wrt, outputs, constexprs)


def _residual(change: dict[str, str]) -> None:
    module, args = test_residuals.kernel_of(change)
    check_gradients(module, 3, args, ("x_ptr", "v_ptr"), ("y_ptr",), aux=("lse_ptr",))


def _wrap(change: dict[str, str]) -> None:
    test_wraps.check_unchanged(change)
