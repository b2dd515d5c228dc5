"""Warps with roles: one warp copies blocks of memory while the others compute with them.

They synchronize through *barriers* in shared memory (PTX's `mbarrier`). In each phase a barrier
counts arrivals, whose number it was initialised with, and the bytes that it was set to expect. When
all have arrived, its phase is complete and the next one begins. A wait specifies the parity of the
phase that it waits for: 0 for the first, 1 for the second, 0 for the third.
Before its first phase is complete, a barrier counts as having completed one of parity 1.

A ring of S slots has S pairs of barriers: `full[i]` completes when the bytes of slot i have been
written, `empty[i]` when all warps that read them have arrived.

In the interpreter a barrier is an int64 of four fields: see `_Barrier`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir.core import Region, Value
from tilewright.ir.define import Op, attr, operand, optional, region, require
from tilewright.ir.traits import CONCURRENT, LOCAL, WRITES
from tilewright.ir.turns import Turns
from tilewright.ir.types import I1, I64, Shared, Type, dtype_of, is_int, shape_of
from tilewright.ops.numeric import Array

MAX_ARRIVALS = 1 << 15
MAX_BYTES = 1 << 20  # of a phase: PTX ISA, "mbarrier", tx-count


class _Barrier(NamedTuple):
    """A barrier's state, and its encoding in an int64."""

    arrivals: int  # of each phase
    pending: int  # arrivals pending in this phase
    bytes: int  # pending in this phase; negative where some arrived before they were expected
    phase: int  # completed phases

    @staticmethod
    def at(place: Array) -> _Barrier:
        word = int(place)
        return _Barrier(
            word & 0x7FFF,
            word >> 15 & 0x7FFF,
            (word >> 30 & 0x3FFFFF) - MAX_BYTES,
            word >> 52 & 0x3FF,
        )

    def put(self, place: Array) -> None:
        """Write the state, and begin the next phase where this one is complete."""
        now = self
        if now.pending == now.bytes == 0:
            now = _Barrier(now.arrivals, now.arrivals, 0, now.phase + 1 & 0x3FF)
        place[...] = (
            now.arrivals | now.pending << 15 | now.bytes + MAX_BYTES << 30 | now.phase << 52
        )

    def completed(self, parity: int) -> bool:
        """Whether the previous or current phase, whichever has this parity, is complete."""
        return self.phase & 1 != parity


def arrive(place: Array, arrivals: int = 0, expected: int = 0, arrived: int = 0) -> None:
    """Count arrivals, expected bytes and arrived bytes at a barrier."""
    old = _Barrier.at(place)
    if arrivals > old.pending:
        raise RuntimeError(f"{arrivals} arrivals at a barrier whose phase lacks {old.pending}")
    left = old.bytes + expected - arrived
    old._replace(pending=old.pending - arrivals, bytes=left).put(place)


def require_barrier(op: Op, barriers: Value, index: Value) -> None:
    """Raise `IRError` unless the operands of an op name a barrier."""
    kind = barriers.type
    require(
        isinstance(kind, Shared) and len(kind.shape) == 1 and dtype_of(kind) == I64,
        op,
        "operand-types",
        "takes barriers, a row of i64 in shared memory, not {t}",
        t=kind,
    )
    require(
        is_int(index.type) and not shape_of(index.type),
        op,
        "operand-types",
        "the index of a barrier is an integer, not {t}",
        t=index.type,
    )


class Roles(Op, name="gpu.roles", traits=CONCURRENT):
    """Runs two regions at the same time; it ends when both have ended.

    The warps of the program run `compute`. One thread of the `copy_warps` further warps runs
    `copy`. `compute` waits for what `copy` writes to a buffer, so the buffer is dead
    after its last use in `compute`. With `registers`, per thread of either role, warps of the
    second release registers to those of the first.

        gpu.roles copy_warps=4, registers=(240, 24,) : () -> () {
          control.yield [] : () -> ()
        } {
          control.yield [] : () -> ()
        }
    """

    copy_warps: int = attr()
    registers: tuple[int, ...] = attr()
    compute: Region = region()
    copy: Region = region()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require(self.copy_warps > 0, self, "copy-warps", "{n} copying warps", n=self.copy_warps)
        require(
            len(self.registers) in (0, 2) and all(n % 8 == 0 for n in self.registers),
            self,
            "registers",
            "registers are two multiples of 8, or none, not {registers}",
            registers=self.registers,
        )

    no_evaluate = "it runs nested regions; see execute"
    no_index_maps = "it has no operands"

    def execute(self, state: Any) -> tuple[()]:
        state.turns = Turns()
        try:
            regions = (self.copy, self.compute)
            state.turns.run([lambda r=r: state.run(r, []) for r in regions])
        finally:
            state.turns = None
        return ()


class InitBarriers(Op, name="gpu.init_barriers", traits=WRITES | LOCAL):
    """Initialises barriers, each with the arrivals of a phase. A `program.barrier` must follow.

    gpu.init_barriers %0, arrivals=(1, 4,) : shared<2xi64> -> ()
    """

    barriers: Value = operand()
    arrivals: tuple[int, ...] = attr()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        kind = self.barriers.type
        require(
            isinstance(kind, Shared)
            and dtype_of(kind) == I64
            and kind.shape == (len(self.arrivals),),
            self,
            "operand-types",
            "takes {n} barriers, a row of i64 in shared memory, not {t}",
            n=len(self.arrivals),
            t=kind,
        )
        require(
            all(0 < count < MAX_ARRIVALS for count in self.arrivals),
            self,
            "arrivals",
            "a barrier takes 1 to {most} arrivals, not {counts}",
            most=MAX_ARRIVALS - 1,
            counts=self.arrivals,
        )

    def evaluate(self, barriers: Array) -> tuple[()]:
        for i, count in enumerate(self.arrivals):
            _Barrier(count, count, 0, 0).put(barriers[i : i + 1].reshape(()))
        return ()


class DropBarriers(Op, name="gpu.drop_barriers", traits=WRITES | LOCAL):
    """Ends the use of barriers, which may then be initialised again. No thread may be waiting.

    gpu.drop_barriers %0 : shared<2xi64> -> ()
    """

    barriers: Value = operand()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        kind = self.barriers.type
        require(
            isinstance(kind, Shared) and len(kind.shape) == 1 and dtype_of(kind) == I64,
            self,
            "operand-types",
            "takes barriers, a row of i64 in shared memory, not {t}",
            t=kind,
        )

    no_index_maps = "it has no result"

    def evaluate(self, barriers: Array) -> tuple[()]:
        barriers[...] = 0
        return ()


class ExpectBytes(Op, name="gpu.expect_bytes", traits=WRITES | LOCAL):
    """Arrives at a barrier, and adds to the bytes that its phase expects.

    gpu.expect_bytes %0, %1, bytes=8192 : (shared<2xi64>, i32) -> ()
    """

    barriers: Value = operand()
    index: Value = operand()
    bytes: int = attr()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require_barrier(self, self.barriers, self.index)
        require(
            0 < self.bytes < MAX_BYTES,
            self,
            "bytes",
            "a phase counts less than {most} bytes, not {n}",
            most=MAX_BYTES,
            n=self.bytes,
        )

    def evaluate(self, barriers: Array, index: Array) -> tuple[()]:
        place = barriers[int(index) : int(index) + 1].reshape(())
        arrive(place, 1, expected=self.bytes)
        return ()


class Arrive(Op, name="gpu.arrive", traits=WRITES | LOCAL):
    """One arrival of each of the `warps` that run it, if the condition holds.

    After a wait for the phase, memory may be overwritten that products of these warps have read,
    which were waited for before, and, if `loads`, memory that they have loaded to registers for
    products which have started before.

        gpu.arrive %0, %1, %2, warps=4, loads=False : (shared<2xi64>, i32, i1) -> ()
    """

    barriers: Value = operand()
    index: Value = operand()
    condition: Value | None = optional()
    warps: int = attr()
    loads: bool = attr(False)

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require_barrier(self, self.barriers, self.index)
        require(
            self.condition is None or self.condition.type == I1,
            self,
            "condition",
            "the condition is an i1",
        )

    def evaluate(self, barriers: Array, index: Array, condition: Any = True) -> tuple[()]:
        if condition:
            arrive(barriers[int(index) : int(index) + 1].reshape(()), self.warps)
        return ()


class WaitBarrier(Op, name="gpu.wait_barrier", traits=WRITES | LOCAL):
    """Waits until the phase of this parity of a barrier is complete.

    With a `limit`, in nanoseconds, a longer wait ends the kernel with an error that names the
    barrier: a protocol that is wrong does not hang.

    gpu.wait_barrier %0, %1, %2 : (shared<2xi64>, i32, i32) -> ()
    """

    barriers: Value = operand()
    index: Value = operand()
    parity: Value = operand()
    limit: int = attr(default=0)

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require_barrier(self, self.barriers, self.index)
        require(self.limit >= 0, self, "limit", "a limit of {ns} ns", ns=self.limit)
        require(
            is_int(self.parity.type) and not shape_of(self.parity.type),
            self,
            "operand-types",
            "the parity is an integer, not {t}",
            t=self.parity.type,
        )

    no_evaluate = "it waits for another role; see execute"

    def execute(self, state: Any, barriers: Array, index: Array, parity: Array) -> tuple[()]:
        number, bit = int(index), int(parity)
        place = barriers[number : number + 1].reshape(())

        def ready() -> bool:
            return _Barrier.at(place).completed(bit)

        if state.turns is not None:
            state.turns.wait(ready, f"{self.loc}: barrier {number}, parity {bit}")
        elif not ready():
            raise RuntimeError(f"barrier {number} never completes a phase of parity {bit}")
        return ()
