"""Statements that load from and store to the same memory again and again, and values that are
pointers.

A value that is loaded before a store of the same memory and used after it, a store that covers a
part of an earlier one, the same pointer for several accesses: a target that delays loads, or fuses
accesses into one loop, must preserve their order. Other productions store to each slot once.
"""

from __future__ import annotations

from math import prod

from tests.fuzz.programs.kinds import INTEGERS, NUMBERS, Kind, Shape, Value, tl
from tests.fuzz.programs.masks import mask as mask_of
from tests.fuzz.programs.memory import READABLE, SLOTS, scattered, slot_of
from tests.fuzz.programs.writer import Array, Writer, expression, mark, statement
from tilewright.ir.types import I1

Pointer = tuple[str, Shape]


class _Traffic:
    """Accesses to one slot.

    Attributes:
        pointers: the tiles of pointers that have a name.
    """

    def __init__(self, w: Writer, array: Array) -> None:
        self.w = w
        self.array = array
        self.slot = array.slot
        self.pointers: list[Pointer] = []
        self.shapes = [s for s in w.book.shapes if prod(s) <= w.book.largest]
        array.slot += 1

    def places(self, shape: Shape) -> str:
        """The addresses of distinct elements of the slot."""
        w, count = self.w, prod(shape)
        start = slot_of(w, self.array, self.slot)
        room = w.book.largest - 2 * count
        if room > 0 and w.one_in(3):
            start = f"{start} + {w.below(room)}"
        return f"{start} + {scattered(w, shape)}" if shape else start

    def pointer(self) -> Pointer:
        """A named pointer, mostly one that was used before."""
        w = self.w
        if self.pointers and w.below(3):
            return w.choose(self.pointers[-3:])
        return self.named(w.choose(self.shapes))

    def named(self, shape: Shape) -> Pointer:
        w = self.w
        name = w.book.name("p")
        w.emit(f"{name} = {self.places(shape)}")
        self.pointers.append((name, shape))
        return name, shape

    def mask(self, shape: Shape) -> str:
        w = self.w
        if not shape or w.below(3):
            return ""
        text = mask_of(w, shape)
        w.pending.clear()
        return f", mask={text}"

    def load(self) -> None:
        """A named value, which later statements use."""
        w = self.w
        pointer, shape = self.pointer()
        mask = self.mask(shape)
        other = f", other={w.typed(self.array.dtype, (), 0)}" if mask else ""
        w.pending.clear()
        w.emit("tl.debug_barrier()")
        kind = Kind(self.array.dtype, shape)
        known = [n for n, thing in w.mutable() if thing == kind]
        if known and w.one_in(3):  # which a loop around carries
            name = w.choose(known)
            w.emit(f"{name} = ({name} + tl.load({pointer}{mask}{other})).to({tl(kind.dtype)})")
        else:
            w.emit(f"{w.define(kind)} = tl.load({pointer}{mask}{other})")

    def store(self) -> None:
        """Any value, often one that was loaded."""
        w = self.w
        pointer, shape = self.pointer()
        mask = self.mask(shape)
        dtype = self.array.dtype
        loaded = [n for n, k in w.kinds() if k == Kind(dtype, shape)]
        if loaded and w.below(3):
            value = w.choose(loaded[-4:])
            if shape and w.one_in(3):
                value = f"tl.flip({value}, {w.below(len(shape))})"
            elif dtype in INTEGERS and w.one_in(2):
                value = f"{value} + {w.random.randint(1, 9)}"
        else:
            value = w.typed(dtype, shape, 2)
            w.pending.clear()
        w.emit("tl.debug_barrier()")
        w.emit(f"tl.store({pointer}, {value}{mask})")

    def selected(self) -> None:
        """What was loaded under a mask, selected by it behind a store to the same memory. Half of
        the tiles may be one vector."""
        w, dtype = self.w, self.array.dtype
        short = [s for s in self.shapes if prod(s) in (4, 8, 16)]
        pointer, shape = self.named(w.choose(short)) if short and w.one_in(2) else self.pointer()
        if not shape:
            self.store()
            return
        mark(w, "loads: selected by their mask")
        mask, loaded, new = (w.book.name("v") for _ in range(3))
        w.emit(f"{new} = {w.typed(dtype, shape, 1)}")
        text = f"{new} > {w.random.randint(0, 3)}" if w.one_in(2) else mask_of(w, shape)
        w.pending.clear()
        w.emit(f"{mask} = {text}")
        w.emit("tl.debug_barrier()")
        other = f", other={w.whole(dtype, ())}" if w.one_in(3) else ""
        w.pending.clear()
        w.emit(f"{loaded} = tl.load({pointer}, mask={mask}{other})")
        w.emit("tl.debug_barrier()")
        w.emit(f"tl.store({pointer}, {new}{w.choose(('', f', mask={mask}'))})")
        both = f"{mask}, {loaded}, {new}" if w.below(3) else f"~{mask}, {new}, {loaded}"
        w.emit(f"{w.define(Kind(dtype, shape))} = tl.where({both}).to({tl(dtype)})")

    def update(self) -> None:
        """A value of the slot in another place of it."""
        w = self.w
        (source, shape), target = self.pointer(), ""
        same = [p for p, s in self.pointers if s == shape]
        target = w.choose(same)
        name = w.define(Kind(self.array.dtype, shape))
        w.emit("tl.debug_barrier()")
        w.emit(f"{name} = tl.load({source})")
        w.emit("tl.debug_barrier()")
        w.emit(f"tl.store({target}, {name}{self.mask(shape)})")

    def nested(self) -> None:
        """Accesses in a loop or under a condition."""
        w = self.w
        if w.nested >= 3 or w.loops >= 2:
            self.store()
            return
        is_loop = w.one_in(2)
        head = f"for _ in range({w.choose(('2', w.index((), 4, 0)))}):"
        if not is_loop:
            head = f"if {w.condition(1)}:"
        w.pending.clear()
        w.emit(head)
        known = len(self.pointers)
        leave, w.leave = w.leave, False
        w.loops += is_loop
        with w.block():
            self.accesses(w.random.randint(1, 3))
        w.loops -= is_loop
        w.leave = leave
        del self.pointers[known:]

    def accesses(self, count: int) -> None:
        steps = (self.load, self.load, self.store, self.store, self.update, self.nested)
        steps += (self.selected,)
        for _ in range(count):
            self.w.choose(steps)()


@statement(3)
def traffic(w: Writer) -> bool:
    """Loads and stores of one slot, which overlap."""
    fit = [a for a in w.book.arrays if a.slot < SLOTS and a.dtype in NUMBERS]
    if not w.is_kernel or not fit:
        return False
    shared = [a for a in fit if a.alias]  # which two arguments reach
    array = w.choose(shared if shared and w.below(3) else fit)
    _Traffic(w, array).accesses(w.random.randint(2, 7))
    w.emit("tl.debug_barrier()")
    return True


# -- pointers as values ---------------------------------------------------------------------------


@expression(2)
def through_pointers(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A load by pointers that a selection, a choice, or an op on shapes returns."""
    if w.pure or prod(shape) > w.book.largest:
        return None
    array = w.choose(w.arrays)
    first, second = (f"{array.name} + {_somewhere(w, shape)}" for _ in range(2))
    forms = [f"tl.where({w.typed(I1, shape, depth)}, {first}, {second})"]
    if w.one_in(2):
        bind, w.bind = w.bind, False
        forms = [f"({first} if {w.condition(depth)} else {second})"]
        w.bind = bind
    elif len(shape) == 2:
        other = f"{array.name} + {_somewhere(w, shape[::-1])}"
        forms = [f"tl.trans({other})", f"tl.reshape({other}, {shape})"]
    elif shape:
        other = f"{array.name} + {_somewhere(w, (1, *shape))}"
        forms = [f"tl.reshape({other}, {shape})", f"tl.broadcast_to({other}, {(1, *shape)}).reshape"
                 f"({', '.join(map(str, shape))})"]  # fmt: skip
    mark(w, "pointers: computed")
    return Value(f"tl.load({w.choose(forms)})", array.dtype)


def _somewhere(w: Writer, shape: Shape) -> str:
    """Offsets in the first half of what all programs may read, as pointers may move on."""
    if not shape or w.one_in(3):
        return w.index(shape, READABLE // 2, 0)
    return f"{w.below(READABLE // 2)} + {w.offsets(shape)}"


@statement(1)
def exchanged_pointers(w: Writer) -> bool:
    """Two pointers that a loop exchanges."""
    if not w.is_kernel or w.loops >= 2 or w.nested >= 3:
        return False
    fit = [a for a in w.book.arrays if a.dtype in INTEGERS]
    array, shape = w.choose(fit), w.shape()
    a, b = w.book.name("p"), w.book.name("p")
    for name in (a, b):
        w.emit(f"{name} = {array.name} + {_somewhere(w, shape)}")
        w.pending.clear()
    total = w.define(Kind(array.dtype, shape))
    w.emit(f"{total} = tl.zeros({shape}, {tl(array.dtype)})")
    trips = w.index((), 4, 0)
    w.pending.clear()
    w.emit(f"for _ in range({trips}):")
    with w.block():
        w.emit(f"{total} = {total} * 3 + tl.load({a})")
        w.emit(w.choose((f"{a}, {b} = {b}, {a}", f"{a}, {b} = {b} + 1, {a} + 2")))
    return True
