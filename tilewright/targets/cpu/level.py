"""Loop bodies under construction, and the insertion points of code in them.

Each loop has a :class:`Level`. A value is emitted in the body of the innermost loop with whose
index it varies, not in the innermost loop around its use: loop-invariant code motion by
construction.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.lowering.emit import I8, I64, Block, Builder, V, const_vector
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes, as_vector

Coords = tuple[Lanes, ...]
"""A point of an iteration space: a coordinate per axis."""


class Level:
    """A loop body, or the straight-line code outside of loops (depth 0).

    Attributes:
        block: the block for values that vary with this loop; stays open until all loops nested in
            it are complete.
        width: the number of lanes.
        span: the number of adjacent coordinates for which uniform and linear forms must be valid:
            `width`, or more if one vector represents a whole axis.
        assumed: masks with a known truth value in this body.
        streamed: pointers to aligned vectors that are stored non-temporally in this body.
        memo: results emitted here, by value and coordinates; `offsets`: those in 64 bits, for
            addresses; `moved`: coordinates computed by shape ops; `reciprocals`: by divisor.
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
        """The level with which the coordinates vary, but not one nested in this."""
        depth = 0
        for c in coords:
            if c.depth > depth:
                depth = c.depth
        return self if depth >= self.depth else self.at_depth(depth)

    def lane_axis(self, coords: Coords) -> int | None:
        """The only axis along which the lanes have different coordinates; None if there is none, or
        several."""
        moving = [axis for axis, c in enumerate(coords) if not c.uniform]
        return moving[0] if self.width > 1 and len(moving) == 1 else None

    def placed(self, *args: Lanes) -> Emitting:
        """A context that emits in the outermost level in which these values are available.

        The depth of a result must be that of the level where it is emitted: it may become a
        coordinate, which determines where other values are emitted.
        """
        return Emitting(self.home(args))

    def vector(self, x: Lanes) -> V:
        """All lanes as a vector."""
        if x.base.type.is_ptr and x.stride not in (0, None):
            return self.pointers(x)
        return as_vector(self.b, x, self.width)

    def pointers(self, x: Lanes) -> V:
        """A linear or uniform pointer as a vector of pointers."""
        if x.stride is None:
            return x.base
        steps = const_vector(I64, [k * x.stride for k in range(self.width)])
        return self.b.gep(I8, x.base, steps)

    def extend(self, x: Lanes, signed: bool) -> Lanes:
        """An integer extended to 64 bits."""
        if x.base.type.bits == 64:
            return x
        with self.placed(x):
            narrow = x.base if x.uniform else self.vector(x)
            wide = self.b.sext(narrow, I64) if signed else self.b.zext(narrow, I64)
            return Lanes(wide, 0 if x.uniform else None, x.depth)


class Emitting:
    """A context that emits in a level's block."""

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
        # Code emitted within may have ended in another block, where the level continues.
        b = self.level.b
        self.level.block = b.current
        if self.elsewhere:
            b.at(self.saved)
