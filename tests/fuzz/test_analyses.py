"""The facts that analyses derive for random kernels hold for the values that these compute."""

from typing import Any

import numpy as np
import pytest

from tests.analysis.recording import elements
from tests.fuzz.ir_generator import Features, random_args, random_module
from tilewright.analysis.affine import Affine, AffineForms
from tilewright.analysis.axis_info import axis_info
from tilewright.analysis.axis_rules import AxisInfo
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Function, Value
from tilewright.ir.interpret import evaluate_function
from tilewright.ir.types import DType, element_of
from tilewright.ops.arith import IntDiv, Rem


def _is_integer(value: Value) -> bool:
    element = element_of(value.type)
    return isinstance(element, DType) and element.is_int()


def _values(seed: int) -> tuple[Function, dict[Value, np.ndarray]]:
    """A random kernel, and the integers that its outermost ops give in one run."""
    rng = np.random.default_rng(seed)
    module = random_module(rng, size=30, features=Features(extremes=False))
    fn = module.entry
    args = random_args(module, rng)
    shown = [r for op in fn.body for r in op.results if _is_integer(r)]
    fn.result_types = [v.type for v in shown]
    end = fn.body.terminator
    end.add_operands(shown)
    end.spans = (len(shown),)
    found: list[Any] = evaluate_function(fn, args)
    return fn, dict(zip(shown, found, strict=True))


def _breaks_an_assumption(fn: Function, values: dict[Value, np.ndarray]) -> bool:
    """Whether something is divided that is negative, or by 0: see `axis_info.py`."""
    for op in fn.walk():
        if not isinstance(op, IntDiv | Rem) or not _is_integer(op.lhs):
            continue
        dividend, divisor = values.get(op.lhs), values.get(op.rhs)
        if dividend is None or divisor is None:
            return True
        if np.any(dividend < 0) or np.any(divisor == 0):
            return True
    return False


def _in_runs(array: np.ndarray, axis: int, length: int) -> np.ndarray:
    """The array as (…, run, place in the run)."""
    moved = np.moveaxis(array, axis, -1)
    return moved.reshape(*moved.shape[:-1], -1, length)


def _check_axis(array: np.ndarray, info: AxisInfo, axis: int) -> str:
    """What is not as claimed, along one axis; "" if all is."""
    runs = _in_runs(array, axis, info.contiguity[axis]).astype(object)
    # Modulo 2^8, the narrowest type that a sum may have wrapped in.
    steps = runs - runs[..., :1] - np.arange(runs.shape[-1])
    if np.any(steps % 256 != 0):
        return "contiguity"
    if np.any(runs[..., 0] % info.divisibility[axis] != 0):
        return "divisibility"
    equal = _in_runs(array, axis, info.constancy[axis])
    if np.any(equal != equal[..., :1]):
        return "constancy"
    if info.constant is not None and np.any(array != info.constant):
        return "constant"
    return ""


def test_axis_info_holds(fuzz_seed: int) -> None:
    fn, values = _values(fuzz_seed)
    if _breaks_an_assumption(fn, values):
        pytest.skip("the kernel divides a negative number, of which the analysis assumes nothing")
    infos = axis_info(fn)
    for value, array in values.items():
        for axis in range(infos[value].rank):
            fault = _check_axis(np.atleast_1d(array), infos[value], axis)
            assert not fault, f"{fault} along {axis} of {value}: {infos[value]} of {array}"


def test_ranges_hold(fuzz_seed: int) -> None:
    _, values = _values(fuzz_seed)
    for value, array in values.items():
        low, high = value_range(value)
        assert low <= int(array.min()), f"{value}: {array}"
        assert int(array.max()) <= high, f"{value}: {array}"


def test_affine_forms_hold(fuzz_seed: int) -> None:
    _, found = _values(fuzz_seed)
    forms = AffineForms(through_scalars=fuzz_seed % 2 == 0)
    values: dict[Any, np.ndarray] = dict(found)
    for value, array in found.items():
        form = forms.of(value)
        if not _are_known(form, values):
            continue
        bits = element_of(value.type).primitive_bitwidth
        for narrow in form.assumed:
            exact = elements(forms.of(narrow), narrow, values)
            if np.any(values[narrow].astype(object) != exact):
                break  # it wraps
        else:
            difference = array.astype(object) - elements(form, value, values)
            assert not np.any(difference % 2**bits), f"{value}: {form} of {array}"


def _are_known(form: Affine, values: dict[Any, np.ndarray]) -> bool:
    """Whether all that the form is made of is among these values."""
    polynomials = (form.start, *form.strides, *(c for c, _ in form.pieces))
    atoms = [atom for p in polynomials for atom in p.atoms()]
    return all(v in values for v in (*atoms, *form.assumed, *(p.value for _, p in form.pieces)))
