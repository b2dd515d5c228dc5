"""The facets that every op must have; `test_completeness.py` checks them.

Adding an op is: write the class, run the test, do what it says. See `docs/add-an-op.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.ops.ir_cases import FOLDER, ops_of_invalid, ops_of_valid, read_cases, round_trip
from tilewright.base.diagnostics import IRError
from tilewright.ir.core import Op as CoreOp
from tilewright.ir.define import example_of
from tilewright.ir.parser import parse_example
from tilewright.ir.printer import print_function
from tilewright.ir.types import shape_of
from tilewright.lowering import arith, convert, math, registry
from tilewright.lowering.simt.kernel import EMITTERS
from tilewright.ops import control, reduce
from tilewright.ops.control import Return
from tilewright.targets.nvidia import codegen

OpClass = type[CoreOp]
Facet = Callable[[OpClass, Path], str | None]

LOWERING_MODULES = (arith, convert, math, codegen)  # importing them registers the lowerings

NO_EMITTER = (control.Call, control.Condition, control.Return, control.Yield, reduce.Reduce)
"""Ops that the walk over a kernel handles itself, or that no kernel has after inlining."""


def stem_of(cls: OpClass) -> str:
    """The stem that the files of an op share: `reduce` for `tilewright/ops/reduce.py`."""
    return cls.__module__.rpartition(".")[2]


def documentation(cls: OpClass, folder: Path) -> str | None:
    if "__doc__" not in cls.__dict__ or not (cls.__doc__ or "").strip():
        return "has no docstring"
    text = example_of(cls)
    if not text:
        return "has no example in its docstring"
    try:
        fn = parse_example(text)
        found = [type(op) for op in fn.body]
        if fn.body.last is None or not fn.body.last.terminator:
            fn.body.append(Return([]))
        round_trip(print_function(fn))
    except (IRError, AssertionError) as error:
        return f"has an example that does not parse, verify and round-trip: {error}"
    return None if cls in found else f"has an example without {cls.name}"


def meaning(cls: OpClass, folder: Path) -> str | None:
    evaluates = cls.evaluate is not CoreOp.evaluate
    executes = cls.execute is not CoreOp.execute
    if evaluates and cls.no_evaluate:
        return "has both `evaluate` and a reason why it has none"
    if not (evaluates or cls.no_evaluate):
        return "has neither `evaluate` nor the reason in `no_evaluate`"
    if not (evaluates or executes or cls.terminator):
        return "has neither `evaluate` nor `execute`"
    return None


def index_maps(cls: OpClass, folder: Path) -> str | None:
    """Each op on tiles with results declares how axes map through it."""
    declares = cls.elementwise or cls.index_maps is not CoreOp.index_maps
    if declares and cls.no_index_maps:
        return "has both `index_maps` and a reason why it has none"
    if declares or cls.no_index_maps or documentation(cls, folder):
        return None
    op = next((op for op in parse_example(example_of(cls)).body if type(op) is cls), None)
    takes_elements = op is not None and any(shape_of(v.type) for v in op.operands)
    if op is not None and op.results and takes_elements:
        return "has neither `index_maps` nor the reason in `no_index_maps`"
    return None


def valid_case(cls: OpClass, folder: Path) -> str | None:
    path = folder / f"{stem_of(cls)}.ir"
    if any(cls in ops_of_valid(case) for case in read_cases(path)):
        return None
    return f"has no valid case in tests/ops/{path.name}"


def invalid_case(cls: OpClass, folder: Path) -> str | None:
    path = folder / f"{stem_of(cls)}.invalid.ir"
    if any(cls in ops_of_invalid(case) for case in read_cases(path)):
        return None
    return f"has no invalid case in tests/ops/{path.name}"


def lowering(cls: OpClass, folder: Path) -> str | None:
    if cls in NO_EMITTER or cls in EMITTERS or "" in registry.LOWERINGS.get(cls, {}):
        return None
    where = f"{stem_of(cls)}.py"
    if cls.elementwise:
        return f"has no lowering: write one with @lowers in tilewright/lowering/{where}"
    return f"has no GPU lowering: write one with @emits in tilewright/lowering/simt/{where}"


# Another required part of an op is one more function here.
FACETS: tuple[Facet, ...] = (
    documentation,
    meaning,
    index_maps,
    valid_case,
    invalid_case,
    lowering,
)


def missing_facets(cls: OpClass, folder: Path = FOLDER) -> list[str]:
    """The parts that the op lacks, one sentence each."""
    found = [facet(cls, folder) for facet in FACETS]
    return [f"{cls.name} {fault}" for fault in found if fault]
