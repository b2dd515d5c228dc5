"""Where code is emitted: a loop body, or the straight code around the loops.

Each loop has a :class:`Level`. A value that varies with the loops up to some depth is emitted in
the body of the loop at that depth, not in the innermost one: so what does not vary is computed
once, however the source was written.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.lowering.emit import I8, I64, Block, Builder, V, const_vector
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes, as_vector

Coords = tuple[Lanes, ...]
"""A point: a coordinate per axis."""


class Level:
    """A loop body, or the straight code around the loops (depth 0).

    Attributes:
        block: where values that vary with this loop are emitted; it stays open until the loop
            nest below it is complete.
        width: number of lanes.
        span: number of neighbouring coordinates for which uniform and linear values are that:
            the lanes, or more where one vector stands for a whole axis.
        assumed: truth of masks within this body, by value.
        streamed: pointers of aligned vectors that are stored past the caches within this body.
        memo: results that were emitted here, by value and coordinates; `offsets` those in 64 bits
            for addresses, `moved` the coordinates that shape ops make of others.
    """

    def __init__(
        self,
        kernel: Kernel,
        block: Block,
        parent: Level | None = None,
        width: int = 1,
        assumed: dict[Value, bool] | None = None,
    ) -> None:
        self.kernel = kernel
        self.b: Builder = kernel.b
        self.block = block
        self.parent = parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.width = width
        self.span = width
        self.assumed: dict[Value, bool] = dict(parent.assumed) if parent else {}
        if assumed:
            self.assumed.update(assumed)
        self.streamed: frozenset[Value] = parent.streamed if parent else frozenset()
        self.memo: dict[tuple[Value, Coords], Lanes] = {}
        self.reciprocals: dict[Lanes, tuple[V, V]] = {}
        self.offsets: dict[tuple[Value, Coords], Lanes] = {}
        self.moved: dict[tuple[object, ...], Coords] = {}

    def child(
        self, block: Block, width: int | None = None, assumed: dict[Value, bool] | None = None
    ) -> Level:
        return Level(self.kernel, block, self, self.width if width is None else width, assumed)

    def at_depth(self, depth: int) -> Level:
        level = self
        while level.depth > depth:
            assert level.parent is not None
            level = level.parent
        return level

    def home(self, coords: Coords) -> Level:
        """The level that coordinates vary with; this one where they vary deeper."""
        depth = 0
        for c in coords:
            if c.depth > depth:
                depth = c.depth
        return self if depth >= self.depth else self.at_depth(depth)

    def placed(self, *args: Lanes) -> Emitting:
        """Emit where what these values vary with is known, no deeper.

        A result must not claim to be known further out than it is emitted: it may become a
        coordinate, and then decides where others are emitted.
        """
        return Emitting(self.home(args))

    def vector(self, x: Lanes) -> V:
        """All lanes as a vector."""
        if x.base.type.is_ptr and x.stride not in (0, None):
            return self.pointers(x)
        return as_vector(self.b, x, self.width)

    def pointers(self, x: Lanes) -> V:
        """A linear or uniform pointer, lane by lane."""
        if x.stride is None:
            return x.base
        steps = const_vector(I64, [k * x.stride for k in range(self.width)])
        return self.b.gep(I8, x.base, steps)

    def extend(self, x: Lanes, signed: bool) -> Lanes:
        """An integer in 64 bits."""
        if x.base.type.bits == 64:
            return x
        with self.placed(x):
            narrow = x.base if x.uniform else self.vector(x)
            wide = self.b.sext(narrow, I64) if signed else self.b.zext(narrow, I64)
            return Lanes(wide, 0 if x.uniform else None, x.depth)


class Emitting:
    """Emit in a level's block for a while."""

    __slots__ = ("elsewhere", "level", "saved")

    def __init__(self, level: Level) -> None:
        self.level = level

    def __enter__(self) -> None:
        b = self.level.b
        self.saved = b.current
        self.elsewhere = self.saved is not self.level.block
        if self.elsewhere:
            b.at(self.level.block)

    def __exit__(self, *_: object) -> None:
        # the evaluation may have opened blocks of its own: the level goes on where it ended
        b = self.level.b
        self.level.block = b.current
        if self.elsewhere:
            b.at(self.saved)
