"""The facts that analyses derive for random kernels hold for the values that these compute."""

from typing import Any

import numpy as np

from tests.analysis.recording import elements
from tests.fuzz.index_facts import fault_along
from tests.fuzz.ir_generator import Features, random_args, random_module
from tilewright.analysis.affine import Affine, AffineForms
from tilewright.analysis.axis_info import axis_info
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Function, Value
from tilewright.ir.interpret import evaluate_function
from tilewright.ir.types import DType, element_of


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


def test_axis_info_holds(fuzz_seed: int) -> None:
    fn, values = _values(fuzz_seed)
    infos = axis_info(fn, trust_divisors=False)
    for value, array in values.items():
        exact = np.atleast_1d(array).astype(object)
        for axis in range(infos[value].rank):
            # Modulo 2^8, the narrowest type that a sum may have wrapped in.
            fault = fault_along(exact, infos[value], axis, modulus=256)
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
