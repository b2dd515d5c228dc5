"""Tile IR to instructions.

Every tile is in scratch memory, every scalar in a register. Loads and stores of blocks are copies
by DMA; other accesses are the scalar pipe's, element by element, so that any kernel runs. Events
order the pipes within straight-line code, and barriers do at the borders of loops and branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilewright.analysis.blocks import Block
from tilewright.analysis.polynomial import Iteration, Polynomial
from tilewright.base.located import error_at
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.define import REGISTRY
from tilewright.ir.printer import print_module
from tilewright.ir.types import Tile, Type, element_of, numpy_of, shape_of, text_of
from tilewright.ops import arith, control, memory, reduce, shape
from tilewright.ops.dot import Dot
from tilewright_npu.blocks import atoms_of, dma_blocks, fill_of, scalars_of
from tilewright_npu.instructions import Image, Instruction, Place
from tilewright_npu.machine import CAPACITY, CUBE, IN, MOVE, OUT, SCALAR, SCRATCH_BYTES, VECTOR
from tilewright_npu.matrix_unit import accumulating, fits, is_zero, packed_shapes
from tilewright_npu.ordering import Access, Event, Order, needed, repeat
from tilewright_npu.scratch import Allocator, LiveRanges

ANYWHERE = 1 << 63
ACCUMULATORS = CAPACITY["l0c"] // 2  # bytes of those that stay there in loops
SHAPES = (
    shape.Arange, shape.Splat, shape.ExpandDims, shape.Broadcast, shape.Reshape, shape.Permute,
    reduce.Reduce, arith.Constant,
)  # fmt: skip
"""Ops that the vector unit executes, besides those on elements."""


def generate(module: Module) -> Image:
    """The image of a kernel.

    Raises:
        CompilationError: an op is unknown, or the tiles need too much scratch memory.
    """
    return _Generator(module.entry).image()


class _Generator:
    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.blocks = dma_blocks(fn)
        self.live = _live_ops(fn, self.blocks)
        self.ranges = LiveRanges(fn)
        self.memories = {space: Allocator() for space in CAPACITY}
        self.scratch = self.memories["scratch"]
        self.order = Order()
        self.code: list[Instruction] = []
        self.places: dict[Value, Place] = {}
        self.counters: dict[Op, Place] = {}
        self.tiles: list[tuple[int, Place]] = []  # the last position, and the place
        self.programs: dict[str, Function] = {}
        self.registers = 0
        self.events = 0
        self.line = ""

    def image(self) -> Image:
        for arg in self.fn.args:
            self.places[arg] = self._register(arg.type)
        self._region(self.fn.body)
        self._barrier()
        text = print_module(Module(list(self.programs.values()))) if self.programs else ""
        return Image(self.code, text, self.scratch.size, self.registers)

    # -- places ---------------------------------------------------------------------------------

    def _register(self, type: Type) -> Place:
        self.registers += 1
        return Place(self.registers - 1, None, text_of(type), numpy_of(type).itemsize)

    def _place(self, type: Type, until: int, op: Op | None = None) -> Place:
        """A register, or scratch memory until a position."""
        if not isinstance(type, Tile):
            return self._register(type)
        size = numpy_of(type).itemsize
        place = Place(0, shape_of(type), text_of(element_of(type)), size)
        place = place.moved(self.scratch.allocate(place.nbytes))
        if self.scratch.size > SCRATCH_BYTES:
            raise error_at(
                op.loc if op is not None else self.fn.loc,
                f"the tiles of {self.fn.name} need {self.scratch.size} bytes of scratch memory "
                f"here; a core has {SCRATCH_BYTES}. Make the tiles smaller",
            )
        self.tiles.append((until, place))
        return place

    def _define(self, value: Value, op: Op) -> Place:
        last = max(self.ranges.last.get(value, 0), self.ranges.end[op])
        self.places[value] = self._place(value.type, last, op)
        return self.places[value]

    def _release(self, position: int) -> None:
        """Free the tiles whose last use is not after a position."""
        for until, place in self.tiles:
            if until <= position:
                self.memories[place.space].free(place.at)
        self.tiles = [tile for tile in self.tiles if tile[0] > position]

    # -- instructions and their order -----------------------------------------------------------

    def emit(
        self, pipe: str, name: str, results: Sequence[Place] = (), operands: Sequence[Place] = (),
        memory: Sequence[Access] = (), **facts: Any,
    ) -> Instruction:  # fmt: skip
        """Append an instruction, with the events that it needs."""
        reads = [access_of(p, False) for p in operands]
        registers = [a for a in reads if a.space == "register"]
        if pipe != SCALAR and registers:  # the scalar pipe reads them at the issue
            sources = needed(self.order.unordered(SCALAR, registers))
            if sources:
                self._wait(Instruction(SCALAR, "sync", line=self.line), sources, [])
        instruction = Instruction(pipe, name, list(results), list(operands), facts, line=self.line)
        accesses = [a for a in reads if pipe == SCALAR or a.space != "register"]
        accesses += [*(access_of(p, True) for p in results), *memory]
        self.order.issue(pipe)
        self._wait(instruction, needed(self.order.unordered(pipe, accesses)), accesses)
        return instruction

    def _wait(
        self, instruction: Instruction, sources: Sequence[Event], accesses: list[Access]
    ) -> None:
        """Append an instruction that waits for others."""
        for source in sources:
            producer = source.what
            number = self._new_event()
            producer.sets.append(number)
            instruction.waits.append(number)
            self.order.wait(instruction.pipe, source.clock)
        self.order.add(instruction.pipe, accesses, instruction)
        self.code.append(instruction)

    def _barrier(self) -> None:
        """Wait for all pipes, if any may be busy."""
        if self.order.in_flight:
            self.code.append(Instruction(SCALAR, "barrier", line=self.line))
            self.order.barrier()

    def _nested(self, emit: Callable[[], None]) -> list[Instruction]:
        """The code that a function emits, which starts and ends with idle pipes."""
        outer, self.code = self.code, []
        emit()
        self._barrier()
        inner, self.code = self.code, outer
        return inner

    # -- ops ------------------------------------------------------------------------------------

    def _region(self, region: Region) -> None:
        for op in region:
            if op not in self.live or op.terminator:
                continue
            self.line = str(op.loc) if op.loc else ""
            if REGISTRY.get(op.name) is not type(op):
                raise error_at(op.loc, f"{op.name} can't be compiled for the NPU")
            self._op(op)
            self._release(self.ranges.end[op])

    def _op(self, op: Op) -> None:
        match op:
            case control.For():
                self._for(op)
            case control.While():
                self._while(op)
            case control.If():
                self._if(op)
            case control.ProgramId() | control.NumPrograms():
                self.emit(SCALAR, "program", [self._define(op.result, op)], [],
                          what=op.name, axis=op.axis)  # fmt: skip
            case control.Barrier():
                self._barrier()
            case memory.Load() | memory.Store() if op in self.blocks:
                self._copy(op, self.blocks[op])
            case Dot() if fits(op):
                self._product(op)
            case _ if op.reads() or op.writes():
                self._access(op)
            case _:
                self._run(op)

    def _operands(self, op: Op) -> list[Place]:
        return [self.places[v] for v in op.operands]

    def _run(self, op: Op) -> None:
        """An op without effects: the vector unit's, or, if that cannot do it, the scalar pipe's."""
        operands = self._operands(op)
        results = [self._define(r, op) for r in op.results]
        tiles = any(p.shape is not None for p in (*operands, *results))
        native = op.elementwise or isinstance(op, SHAPES)
        pipe = VECTOR if tiles and native else SCALAR
        self.emit(pipe, "run", results, operands, program=self._program(op), op=op.name)

    def _access(self, op: Any) -> None:
        """An access of any addresses, or another effect, by the scalar pipe."""
        operands = self._operands(op)
        results = [self._define(r, op) for r in op.results]
        pointer, mask = getattr(op, "ptr", None), getattr(op, "mask", None)
        where = {
            "pointer": None if pointer is None else op.operands.index(pointer),
            "mask": None if mask is None else op.operands.index(mask),
            "writes": op.writes(),
            "size": 0 if pointer is None else memory.pointee_of(pointer.type).nbytes_in_memory,
        }
        touched = [] if pointer is None else [Access("memory", 0, ANYWHERE, op.writes())]
        self.emit(SCALAR, "access", results, operands, touched, program=self._program(op),
                  op=op.name, **where)  # fmt: skip

    def _program(self, op: Op) -> str:
        """The name of the microprogram that executes an op."""
        types = [v.type for v in op.operands]
        fn = Function("m", types, [r.type for r in op.results])
        copy = op.clone(dict(zip(op.operands, fn.args, strict=True)))
        # An operand may occur twice.
        for index, arg in enumerate(fn.args):
            copy.set_operand(index, arg)
        fn.body.append(copy)
        fn.body.append(control.Return(copy.results))
        text = print_module(Module([fn]))
        found = self.programs.get(text)
        if found is None:
            fn.name = f"m{len(self.programs)}"
            found = self.programs[text] = fn
        return found.name

    # -- products -------------------------------------------------------------------------------

    def _fractals(self, op: Dot, space: str, until: int) -> Place:
        """A place in a memory of the matrix unit, until a position."""
        type = {"l0a": op.lhs, "l0b": op.rhs, "l0c": op.acc}[space].type
        size = numpy_of(type).itemsize
        place = Place(0, packed_shapes(op)[space], text_of(element_of(type)), size, space)
        place = place.moved(self.memories[space].allocate(place.nbytes))
        self.tiles.append((until, place))
        return place

    def _accumulator(self, op: Dot, value: Value, until: int) -> Place:
        """An accumulator that starts with a value, until a position."""
        place = self._fractals(op, "l0c", until)
        if is_zero(value):
            self.emit(MOVE, "pack", [place], order="zero")
        else:
            self.emit(MOVE, "pack", [place], [self.places[value]], order="l0c")
        return place

    def _product(self, op: Dot) -> None:
        end = self.ranges.end[op]
        lhs, rhs = (self._fractals(op, space, end) for space in ("l0a", "l0b"))
        self.emit(MOVE, "pack", [lhs], [self.places[op.lhs]], order="l0a")
        self.emit(MOVE, "pack", [rhs], [self.places[op.rhs]], order="l0b")
        acc = self.places.get(op.acc)
        stays = acc is not None and acc.space == "l0c"  # in a loop, see `accumulating`
        if acc is None or not stays:
            acc = self._accumulator(op, op.acc, end)
        self.emit(CUBE, "multiply", [acc], [lhs, rhs, acc])
        if stays:
            self.places[op.result] = acc
        else:
            self.emit(MOVE, "unpack", [self._define(op.result, op)], [acc])

    # -- copies ---------------------------------------------------------------------------------

    def _copy(self, op: memory.Load | memory.Store, block: Block) -> None:
        scalars = {value: self.places[value] for value in scalars_of(block)}
        facts: dict[str, Any] = {
            "base": scalars[block.base].at,
            "offset": self._polynomial(block.offset),
            "size": block.element_bytes,
            "axes": [
                {
                    "begin": self._polynomial(axis.begin),
                    "extent": axis.extent,
                    "stride": self._polynomial(axis.stride),
                    "lower": [self._polynomial(p) for p in axis.lower],
                    "upper": [self._polynomial(p) for p in axis.upper],
                }
                for axis in block.axes
            ],
            "conditions": [scalars[value].at for value in block.conditions],
            "never": block.never,
        }
        counters = {a: self.counters[a.loop] for a in atoms_of(block) if isinstance(a, Iteration)}
        operands = [*scalars.values(), *counters.values()]
        if isinstance(op, memory.Load):
            fill = fill_of(block)
            facts["fill"] = fill.value if isinstance(fill, arith.Constant) else None
            facts["fill_register"] = scalars[fill].at if isinstance(fill, Value) else None
            touched = Access("memory", 0, ANYWHERE, False)
            self.emit(IN, "load", [self._define(op.result, op)], operands, [touched], **facts)
        else:
            touched = Access("memory", 0, ANYWHERE, True)
            tile = self.places[op.value]
            self.emit(OUT, "store", [], [tile, *operands], [touched], **facts)

    def _polynomial(self, polynomial: Polynomial) -> list[Any]:
        """Terms: a coefficient and the registers of its factors."""
        return [[term.coefficient, [self._atom(a) for a in term.factors]]
                for term in polynomial.terms]  # fmt: skip

    def _atom(self, atom: Value | Iteration) -> int:
        return (self.counters[atom.loop] if isinstance(atom, Iteration) else self.places[atom]).at

    # -- control flow ---------------------------------------------------------------------------

    def _move(self, sources: Sequence[Place], targets: Sequence[Place]) -> None:
        """Copy values, all at once: a source may be a target, too."""
        pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s != t]
        if {s for s, _ in pairs} & {t for _, t in pairs}:
            kept = [self._like(s) for s, _ in pairs]
            for (source, _), place in zip(pairs, kept, strict=True):
                self._move_one(source, place)
            pairs = [(k, t) for k, (_, t) in zip(kept, pairs, strict=True)]
        for source, target in pairs:
            self._move_one(source, target)

    def _move_one(self, source: Place, target: Place) -> None:
        self.emit(SCALAR if source.shape is None else VECTOR, "move", [target], [source])

    def _like(self, place: Place) -> Place:
        """Another place for a value of the same type, for the rest of the kernel."""
        if place.shape is None:
            self.registers += 1
            return place.moved(self.registers - 1)
        return place.moved(self.scratch.allocate(place.nbytes))

    def _carried(self, op: Op, values: Sequence[Value]) -> list[Place]:
        """Places that values have until the end of an op."""
        places = [self._place(v.type, self.ranges.end[op], op) for v in values]
        self.places.update(zip(values, places, strict=True))
        return places

    def _results(self, op: Op, places: Sequence[Place]) -> None:
        """The results of an op are in these places, until their last use."""
        self.places.update(zip(op.results, places, strict=True))
        last = {p: max(self.ranges.last.get(r, 0), self.ranges.end[op])
                for r, p in zip(op.results, places, strict=True)}  # fmt: skip
        self.tiles = [(max(until, last.get(place, 0)), place) for until, place in self.tiles]

    def _yielded(self, region: Region) -> list[Place]:
        return [self.places[v] for v in region.terminator.operands]

    def _for(self, op: control.For) -> None:
        index, *carried = op.body.args
        products: list[Dot | None] = []
        places: list[Place] = []
        for number, (value, init) in enumerate(zip(carried, op.inits, strict=True)):
            product = accumulating(op, number)
            if product is None or self.memories["l0c"].in_use + _bytes(value) > ACCUMULATORS:
                product = None
                places += self._carried(op, [value])
            else:
                places.append(self._accumulator(product, init, self.ranges.end[op]))
                self.places[value] = places[-1]
            products.append(product)
        inits = [self.places[v] if p is None else place
                 for v, p, place in zip(op.inits, products, places, strict=True)]  # fmt: skip
        self._move(inits, places)
        self._barrier()
        self.places[index] = self._register(index.type)
        self.counters[op] = self._register(index.type)
        bounds = [self.places[v] for v in (op.start, op.stop, op.step)]
        loop = self.emit(SCALAR, "for", [self.places[index], self.counters[op]], bounds, before=[])

        def body() -> None:
            self._region(op.body)
            self._move(self._yielded(op.body), places)

        if any(isinstance(inner, control.For | control.While | control.If) for inner in op.body):
            loop.bodies.append(self._nested(body))
        else:
            self._stream(loop, body)
        for number, (result, product) in enumerate(zip(op.results, products, strict=True)):
            if product is not None:
                acc = places[number]
                places[number] = self._define(result, op)
                self.emit(MOVE, "unpack", [places[number]], [acc])
        self._results(op, places)

    def _stream(self, loop: Instruction, body: Callable[[], None]) -> None:
        """The body of a loop whose iterations overlap: events order them, and odd ones have scratch
        memory of their own, so that copies arrive while the iteration before is computed."""
        start = len(self.order.events)
        for used in self.memories.values():
            used.forget()
        outer, self.code = self.code, []
        body()
        loop.bodies.append(self.code)
        fits = all(
            used.in_use + used.recent_bytes() <= CAPACITY[space]
            for space, used in self.memories.items()
        )
        if fits:
            held = {space: used.hold() for space, used in self.memories.items()}
            self.code = []
            body()
            loop.bodies.append(self.code)
            for space, used in self.memories.items():
                used.resume(held[space])
        self.code = outer
        loop.facts["before"] = repeat(self.order, self.order.events[start:], self._new_event)
        self._barrier()

    def _new_event(self) -> int:
        self.events += 1
        return self.events - 1

    def _while(self, op: control.While) -> None:
        before = self._carried(op, op.before.args)
        after = self._carried(op, op.body.args)
        self._move([self.places[v] for v in op.inits], before)
        self._barrier()
        loop = self.emit(SCALAR, "while")

        def condition() -> None:
            self._region(op.before)
            terminator = op.before.terminator
            assert isinstance(terminator, control.Condition)
            self._move([self.places[v] for v in terminator.values], after)
            loop.facts["condition"] = self.places[terminator.condition].at

        def body() -> None:
            self._region(op.body)
            self._move(self._yielded(op.body), before)

        loop.bodies += [self._nested(condition), self._nested(body)]
        self._results(op, after)

    def _if(self, op: control.If) -> None:
        places = self._carried(op, op.results)
        condition = self.places[op.condition]
        self._barrier()
        branch = self.emit(SCALAR, "if", [], [condition])
        for region in (op.then, op.otherwise):

            def body(region: Region = region) -> None:
                self._region(region)
                self._move(self._yielded(region), places)

            branch.bodies.append(self._nested(body))
        self._results(op, places)


def _bytes(value: Value) -> int:
    """The bytes of a tile."""
    return prod(shape_of(value.type)) * numpy_of(value.type).itemsize


def access_of(place: Place, writes: bool) -> Access:
    """The access of a register or a tile."""
    if place.shape is None:
        return Access("register", place.at, place.at + 1, writes)
    return Access(place.space, place.at, place.at + place.nbytes, writes)


def _live_ops(fn: Function, blocks: dict[Op, Block]) -> set[Op]:
    """The ops that effects depend on. Copies by DMA do not depend on tiles of addresses."""
    live: set[Op] = set()
    queue = [op for op in fn.walk() if op.writes() and not op.regions]
    while queue:
        op = queue.pop()
        if op in live:
            continue
        live.add(op)
        values: list[Value] = list(op.operands)
        if op in blocks:
            values = scalars_of(blocks[op])
            if isinstance(op, memory.Store):
                values.append(op.value)
            queue += [a.loop for a in atoms_of(blocks[op]) if isinstance(a, Iteration)]
        for region in op.regions:
            if region.first is not None:
                values += region.terminator.operands
        queue += [v.op for v in values if v.op is not None]
        queue += [v.region.parent for v in values if v.region is not None and v.region.parent]
        parent = op.parent_op()
        if parent is not None:
            queue.append(parent)
    return live
