"""Structured control flow: loops and conditionals with scalars in registers and tiles in buffers.

A carried tile has one buffer for the whole loop, updated in place at the end of each iteration.
Values that read a carried buffer at other elements than their own are computed into temporaries
before any buffer is overwritten.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.ir.core import Value, is_tile
from tilewright.lowering.counted_loop import at_least_one
from tilewright.lowering.emit import I64, Block, V, const
from tilewright.ops import control
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.combine import trip_count
from tilewright.targets.cpu.evaluate import scalar
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lazy import is_lazy
from tilewright.targets.cpu.level import Level
from tilewright.targets.cpu.nest import copy_tiles
from tilewright.targets.cpu.steps import emit_region, emits


@emits(control.For)
def emit_for(kernel: Kernel, level: Level, op: control.For) -> None:
    """A counted loop. Its trip count is computed first, in 64 bits, so that overflow of the index
    after the last iteration cannot affect it."""
    b = kernel.b
    start = scalar(level, op.start)
    stop, step = scalar(level, op.stop), scalar(level, op.step)
    element = ir.dtype_of(op.start.type)
    count = trip_count(b, element, start, stop, step)
    step = at_least_one(b, step, signed=element.is_int_signed())
    args = op.body.args[1:]
    buffers = _carry_tiles(kernel, level, args, op.inits)
    scalars = [scalar(level, v) for v in op.inits if not is_tile(v)]
    before, head, done = b.current, b.block("for"), b.block("endfor")
    b.cond_br(b.icmp("sgt", count, const(I64, 0)), head, done)
    b.at(head)
    k, i = b.phi(I64), b.phi(start.type)
    phis = [b.phi(s.type) for s in scalars]
    kernel.env[op.body.args[0]] = i.value
    _bind_scalars(kernel, args, [p.value for p in phis])
    inner = Level(kernel, head)
    emit_region(kernel, op.body, inner)
    yielded = op.body.terminator.operands
    following = _yield_scalars(inner, yielded)
    _yield_tiles(kernel, inner, args, yielded, buffers)
    following_k = b.add(k.value, const(I64, 1))
    following_i = b.add(i.value, step)
    latch = b.current
    b.cond_br(b.icmp("slt", following_k, count), head, done)
    for phi, first, later in [
        (k, const(I64, 0), following_k),
        (i, start, following_i),
        *zip(phis, scalars, following, strict=True),
    ]:
        phi.add(first, before)
        phi.add(later, latch)
    b.at(done)
    _bind_scalars(kernel, op.results, b.merge((before, scalars), (latch, following)))
    # Without an iteration the carried buffers still have the initial values: tiles need no merge.
    _bind_tiles(kernel, op.results, buffers)


def _carry_tiles(
    kernel: Kernel, level: Level, args: list[Value], inits: list[Value]
) -> list[Buffer | None]:
    """Buffers for the carried tiles, initialised; None for scalars."""
    buffers = [kernel.buffer(a) if is_tile(a) else None for a in args]
    pairs = [(v, buf) for v, buf in zip(inits, buffers, strict=True) if buf is not None]
    copy_tiles(kernel, level, pairs)
    _bind_tiles(kernel, args, buffers)
    kernel.b.at(level.block)
    return buffers


def _bind_tiles(kernel: Kernel, values: list[Value], buffers: list[Buffer | None]) -> None:
    for value, buffer in zip(values, buffers, strict=True):
        if buffer is not None:
            kernel.env[value] = buffer


def _bind_scalars(kernel: Kernel, values: list[Value], scalars: list[V]) -> None:
    remaining = iter(scalars)
    for value in values:
        if not is_tile(value):
            kernel.env[value] = next(remaining)


def _yield_scalars(level: Level, yielded: list[Value]) -> list[V]:
    result = [scalar(level, v) for v in yielded if not is_tile(v)]
    level.block = level.b.current
    return result


def _yield_tiles(
    kernel: Kernel,
    level: Level,
    args: list[Value],
    yielded: list[Value],
    buffers: list[Buffer | None],
) -> None:
    """Write the next values of the carried tiles to their buffers.

    A value that reads only its own buffer, and each element only for the same element, is computed
    in place; others are first computed into temporary buffers.
    """
    pairs: list[tuple[Value, Buffer]] = []
    for arg, value, buffer in zip(args, yielded, buffers, strict=True):
        if buffer is None or value is arg:
            continue
        pairs.append((value, buffer))
        if value in kernel.env or not _reads_other(kernel, value, buffer, buffers):
            continue
        temporary = kernel.buffer(value)
        copy_tiles(kernel, level, [(value, temporary)])
        kernel.env[value] = temporary
    # A carried tile may be the next value of another (`a, b = b, a`) without a temporary: a nest
    # evaluates all tiles of one shape at a point before it writes any of them there.
    copy_tiles(kernel, level, pairs)
    kernel.b.at(level.block)


def _reads_other(kernel: Kernel, value: Value, own: Buffer, carried: list[Buffer | None]) -> bool:
    """Whether a lazy value reads a carried buffer other than `own`, or `own` at other elements.

    Buffers are compared, not values: a value computed in place shares its operand's buffer.
    """
    others = {b.ptr.text for b in carried if b is not None and b is not own}
    seen: set[tuple[Value, bool]] = set()
    stack = [(value, False)]
    while stack:
        v, moved = entry = stack.pop()
        if entry in seen or not is_tile(v):
            continue
        seen.add(entry)
        bound = kernel.env.get(v)
        if isinstance(bound, Buffer):
            if bound.ptr.text in others or (moved and bound.ptr.text == own.ptr.text):
                return True
        elif v.op is not None and is_lazy(v.op):
            stack.extend((operand, moved or not v.op.elementwise) for operand in v.op.operands)
    return False


@emits(control.If)
def emit_if(kernel: Kernel, level: Level, op: control.If) -> None:
    """Two branches that fill the same buffers and merge their scalars."""
    b = kernel.b
    condition = scalar(level, op.condition)
    buffers = [kernel.buffer(r) if is_tile(r) else None for r in op.results]
    blocks = [b.block("then"), b.block("else")]
    done = b.block("endif")
    b.cond_br(condition, blocks[0], blocks[1])
    ends: list[tuple[Block, list[V]]] = []
    for block, region in zip(blocks, (op.then, op.otherwise), strict=True):
        b.at(block)
        inner = Level(kernel, block)
        emit_region(kernel, region, inner)
        yielded = region.terminator.operands
        scalars = _yield_scalars(inner, yielded)
        pairs = [(v, buf) for v, buf in zip(yielded, buffers, strict=True) if buf is not None]
        copy_tiles(kernel, inner, pairs)
        b.at(inner.block)
        ends.append((b.current, scalars))
        b.br(done)
    b.at(done)
    _bind_scalars(kernel, op.results, b.merge(*ends))
    _bind_tiles(kernel, op.results, buffers)


@emits(control.While)
def emit_while(kernel: Kernel, level: Level, op: control.While) -> None:
    """`before` runs at the head. The values that it passes on are copied to separate buffers, so
    the body may overwrite the carried ones."""
    b = kernel.b
    carried = _carry_tiles(kernel, level, op.before.args, op.inits)
    scalars = [scalar(level, v) for v in op.inits if not is_tile(v)]
    entered, head = b.current, b.block("while")
    body, done = b.block("do"), b.block("endwhile")
    b.br(head)
    b.at(head)
    phis = [b.phi(s.type) for s in scalars]
    _bind_scalars(kernel, op.before.args, [p.value for p in phis])
    inner = Level(kernel, head)
    emit_region(kernel, op.before, inner)
    condition, *passed = op.before.terminator.operands
    test = scalar(inner, condition)
    inner.block = b.current
    passed_scalars = _yield_scalars(inner, passed)
    buffers = [kernel.buffer(v) if is_tile(v) else None for v in passed]
    copy_tiles(
        kernel, inner, [(v, f) for v, f in zip(passed, buffers, strict=True) if f is not None]
    )
    b.at(inner.block)
    b.cond_br(test, body, done)
    for values in (op.body.args, op.results):
        _bind_scalars(kernel, values, passed_scalars)
        _bind_tiles(kernel, values, buffers)
    b.at(body)
    within = Level(kernel, body)
    emit_region(kernel, op.body, within)
    yielded = op.body.terminator.operands
    # Nothing in the body reads the carried buffers (see above), so no temporaries are needed.
    following = _yield_scalars(within, yielded)
    copy_tiles(
        kernel, within, [(v, f) for v, f in zip(yielded, carried, strict=True) if f is not None]
    )
    b.at(within.block)
    latch = b.current
    b.br(head)
    for phi, first, later in zip(phis, scalars, following, strict=True):
        phi.add(first, entered)
        phi.add(later, latch)
    b.at(done)
