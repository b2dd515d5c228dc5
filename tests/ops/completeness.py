"""The facets that every op must have; `test_completeness.py` checks them.

Adding an op is: write the class, run the test, add what it reports. See `docs/add-an-op.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tilewright_triton.ttir import print_ttir
from tilewright_triton.ttir.writer import EMITTERS as TTIR_EMITTERS

from tests.ops.ir_cases import FOLDER, ops_of_invalid, ops_of_valid, read_cases, round_trip
from tilewright import autodiff
from tilewright.autodiff import registry as derivatives
from tilewright.base.diagnostics import IRError
from tilewright.compiler.python_source import NoSourceError, python_source
from tilewright.ir.core import Module, is_tile
from tilewright.ir.core import Op as CoreOp
from tilewright.ir.define import example_of
from tilewright.ir.index_map import Every
from tilewright.ir.parser import parse_example
from tilewright.ir.printer import print_function
from tilewright.ir.types import shape_of
from tilewright.lowering import arith, convert, math, registry
from tilewright.lowering.simt.kernel import EMITTERS
from tilewright.ops import control, dot_scaled, reduce
from tilewright.ops.control import Return
from tilewright.ops.math import MathFunction
from tilewright.ops.memory import Access
from tilewright.ops.view import View
from tilewright.passes import pad_rules, padding
from tilewright.passes.layout_choice import ANCHORS
from tilewright.passes.layout_rules import DERIVED, propagates_layout
from tilewright.targets.amd import codegen as amd_codegen
from tilewright.targets.cpu import codegen as cpu_codegen
from tilewright.targets.cpu import lazy, steps
from tilewright.targets.gpu import thread_products
from tilewright.targets.nvidia import codegen

OpClass = type[CoreOp]
Facet = Callable[[OpClass, Path], str | None]

# Importing these registers lowerings, rules of padding, derivatives and emitters of TTIR.
REGISTERING = (
    *(
        arith,
        convert,
        math,
        amd_codegen,
        codegen,
        cpu_codegen,
        thread_products,
        pad_rules,
        autodiff,
        print_ttir,
    ),
)

OF_GPU_PASSES = ("amd", "gpu", "roles", "nvidia", "tensor_memory")
"""The families whose ops are created by passes of the GPU targets, after tiles are padded."""

OF_GPUS = (*OF_GPU_PASSES, "asm")
"""The families that only GPUs lower."""

NO_EMITTER = (
    control.Call, control.Condition, control.Return, control.WithRule, control.Yield,
    dot_scaled.DotScaled, reduce.Reduce,
)  # fmt: skip
"""Ops that the walk over a kernel handles itself, or that no kernel has after inlining,
differentiation and the expansion of what a target does not compute."""

WITHOUT_SPELLING = {
    "is rejected in kernels with derivatives": {
        "asm.effect", "asm.inline", "atomic.cas", "atomic.load", "atomic.poll", "atomic.store",
        "tile.dot_scaled", "tile.map",
    },
    "is gone before derivation, or of no use after it": {
        "arith.hint", "mark.residual", "control.call", "control.with_rule", "debug.assume",
        "debug.print",
    },
    "has a formula in the language": {"mark.function_result"},
}  # fmt: skip
"""Ops that derived kernels, printed as Python, do not have, by the reason."""


def stem_of(cls: OpClass) -> str:
    """The stem that the files of an op share: `reduce` for `tilewright/ops/reduce.py`."""
    return cls.__module__.rpartition(".")[2]


def example(cls: OpClass) -> CoreOp | None:
    """The op in the example of its docstring."""
    return next((op for op in parse_example(example_of(cls)).body if type(op) is cls), None)


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
    op = example(cls)
    takes_elements = op is not None and any(shape_of(v.type) for v in op.operands)
    if op is not None and op.results and takes_elements:
        return "has neither `index_maps` nor the reason in `no_index_maps`"
    return None


def exact_view(cls: OpClass, folder: Path) -> str | None:
    """Consumers of a `View` read the operand at the indices that `index_maps` states."""
    op = None if documentation(cls, folder) else example(cls)
    if not isinstance(op, View):
        return None
    maps = [op.index_maps(r)[0] for r in range(len(op.results))]
    if all(found is not None and Every() not in found.axes for found in maps):
        return None
    return (
        "derives from View, but its index map does not state which element of `src` each result "
        "element is (`Every`): derive from Op, or state it"
    )


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
    if issubclass(cls, MathFunction):
        return (
            "has no lowering: add its emitter to MATH in tilewright/lowering/math.py, and its "
            "class to those of lower_math in tilewright/lowering/arith.py"
        )
    if cls.elementwise:
        return f"has no lowering: write one with @lowers in tilewright/lowering/{where}"
    return (
        f"has no GPU lowering: write one with @emits in tilewright/lowering/simt/{where}, a module "
        "that REGISTERED in tilewright/targets/gpu/codegen.py lists"
    )


def cpu_lowering(cls: OpClass, folder: Path) -> str | None:
    if cls.elementwise or cls in NO_EMITTER or stem_of(cls) in OF_GPUS:
        return None
    if cls in lazy.RULES and cls.no_index_maps:
        return "has no `index_maps`, on which the plan of ops with @computes is based"
    if issubclass(cls, View) or cls in lazy.RULES or cls in steps.STEPS:
        return None
    return (
        "has no CPU lowering: write one for an element of its result with @computes in "
        "tilewright/targets/cpu/evaluate.py, or one for all of it in "
        f"tilewright/targets/cpu/{stem_of(cls)}.py, with a line in "
        "tilewright/targets/cpu/rare_steps.py"
    )


def padding_rule(cls: OpClass, folder: Path) -> str | None:
    """GPUs round the extents of tiles up to powers of two."""
    if cls.elementwise or cls in NO_EMITTER or stem_of(cls) in OF_GPUS:
        return None
    op = None if documentation(cls, folder) else example(cls)
    if op is None or not any(shape_of(v.type) for v in (*op.operands, *op.results)):
        return None
    if index_maps(cls, folder):
        return None
    if not padding.needs_rule(op) or cls in padding.RULES:
        return None
    return (
        "has no rule for tiles whose extents are not powers of two: write one with @pads in "
        "tilewright/passes/pad_rules.py"
    )


def layout_rule(cls: OpClass, folder: Path) -> str | None:
    """GPUs distribute the elements of tiles over threads."""
    if cls.elementwise or cls in NO_EMITTER or stem_of(cls) in OF_GPUS:
        return None
    op = None if documentation(cls, folder) else example(cls)
    if op is None or op.regions or isinstance(op, Access):
        return None
    if not any(map(is_tile, op.operands)) or not any(map(is_tile, op.results)):
        return None
    if propagates_layout(op) or cls in DERIVED or cls in ANCHORS:
        return None
    return (
        "has no layouts on GPUs: state them with @derives_layouts in "
        "tilewright/passes/layout_rules.py"
    )


def derivative(cls: OpClass, folder: Path) -> str | None:
    if cls in derivatives.RULES:
        return None
    return (
        "has no derivative: write a rule, or declare why there is none, in "
        "tilewright/autodiff/rules_*.py"
    )


def triton_text(cls: OpClass, folder: Path) -> str | None:
    """Triton's back ends get tile IR as text."""
    if cls in TTIR_EMITTERS or cls in NO_EMITTER or stem_of(cls) in OF_GPU_PASSES:
        return None
    return (
        "has no text for Triton's back ends: write it with @EMITTERS.of in plugins/triton/"
        "tilewright_triton/ttir/, or raise `w.unsupported` there with an alternative"
    )


def spelling(cls: OpClass, folder: Path) -> str | None:
    """A derived kernel is printed as Python."""
    if cls.terminator or stem_of(cls) in OF_GPU_PASSES or documentation(cls, folder):
        return None
    reason = next((r for r, names in WITHOUT_SPELLING.items() if cls.name in names), None)
    fn = parse_example(example_of(cls))
    fn.arg_names = [f"arg{i}" for i in range(len(fn.args))]
    if fn.body.last is None or not fn.body.last.terminator:
        fn.body.append(Return([]))
    try:
        python_source(Module([fn]))
    except NoSourceError as error:
        if reason is None and cls.name in str(error):
            return (
                "has no spelling in derived kernels that are printed as Python: add its name to "
                "FUNCTIONS in tilewright/compiler/python_source.py, or a reason to "
                "WITHOUT_SPELLING in tests/ops/completeness.py"
            )
        return None
    return f"has a spelling as Python, though it {reason}" if reason is not None else None


# Another required part of an op is one more function here.
FACETS: tuple[Facet, ...] = (
    documentation,
    meaning,
    index_maps,
    exact_view,
    valid_case,
    invalid_case,
    lowering,
    cpu_lowering,
    layout_rule,
    padding_rule,
    derivative,
    triton_text,
    spelling,
)


def missing_facets(cls: OpClass, folder: Path = FOLDER) -> list[str]:
    """The parts that the op lacks, one sentence each."""
    found = [facet(cls, folder) for facet in FACETS]
    return [f"{cls.name} {fault}" for fault in found if fault]
