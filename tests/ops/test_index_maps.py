"""What ops declare of how their axes pass through, against what they compute.

Each op of the valid cases and of the examples that computes numbers from numbers is run on random
ones, then again with one element of one operand changed. Where the declaration states that the
element does not go, nothing may change; of an op that only moves elements, every place must hold
the declared element.
"""

from __future__ import annotations

import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.ops as ops
from tests.ops.ir_cases import FOLDER, read_cases, round_trip
from tilewright.ir import index_map
from tilewright.ir.core import Function, Op
from tilewright.ir.define import REGISTRY, example_of
from tilewright.ir.index_map import (
    Along,
    Every,
    Fixed,
    IndexMap,
    Part,
    Picked,
    Reversed,
    Shifted,
    reshape_groups,
    reshaped,
)
from tilewright.ir.interpret import evaluate_function
from tilewright.ir.parser import parse_example
from tilewright.ir.types import DType, element_of, numpy_of, shape_of
from tilewright.ops.asm import InlineAsm, InlineAsmEffect
from tilewright.ops.control import Return
from tilewright.ops.shape import Cat, Join
from tilewright.ops.view import View

MOST_ELEMENTS = 300
MOST_CHANGES = 24


def _has_maps(op: Op) -> bool:
    return bool(op.operands and op.results) and not op.no_index_maps


def _ops() -> list[tuple[str, Op]]:
    found: list[tuple[str, Op]] = []
    for stem in ops.__all__:
        for case in read_cases(FOLDER / f"{stem}.ir"):
            walked = round_trip(case.text, case.file).walk()
            found += [(f"{case.name}-{i}-{op.name}", op) for i, op in enumerate(walked)]
    for name, cls in REGISTRY.items():
        found += [(f"example-{name}", op) for op in parse_example(example_of(cls)).body]
    return [(name, op) for name, op in found if _has_maps(op)]


CASES = _ops()


@pytest.mark.parametrize(("name", "op"), CASES, ids=[name for name, _ in CASES])
def test_maps_fit_the_shapes(name: str, op: Op) -> None:
    for r, result in enumerate(op.results):
        maps = op.index_maps(r)
        assert len(maps) == len(op.operands)
        for operand, found in zip(op.operands, maps, strict=True):
            if found is not None:
                assert found.source == shape_of(operand.type)
                assert found.target == shape_of(result.type)
                assert len(found.axes) == len(found.source)


def _random(op: Op, rng: np.random.Generator) -> list[Any] | None:
    """Numbers for the operands that are small and all finite; None where some are no numbers."""
    arrays: list[Any] = []
    for operand in op.operands:
        element = element_of(operand.type)
        if not isinstance(element, DType):
            return None
        numbers = rng.integers(0, 2 if element.is_bool() else 9, shape_of(operand.type))
        arrays.append(np.asarray(numbers).astype(numpy_of(operand.type)))
    return arrays


def _run(op: Op, args: list[Any]) -> list[Any]:
    fn = Function("f", [v.type for v in op.operands])
    copy = op.clone({})
    for i, arg in enumerate(fn.args):
        copy.set_operand(i, arg)
    fn.body.append(copy)
    fn.body.append(Return(copy.results))
    fn.result_types = [r.type for r in copy.results]
    return evaluate_function(fn, args)


def _runs(op: Op) -> bool:
    """Whether the op computes what it does from its operands' numbers alone."""
    numbers = all(isinstance(element_of(v.type), DType) for v in (*op.operands, *op.results))
    if not numbers or op.reads_memory or isinstance(op, InlineAsm | InlineAsmEffect):
        return False
    if any(v.region is op.parent for inner in op.walk() if inner is not op for v in inner.operands):
        return False  # its region uses values of the case
    sizes = [int(np.prod(shape_of(v.type))) for v in (*op.operands, *op.results)]
    return max(sizes) <= MOST_ELEMENTS


RUN = [(name, op) for name, op in CASES if _runs(op)]


def _may_hold(found: IndexMap | None, source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether the element of the result may depend on that of the operand."""
    place = None if found is None else found.at(target)
    return place is not None and all(p in (None, s) for p, s in zip(place, source, strict=True))


@pytest.mark.parametrize(("name", "op"), RUN, ids=[name for name, _ in RUN])
def test_changed_element_is_visible_only_where_declared(name: str, op: Op) -> None:
    rng = np.random.default_rng(len(name))
    args = _random(op, rng)
    assert args is not None
    before = _run(op, args)
    for i, operand in enumerate(op.operands):
        places = list(product(*map(range, shape_of(operand.type))))
        for at in rng.permutation(len(places))[:MOST_CHANGES]:
            source = places[at]
            changed = [a.copy() for a in args]
            old = changed[i][source]
            changed[i][source] = not old if old.dtype == np.bool_ else old + old.dtype.type(1)
            for r, after in enumerate(_run(op, changed)):
                found = op.index_maps(r)[i]
                for place in np.argwhere(after != before[r]).tolist():
                    assert _may_hold(found, source, tuple(place)), (i, source, r, place, found)


VIEWS = [(name, op) for name, op in RUN if isinstance(op, View | Join | Cat)]


@pytest.mark.parametrize(("name", "op"), VIEWS, ids=[name for name, _ in VIEWS])
def test_view_holds_the_declared_elements(name: str, op: Op) -> None:
    """The inverse must name the same places from the other side."""
    args = _random(op, np.random.default_rng(0))
    assert args is not None
    sources = [0] if isinstance(op, View) else [0, 1]
    for i in sources:  # neighbours differ
        numbers = np.arange(args[i].size).reshape(args[i].shape) % 100 + 13 * i
        args[i] = numbers.astype(args[i].dtype)
    for r, result in enumerate(_run(op, args)):
        for target in product(*map(range, result.shape)):
            held = [_held(op.index_maps(r)[i], args[i], target, args) for i in sources]
            assert [h for h in held if h is not None] == [result[target]]


def _held(
    found: IndexMap | None, array: Any, target: tuple[int, ...], args: list[Any]
) -> Any | None:
    """The element of an operand at an index of the result; None where none is."""
    assert found is not None
    place = found.at(target)
    if place is None:
        return None
    at: list[int] = []
    for coordinate, term, extent in zip(place, found.axes, found.source, strict=True):
        if coordinate is None:
            assert isinstance(term, Picked)
            coordinate = min(max(int(args[term.operand][target]), 0), extent - 1)
        at.append(coordinate)
    back = found.inverse().at(at)
    assert back is not None
    assert all(b in (None, t) for b, t in zip(back, target, strict=True)), (found, back)
    return array[tuple(at)]


def test_every_op_that_moves_elements_is_among_the_cases() -> None:
    # Not those that tests declare.
    views = {
        c for c in View.__subclasses__() if vars(sys.modules[c.__module__]).get(c.__name__) is c
    }
    assert {type(op) for _, op in VIEWS} == {Join, Cat, *views}


@pytest.mark.parametrize(
    ("shape", "to", "axes"),
    [
        ((4, 8), (4, 8), (Along(0), Along(1))),
        ((4, 8), (4, 1, 8), (Along(0), Along(2))),
        ((4, 1, 8), (4, 8), (Along(0), Fixed(0), Along(1))),
        ((4, 8), (32,), (Part((0,), 8, 4), Part((0,), 1, 8))),
        ((32, 3), (4, 8, 3), (Part((0, 1), 1, 32), Along(2))),
        ((4, 8), (8, 4), (Part((0,), 2, 4), Part((0, 1), 1, 8))),
        ((2, 4, 8), (8, 8), (Part((0,), 4, 2), Part((0,), 1, 4), Along(1))),
        ((6, 4), (8, 3), (Part((0, 1), 4, 6), Part((0, 1), 1, 4))),
        ((), (1, 1), ()),
        ((1,), (), (Fixed(0),)),
    ],
)
def test_reshape_groups_are_minimal(shape: Any, to: Any, axes: Any) -> None:
    assert reshaped(shape, to).axes == axes


SHAPES = [
    *(
        (12,),
        (1, 12),
        (3, 4),
        (4, 3),
        (2, 6),
        (6, 2),
        (2, 3, 2),
        (2, 2, 3),
        (3, 1, 4),
        (1, 2, 6, 1),
    ),
]


@pytest.mark.parametrize(("shape", "to"), list(product(SHAPES, SHAPES)))
def test_reshape_is_row_major(shape: tuple[int, ...], to: tuple[int, ...]) -> None:
    found = reshaped(shape, to)
    for number, target in enumerate(product(*map(range, to))):
        place = tuple(int(i) for i in np.unravel_index(number, shape))
        assert found.at(target) == place
        assert found.inverse().at(place) == target


def test_groups_of_a_reshape_are_the_smallest() -> None:
    assert list(reshape_groups((4, 8, 3), (32, 1, 3))) == [((0, 1), (0,)), ((2,), (2,))]
    assert list(reshape_groups((6, 4, 5), (8, 3, 5))) == [((0, 1), (0, 1)), ((2,), (2,))]
    assert list(reshape_groups((1, 1), ())) == []


def test_inverse_exchanges_repeated_and_dropped_axes() -> None:
    repeated = index_map.broadcast((4, 1), (4, 8))
    assert repeated.inverse().axes == (Along(0), Every())
    half = index_map.with_new_axis((4,), 1, 2, 1)
    assert half.at((3, 0)) is None
    assert half.at((3, 1)) == (3,)
    assert half.inverse().axes == (Along(0), Fixed(1))
    assert half.inverse().inverse() == half
    later = index_map.concatenated((4,), 0, 2, 6)
    assert later.axes == (Shifted(0, -2),)
    assert later.inverse().at((0,)) == (2,)
    assert index_map.replaced((4,), 0, Reversed(0)).inverse().at((0,)) == (3,)
    assert not index_map.without_axis((4, 8), 1, Every()).single


def test_shape_ops_are_handled_by_their_maps() -> None:
    """Analyses, passes and targets that look for an op restate what its `index_maps` declares; one
    emitter moves its elements."""
    package = Path(tilewright.__file__).parent
    folders = "analysis", "layout", "lowering", "passes", "targets"
    files = [file for folder in folders for file in (package / folder).rglob("*.py")]
    looks = re.compile(r"^(?!.*import).*(case ExpandDims|ExpandDims(?!\())", re.MULTILINE)
    assert [file.name for file in files if looks.search(file.read_text("utf-8"))] == ["shape.py"]
