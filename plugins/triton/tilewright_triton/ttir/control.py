"""Program indices, control flow (the dialect `scf`), barriers, assertions and printing."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Region
from tilewright.ir.types import I32, I64, dtype_of, shape_of
from tilewright.ops import control, debug
from tilewright.ops.arith import constant_value
from tilewright_triton.ttir.casts import converted
from tilewright_triton.ttir.numbers import binary, compare, retyped, select
from tilewright_triton.ttir.types import quoted
from tilewright_triton.ttir.writer import EMITTERS, Ref, Writer

AXES = "xyz"


@EMITTERS.of(control.ProgramId)
def emit_program_id(w: Writer, op: control.ProgramId) -> None:
    w.bind(op.result, w.op(f"tt.get_program_id {AXES[op.axis]}", result=I32))


@EMITTERS.of(control.NumPrograms)
def emit_program_count(w: Writer, op: control.NumPrograms) -> None:
    w.bind(op.result, w.op(f"tt.get_num_programs {AXES[op.axis]}", result=I32))


@EMITTERS.of(control.Barrier)
def emit_barrier(w: Writer, op: control.Barrier) -> None:
    w.effect("gpu.barrier")


@EMITTERS.of(control.Return)
def emit_return(w: Writer, op: control.Return) -> None:
    w.line("tt.return")


# -- counted loops --------------------------------------------------------------------------------


@EMITTERS.of(control.For)
def emit_for(w: Writer, op: control.For) -> None:
    """`scf.for` compares signed numbers, and must not step beyond the largest one. A loop that may
    is one of a wider type; one of 64 bits counts its iterations."""
    _require_control_flow(w)
    start, stop, step = w.uses(op.operands[:3])
    element = dtype_of(start.type)
    if value_range(op.step)[0] < 1:
        step = binary(
            w, f"arith.max{_letter(element.is_int_signed())}i", step, w.constant(1, step.type)
        )
    if element.is_int_signed() and _stays_in_range(op) and element.primitive_bitwidth >= 32:
        _loop(w, op, start, stop, step, lambda index: index)
    elif element.primitive_bitwidth < 64:
        start, stop, step = (converted(w, bound, I64) for bound in (start, stop, step))
        _loop(w, op, start, stop, step, lambda index: converted(w, index, element))
    else:
        count, zero, one = _trip_count(w, start, stop, step), w.constant(0, I64), w.constant(1, I64)
        _loop(w, op, zero, count, one, lambda index: _index(w, index, start, step))


def _require_control_flow(w: Writer) -> None:
    if w.straight:
        raise w.unsupported("Triton's back ends have no loops in functions that combine elements")


def _letter(signed: bool) -> str:
    return "s" if signed else "u"


def _stays_in_range(op: control.For) -> bool:
    """Whether the index after the last iteration is known to be a number of its type."""
    high = dtype_of(op.start.type).get_int_max_value()
    stop, step = value_range(op.stop)[1], max(1, value_range(op.step)[1])
    first, last, by = (constant_value(v) for v in (op.start, op.stop, op.step))
    if isinstance(first, int) and isinstance(last, int) and isinstance(by, int):
        return first >= last or control.index_after(first, last, max(1, by)) <= high
    return stop + step - 1 <= high


def _trip_count(w: Writer, start: Ref, stop: Ref, step: Ref) -> Ref:
    """(stop - start + step - 1) / step without overflow; 0 if there is no iteration."""
    one = w.constant(1, start.type)
    distance = binary(w, "arith.subi", binary(w, "arith.subi", stop, start), one)
    count = binary(w, "arith.addi", binary(w, "arith.divui", distance, step), one)
    any_left = compare(w, "lt", start, stop)
    return retyped(select(w, any_left, count, w.constant(0, count.type)), I64)


def _index(w: Writer, index: Ref, start: Ref, step: Ref) -> Ref:
    scaled = binary(w, "arith.muli", retyped(index, dtype_of(step.type)), step)
    return binary(w, "arith.addi", scaled, start)


def _loop(
    w: Writer, op: control.For, start: Ref, stop: Ref, step: Ref, index_of: Callable[[Ref], Ref]
) -> None:
    inits = w.uses(op.inits)
    index = Ref(w.new_name("i"), start.type)
    carried = [Ref(w.new_name("a"), v.type) for v in op.inits]
    types = [v.type for v in op.inits]
    head = f"scf.for {index.name} = {start.name} to {stop.name} step {step.name}"
    if carried:
        pairs = ", ".join(f"{a.name} = {b.name}" for a, b in zip(carried, inits, strict=True))
        head += f" iter_args({pairs}) -> ({', '.join(map(w.type, types))})"
    results = w.results(types, f"{head}  : {w.type(index.type)} {{", "")
    with w.region():
        w.bind(op.body.args[0], index_of(index))
        for value, ref in zip(op.body.args[1:], carried, strict=True):
            w.bind(value, ref)
        w.body(op.body)
        _yield(w, op.body)
    w.line("}", _loop_attributes(op))
    for value, ref in zip(op.results, results, strict=True):
        w.bind(value, ref)


def _loop_attributes(op: control.For) -> dict[str, str]:
    found: dict[str, str] = {}
    if op.num_stages:
        found["tt.num_stages"] = f"{op.num_stages} : i32"
    if op.unroll:
        found["tt.loop_unroll_factor"] = f"{op.unroll} : i32"
    known = {"flatten", "warp_specialize", "disallow_acc_multi_buffer"}
    return found | {f"tt.{hint}": "" for hint in op.hints if hint in known}


def _yield(w: Writer, region: Region, name: str = "scf.yield") -> None:
    values = w.uses(region.terminator.operands)
    if values:
        w.effect(
            f"{name} {', '.join(v.name for v in values)}", ", ".join(w.type(v.type) for v in values)
        )
    else:
        w.line(name)


# -- other control flow ---------------------------------------------------------------------------


@EMITTERS.of(control.If)
def emit_if(w: Writer, op: control.If) -> None:
    if w.straight:
        _select_results(w, op)
        return
    types = [v.type for v in op.results]
    arrow = f" -> ({', '.join(map(w.type, types))})" if types else ""
    results = w.results(types, f"scf.if {w.use(op.condition).name}{arrow} {{", "")
    for region, end in ((op.then, "} else {"), (op.otherwise, "}")):
        with w.region():
            w.body(region)
            _yield(w, region)
        w.line(end)
    for value, ref in zip(op.results, results, strict=True):
        w.bind(value, ref)


def _select_results(w: Writer, op: control.If) -> None:
    """Both branches, which are pure and total, and a select for each result."""
    condition = w.use(op.condition)
    chosen: list[list[Ref]] = []
    for region in (op.then, op.otherwise):
        w.body(region)
        chosen.append(w.uses(region.terminator.operands))
    for value, on_true, on_false in zip(op.results, *chosen, strict=True):
        w.bind(value, select(w, condition, on_true, on_false))


@EMITTERS.of(control.While)
def emit_while(w: Writer, op: control.While) -> None:
    _require_control_flow(w)
    inits = w.uses(op.inits)
    names = w.arguments(op.before)
    pairs = ", ".join(f"{a.name} = {b.name}" for a, b in zip(names, inits, strict=True))
    takes = ", ".join(w.type(v.type) for v in inits)
    gives = ", ".join(w.type(v.type) for v in op.results)
    opened = f"scf.while ({pairs}) : ({takes}) -> ({gives}) {{" if inits else (
        f"scf.while : () -> ({gives}) {{"
    )  # fmt: skip
    results = w.results([v.type for v in op.results], opened, "")
    end = op.before.terminator
    assert isinstance(end, control.Condition)
    with w.region():
        w.body(op.before)
        condition, *passed = w.uses(end.operands)
        listed = " ".join([f"({condition.name})", ", ".join(v.name for v in passed)]).rstrip()
        w.effect(f"scf.condition{listed}", ", ".join(w.type(v.type) for v in passed))
    w.line("} do {")
    with w.region():
        block_arguments(w, op.body)
        w.body(op.body)
        _yield(w, op.body)
    w.line("}")
    for value, ref in zip(op.results, results, strict=True):
        w.bind(value, ref)


def block_arguments(w: Writer, region: Region) -> None:
    """The label of a region's block, which names its arguments."""
    args = w.arguments(region)
    if args:
        w.line(f"^bb0({', '.join(f'{a.name}: {w.type(a.type)}' for a in args)}):")


# -- debugging ------------------------------------------------------------------------------------


@EMITTERS.of(debug.Assume)
def emit_assume(w: Writer, op: debug.Assume) -> None:
    w.effect(f"llvm.intr.assume {w.use(op.condition).name}", "i1")


@EMITTERS.of(debug.Assert)
def emit_assert(w: Writer, op: debug.Assert) -> None:
    condition = w.use(op.condition)
    w.effect(f"tt.assert {condition.name}, {quoted(op.message)}", w.type(condition.type))


@EMITTERS.of(debug.Print)
def emit_print(w: Writer, op: debug.Print) -> None:
    values = w.uses(op.values)
    if any(s != shape_of(v.type) for s, v in zip(op.shapes(), values, strict=True)):
        raise w.unsupported("printing a tile whose extents are not powers of two")
    signs = [int(_is_signed(v)) for v in values]
    attributes = {"hex": "true" if op.hex else "false"}
    attributes["isSigned"] = f"array<i32: {', '.join(map(str, signs))}>" if signs else "array<i32>"
    inner = ", ".join(f"{k} = {v}" for k, v in attributes.items())
    text = f"tt.print {quoted(op.prefix)} {{{inner}}}"
    if values:
        names = ", ".join(v.name for v in values)
        w.effect(f"{text} : {names}", ", ".join(w.type(v.type) for v in values))
    else:
        w.line(text)


def _is_signed(value: Ref) -> bool:
    element = value.type.scalar
    return element.is_int_signed()
