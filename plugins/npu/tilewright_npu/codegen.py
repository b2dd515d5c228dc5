"""Tile IR to instructions.

Every tile is in scratch memory, every scalar in a register, unless the vector unit computes it.
Loads and stores of blocks are copies by DMA; other accesses are the scalar pipe's, element by
element, so that any kernel runs. The code of a program, and the body of an innermost loop, is
emitted several times with different memory, so that the copies of the next programs and iterations
run while one is computed; `events.py` orders the pipes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilewright.analysis.blocks import Block
from tilewright.analysis.pointers import base_of
from tilewright.analysis.polynomial import Iteration, Polynomial
from tilewright.base.located import error_at
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.define import REGISTRY
from tilewright.ir.printer import print_module
from tilewright.ir.types import Tile, Type, element_of, numpy_of, shape_of, text_of
from tilewright.ops import arith, control, memory
from tilewright.ops.dot import Dot
from tilewright_npu.blocks import atoms_of, fill_of, scalars_of
from tilewright_npu.choices import Choices, is_native
from tilewright_npu.events import place_events
from tilewright_npu.instructions import Access, Image, Instruction, Place
from tilewright_npu.machine import CAPACITY, CUBE, DMA_LATENCY, IN, MOVE, OUT, SCALAR, VECTOR
from tilewright_npu.matrix_unit import accumulating, fits, is_zero, packed_shapes
from tilewright_npu.scratch import Allocator, Full, LiveRanges

ANYWHERE = 1 << 63
IN_FLIGHT = 8  # programs, or iterations of a loop, at most
LOOP_CODE, PROGRAM_CODE = 100, 250  # instructions, at most, of all iterations or programs in flight
TRIPS = 8  # of a loop, for estimates
ACCUMULATORS = CAPACITY["l0c"] // 2  # bytes of those that stay there in loops


def generate(module: Module) -> Image:
    """The image of a kernel.

    Raises:
        CompilationError: an op is unknown, or the tiles need too much scratch memory.
    """
    choices = Choices(module.entry)
    for in_flight in (IN_FLIGHT, 2, 1):
        try:
            return _Generator(module.entry, choices, in_flight, "scratch").image()
        except Full:
            pass
    return _Generator(module.entry, choices, 1, "workspace").image()


class _Generator:
    """
    Args:
        fn: the kernel.
        choices: for it.
        in_flight: how many programs and iterations may be in flight; with 1, as little memory is
            used as possible.
        last: the memory of tiles for which there is no other: scratch memory, or the workspace.

    Raises:
        Full: there is not enough scratch memory, and no workspace.
    """

    def __init__(self, fn: Function, choices: Choices, in_flight: int, last: str) -> None:
        self.fn, self.choices, self.in_flight, self.last = fn, choices, in_flight, last
        self.folded = choices.folded()
        self.ranges = LiveRanges(fn, self.folded)
        self.memories = {s: Allocator(size, in_flight > 1) for s, size in CAPACITY.items()}
        self.code: list[Instruction] = []
        self.touched: dict[Instruction, list[Access]] = {}
        self.places: dict[Value, Place] = {}
        self.counters: dict[Op, Place] = {}
        self.tiles: list[tuple[int, Place]] = []  # the last position, and the place
        self.microprograms: dict[str, Function] = {}
        self.registers = 0
        self.line = ""

    def image(self) -> Image:
        for arg in self.fn.args:
            self.places[arg] = self._register(arg.type)
        programs = self._several(self._program, PROGRAM_CODE)
        place_events(programs, self.touched)
        functions = list(self.microprograms.values())
        text = print_module(Module(functions)) if functions else ""
        sizes = {space: memory.size for space, memory in self.memories.items()}
        return Image(programs, text, sizes, self.registers)

    def _program(self) -> None:
        self._region(self.fn.body)
        self._release(ANYWHERE)

    def _several(self, emit: Callable[[], None], size: int) -> list[list[Instruction]]:
        """Code that is executed repeatedly, emitted once for each execution in flight: copies
        arrive, and are stored, while others are computed.

        Args:
            emit: emits the code of a run.
            size: how many instructions the result may have.
        """
        runs = [self._nested(emit)]
        code = [i for top in runs[0] for i in top.walk()]
        latency = DMA_LATENCY * len({i.pipe for i in code} & {IN, OUT})
        useful = 2 + -(-latency // max(1, _cycles(runs[0])))
        # A power of two, as the memories of the matrix unit have places for two or four operands.
        limit = min(2 * useful - 1, self.in_flight, size // max(1, len(code)))
        while 2 * len(runs) <= limit:
            runs += [self._nested(emit) for _ in range(len(runs))]
        return runs

    # -- places ---------------------------------------------------------------------------------

    def _register(self, type: Type) -> Place:
        self.registers += 1
        return Place(self.registers - 1, None, text_of(type), numpy_of(type).itemsize)

    def _allocate(self, place: Place, until: int, op: Op | None = None) -> Place:
        """Memory for a place, until a position."""
        memory = self.memories[place.space]
        try:
            place = place.moved(memory.allocate(place.nbytes))
        except Full:
            if self.last == "scratch":
                raise
            if place.space in ("scratch", "l1"):
                return self._allocate(place.within("workspace"), until, op)
            raise error_at(
                op.loc if op is not None else self.fn.loc,
                f"the tiles of {self.fn.name} need {memory.in_use + place.nbytes} bytes of "
                f"{place.space} here; a core has {memory.capacity}. Make the tiles smaller",
            ) from None
        self.tiles.append((until, place))
        return place

    def _place(self, type: Type, until: int, op: Op | None, space: str = "scratch") -> Place:
        """Memory for a tile, or an element, until a position."""
        size = numpy_of(type).itemsize
        place = Place(0, shape_of(type), text_of(element_of(type)), size, space)
        return self._allocate(place, until, op)

    def _define(self, value: Value, op: Op, space: str = "register") -> Place:
        """The place of a new value: a register, or memory."""
        if space == "register" and not isinstance(value.type, Tile):
            self.places[value] = self._register(value.type)
        else:
            last = max(self.ranges.last.get(value, 0), self.ranges.end[op])
            space = "scratch" if space == "register" else space
            self.places[value] = self._place(value.type, last, op, space)
        return self.places[value]

    def _release(self, position: int) -> None:
        """Free the tiles whose last use is not after a position."""
        for until, place in self.tiles:
            if until <= position:
                self.memories[place.space].free(place.at)
        self.tiles = [tile for tile in self.tiles if tile[0] > position]

    # -- instructions ---------------------------------------------------------------------------

    def emit(
        self, pipe: str, name: str, results: Sequence[Place] = (), operands: Sequence[Place] = (),
        memory: Sequence[Access] = (), **facts: Any,
    ) -> Instruction:  # fmt: skip
        """Append an instruction. Except for copies, the scalar pipe executes those on the
        workspace."""
        if pipe not in (IN, OUT) and any(p.space == "workspace" for p in (*results, *operands)):
            pipe = SCALAR
        instruction = Instruction(pipe, name, list(results), list(operands), facts, line=self.line)
        self.touched[instruction] = list(memory)
        self.code.append(instruction)
        return instruction

    def _nested(self, emit: Callable[[], None]) -> list[Instruction]:
        """The code that a function emits."""
        outer, self.code = self.code, []
        emit()
        inner, self.code = self.code, outer
        return inner

    # -- ops ------------------------------------------------------------------------------------

    def _region(self, region: Region) -> None:
        for op in region:
            if op not in self.choices.live or op in self.folded or op.terminator:
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
                self.emit(SCALAR, "barrier")
            case memory.Load() | memory.Store() if op in self.choices.blocks:
                self._copy(op, self.choices.blocks[op])
            case Dot() if fits(op):
                self._product(op)
            case _ if op.reads() or op.writes():
                self._access(op)
            case _:
                self._run(op)

    def _run(self, op: Op) -> None:
        """An op without effects: the vector unit's, or, if that cannot do it, the scalar pipe's."""
        name, operands = self._microprogram(op)
        in_memory = any(p.in_memory for p in operands)
        native = is_native(op) and (in_memory or any(isinstance(r.type, Tile) for r in op.results))
        pipe, space = (VECTOR, "scratch") if native else (SCALAR, "register")
        results = [self._define(r, op, space) for r in op.results]
        self.emit(pipe, "run", results, operands, program=name, op=op.name)
        for result, place in zip(op.results, results, strict=True):
            if place.in_memory and result in self.choices.addressing:
                self.emit(SCALAR, "move", [self._define(result, op)], [place])

    def _access(self, op: Any) -> None:
        """An access of any addresses, or another effect, by the scalar pipe."""
        name, operands = self._microprogram(op)
        results = [self._define(r, op) for r in op.results]
        inputs = list(dict.fromkeys(op.operands))
        pointer, mask = getattr(op, "ptr", None), getattr(op, "mask", None)
        where = {
            "pointer": None if pointer is None else inputs.index(pointer),
            "mask": None if mask is None else inputs.index(mask),
            "writes": op.writes(),
            "size": 0 if pointer is None else memory.pointee_of(pointer.type).nbytes_in_memory,
        }
        touched = [] if pointer is None else [self._touched(pointer, op.writes())]
        self.emit(SCALAR, "access", results, operands, touched, program=name, op=op.name, **where)

    def _touched(self, pointer: Value, writes: bool) -> Access:
        """The access of an array, as far as it is known which one: by its alias class."""
        base = base_of(pointer)
        known = self.fn.arg_attrs[base.index].get("alias") if base.owner is self.fn.body else None
        if known is None:
            return Access("memory", 0, ANYWHERE, writes)
        return Access("memory", known, known + 1, writes)

    def _microprogram(self, op: Op) -> tuple[str, list[Place]]:
        """The name of the microprogram that executes an op, and its operands."""
        splats = [v for v in op.operands if v.op in self.choices.splats and op.elementwise]
        inputs: dict[Value, None] = {}
        for value in op.operands:
            sources = value.op.operands if value.op is not None and value in splats else [value]
            inputs.update(dict.fromkeys(sources))
        fn = Function("m", [v.type for v in inputs], [r.type for r in op.results])
        mapping = dict(zip(inputs, fn.args, strict=True))
        for value in dict.fromkeys(splats):
            assert value.op is not None
            copy = value.op.clone(mapping)
            fn.body.append(copy)
            mapping[value] = copy.result
        copy = op.clone(mapping)
        fn.body.append(copy)
        fn.body.append(control.Return(copy.results))
        text = print_module(Module([fn]))
        found = self.microprograms.get(text)
        if found is None:
            fn.name = f"m{len(self.microprograms)}"
            found = self.microprograms[text] = fn
        return found.name, [self.places[v] for v in inputs]

    # -- products -------------------------------------------------------------------------------

    def _fractals(self, op: Dot, space: str, until: int) -> Place:
        """A place in a memory of the matrix unit, until a position."""
        type = {"l0a": op.lhs, "l0b": op.rhs, "l0c": op.acc}[space].type
        size = numpy_of(type).itemsize
        place = Place(0, packed_shapes(op)[space], text_of(element_of(type)), size, space)
        return self._allocate(place, until, op)

    def _packed(self, op: Dot, value: Value, space: str) -> Place:
        """An operand in fractal order."""
        order = space
        if value.op in self.choices.transposes:
            value, order = value.op.operands[0], f"t{space}"
        place = self._fractals(op, space, self.ranges.end[op])
        self.emit(MOVE, "pack", [place], [self.places[value]], order=order)
        return place

    def _accumulator(self, op: Dot, value: Value, until: int) -> Place:
        """An accumulator that starts with a value, until a position."""
        place = self._fractals(op, "l0c", until)
        if is_zero(value):
            self.emit(CUBE, "clear", [place])
        else:
            self.emit(MOVE, "pack", [place], [self.places[value]], order="l0c")
        return place

    def _product(self, op: Dot) -> None:
        lhs, rhs = self._packed(op, op.lhs, "l0a"), self._packed(op, op.rhs, "l0b")
        acc = self.places.get(op.acc)
        stays = acc is not None and acc.space == "l0c"  # in a loop, see `accumulating`
        if acc is None or not stays:
            acc = self._accumulator(op, op.acc, self.ranges.end[op])
        self.emit(CUBE, "multiply", [acc], [lhs, rhs, acc])
        if stays:
            self.places[op.result] = acc
        else:
            self.emit(VECTOR, "unpack", [self._define(op.result, op)], [acc])

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
            touched = self._touched(op.ptr, False)
            space = "l1" if self.choices.is_operand_of_products(op.result) else "scratch"
            result = self._define(op.result, op, space)
            self.emit(IN, "load", [result], operands, [touched], **facts)
        else:
            touched = self._touched(op.ptr, True)
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
        self.emit(VECTOR if target.in_memory else SCALAR, "move", [target], [source])

    def _like(self, place: Place) -> Place:
        """Another place for a value of the same type, until the end of the op."""
        if place.shape is None:
            self.registers += 1
            return place.moved(self.registers - 1)
        return self._allocate(place, -1)

    def _carried(self, op: Op, values: Sequence[Value]) -> list[Place]:
        """Places that values have until the end of an op."""
        for value in values:
            if isinstance(value.type, Tile):
                self.places[value] = self._place(value.type, self.ranges.end[op], op)
            else:
                self.places[value] = self._register(value.type)
        return [self.places[v] for v in values]

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
        inits = [self._initial(v) if p is None else place
                 for v, p, place in zip(op.inits, products, places, strict=True)]  # fmt: skip
        self._move(inits, places)
        self.places[index] = self._register(index.type)
        self.counters[op] = self._register(index.type)
        bounds = [self.places[v] for v in (op.start, op.stop, op.step)]
        loop = self.emit(SCALAR, "for", [self.places[index], self.counters[op]], bounds)

        def body() -> None:
            self._region(op.body)
            self._move(self._yielded(op.body), places)

        loop.bodies += self._several(body, 0 if _has_nested(op) else LOOP_CODE)
        for number, (result, product) in enumerate(zip(op.results, products, strict=True)):
            if product is not None:
                acc = places[number]
                places[number] = self._define(result, op)
                self.emit(VECTOR, "unpack", [places[number]], [acc])
        self._results(op, places)

    def _initial(self, value: Value) -> Place:
        """The place of a value with which a loop starts."""
        if value.op in self.choices.zeros and value not in self.places:
            self._run(value.op)
        return self.places[value]

    def _while(self, op: control.While) -> None:
        before = self._carried(op, op.before.args)
        after = self._carried(op, op.body.args)
        self._move([self.places[v] for v in op.inits], before)
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


def _has_nested(op: control.For) -> bool:
    return any(isinstance(o, control.For | control.While | control.If) for o in op.body)


def _cycles(code: Sequence[Instruction]) -> int:
    """An estimate of the cycles of code whose pipes run side by side."""
    return max(_busy(code).values(), default=0)


def _busy(code: Sequence[Instruction]) -> dict[str, int]:
    """The cycles of each pipe."""
    total: dict[str, int] = {}
    for instruction in code:
        total[instruction.pipe] = total.get(instruction.pipe, 0) + instruction.cycles()
        for body in instruction.bodies:
            often = TRIPS if instruction.name == "for" else 1
            for pipe, cycles in _busy(body).items():
                total[pipe] = total.get(pipe, 0) + cycles * often // len(instruction.bodies)
    return total
