"""Gradients of softmax load its stored results, where these are what would be computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import check_gradients, copied, directions, run_forward, vjp
from tilewright.autodiff import reverse, softmax_results
from tilewright.autodiff.softmax_results import SoftmaxResults
from tilewright.base.diagnostics import CompilationError
from tilewright.ir.core import Module
from tilewright.ops.math import Exp, Exp2

KERNEL = """
def kernel(x_ptr, y_ptr, z_ptr, n, s):
    p = tl.program_id(0)
    i = tl.arange(0, 8)
    inside = i < n
    x = tl.load(x_ptr + p * 8 + i{load})
    m = tl.max({of}, axis=0)
    e = {exp}
    {then}
    l = tl.sum({summed}, axis=0)
    tl.store(y_ptr + p * 8 + i, {share}{store})
    {last}
"""
PLAIN = {
    "load": ", mask=inside, other=-float('inf')", "of": "x", "exp": "tl.exp(x - m)", "then": "",
    "summed": "e", "share": "e / l", "store": ", mask=inside", "last": "",
}  # fmt: skip
Change = dict[str, str]
NO_MASKS: Change = {"load": "", "store": ""}
WHERE: Change = {"load": ", mask=inside", "of": "tl.where(inside, x, -float('inf'))"}
LOADED: dict[str, Change] = {
    "masked": {},
    "unmasked": NO_MASKS,
    "powers of two": {"exp": "tl.exp2((x - m) * 1.5)"},
    "a reciprocal": {"share": "e * (1.0 / l)"},
    "masked by a select": {
        **WHERE, "exp": "tl.where(inside, tl.exp(x - m), 0.0)",
    },
    "-inf by a select": {
        **WHERE, "exp": "tl.exp(tl.where(inside, x, -float('inf')) - m)",
    },
    "the share is used": {"last": "tl.store(z_ptr + p * 8 + i, tl.sin(e / l), mask=inside)"},
    "the term is used": {"last": "tl.store(z_ptr + p * 8 + i, tl.sin(e / l) * e / l, mask=inside)"},
    "the row is used": {"last": "tl.store(z_ptr + p * 8 + i, x * x * (e / l), mask=inside)"},
    "a scale": {**NO_MASKS, "of": "x * s", "exp": "tl.exp(x * s - m)"},
}  # fmt: skip
COMPUTED: dict[str, Change] = {
    "lanes that are not stored": {"load": "", "store": ", mask=inside"},
    "lanes loaded as 0": {"load": ", mask=inside, other=0.0"},
    "-inf, times -1": {**WHERE, "exp": "tl.exp(x * -1.0 - m)", "of": "x * -1.0"},
    "a masked scale": {"of": "x * s", "exp": "tl.exp(x * s - m)"},
    "another number in lanes that are not loaded": {
        "load": ", mask=inside, other=0.5)\n    t = tl.load(x_ptr + p * 8",
        "of": "x - t * i", "exp": "tl.exp(x - t * i - m)",
    },
    "a negative sum": {
        **NO_MASKS, "summed": "e * (x - 2.0)",
        "last": "tl.store(z_ptr + p * 8 + i, tl.sin(tl.maximum(e, e * x * 1.3) / l))",
    },
    "a sum without a maximum": {
        **NO_MASKS, "exp": "tl.exp(x)",
        "last": "tl.store(z_ptr + p * 8 + i, l + (m - m))",
    },
    "a maximum that is a result": {**NO_MASKS, "last": "tl.store(z_ptr + p * 8 + i, x - m)"},
    "two terms": {**NO_MASKS, "then": "f = tl.exp(x * 0.5 - m)", "summed": "e + f"},
    "another term": {
        **NO_MASKS, "then": "f = tl.exp(x * 0.5 - m)",
        "last": "tl.store(z_ptr + p * 8 + i, f / l)", "share": "tl.sin(e / l)",
    },
    "a term and another": {
        **NO_MASKS, "then": "f = tl.exp(x * 0.5 - m)",
        "last": "tl.store(z_ptr + p * 8 + i, tl.sin(f / l))",
    },
}  # fmt: skip


def arguments() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x_ptr": rng.uniform(0.5, 1, (4, 8)), "y_ptr": np.zeros((4, 8)),
        "z_ptr": np.zeros((4, 8)), "n": 6, "s": 1.25,
    }  # fmt: skip


def checked(change: Change) -> Module:
    outputs = ("y_ptr", "z_ptr") if change.get("last") else ("y_ptr",)
    text = KERNEL.format(**{**PLAIN, **change})
    return check_gradients(text, 4, arguments(), ("x_ptr",), outputs)


def exponentials(change: Change, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many the gradient kernel computes; its results are checked."""
    module = checked(change)
    args = arguments()
    run_forward(module, 4, args)
    outputs = ("y_ptr", "z_ptr") if change.get("last") else ("y_ptr",)
    made: list[Module] = []
    emitted = reverse.ReverseWalk.run

    def run(walk: Any) -> Any:
        found = emitted(walk)
        made.append(found.module)
        return found

    monkeypatch.setattr(reverse.ReverseWalk, "run", run)
    vjp(module, 4, copied(args), directions(np.random.default_rng(0), args, outputs), ("x_ptr",))
    return sum(isinstance(op, Exp | Exp2) for op in made[-1].walk())


@pytest.mark.parametrize("case", LOADED)
def test_results_are_loaded(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exponentials(LOADED[case], monkeypatch) == 0


@pytest.mark.parametrize("case", COMPUTED)
def test_other_values_are_computed(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exponentials(COMPUTED[case], monkeypatch) > 0


def is_true(*given: Any) -> bool:
    return True


MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "lanes that are not stored are 0": (
        softmax_results, "_is_zero_where_not_stored", is_true, "lanes that are not stored",
    ),
    "lanes that are loaded are -inf": (
        softmax_results, "_is_lowest", is_true, "another number in lanes that are not loaded",
    ),
    "the sum changes with the maximum": (
        softmax_results, "_has_factor_of", is_true, "a sum without a maximum",
    ),
    "the sum is positive": (softmax_results, "_is_positive", is_true, "a negative sum"),
    "a maximum is another one": (
        SoftmaxResults, "maxima", property(lambda found: set[Any](), lambda *given: None),
        "a term and another",
    ),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MUTANTS)
def test_each_condition_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, replacement, case = MUTANTS[name]
    checked(COMPUTED[case])
    monkeypatch.setattr(place, attribute, replacement, raising=False)
    with pytest.raises((AssertionError, CompilationError)):
        checked(COMPUTED[case])
