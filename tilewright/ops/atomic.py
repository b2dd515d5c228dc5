"""Atomic memory operations. A read-modify-write returns the old value."""

from __future__ import annotations

from typing import Any

from tilewright.ir import core
from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, optional, require
from tilewright.ir.traits import READS, WRITES
from tilewright.ir.types import I1, I64, Tile, Type, element_of, with_element
from tilewright.ops.memory import (
    Access,
    pointed_type,
    split_optional,
    verify_mask,
    verify_pointer,
    verify_stored,
    verify_writable,
)
from tilewright.ops.numeric import Array

KINDS = ("add", "max", "min", "and", "or", "xor", "xchg")
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys")


def _verify_order(op: Op, sem: str, scope: str) -> None:
    require(sem in SEMANTICS, op, "semantics", "there is no memory order {s!r}", s=sem)
    require(scope in SCOPES, op, "scope", "there is no scope {s!r}", s=scope)


def _verify_one_way(op: Op, sem: str, name: str) -> None:
    """Verify the memory order of a load, which cannot release, or of a store, which cannot
    acquire."""
    require(
        sem in ("relaxed", name),
        op,
        "semantics",
        "{o} is relaxed or {n}, not {s}",
        o=op.name,
        n=name,
        s=sem,
    )


class _Reading(Access):
    """Base class of ops that return elements of the memory."""

    def result_type(self) -> Type:
        verify_pointer(self, self.ptr)
        return pointed_type(self.ptr)


class AtomicRMW(_Reading, name="atomic.rmw", traits=READS | WRITES):
    """Atomic read-modify-write by `kind`: add, max, min, and, or, xor, xchg. The lanes of a tile
    are executed in row-major order; masked-off lanes return 0.

        %3 = atomic.rmw %0, %1, %2, kind="add", sem="acq_rel", scope="gpu"
          : (4xptr<fp32>, 4xfp32, 4xi1) -> 4xfp32
    """

    value: Value = operand()
    mask: Value | None = optional()
    kind: str = attr()
    sem: str = attr("acq_rel")
    scope: str = attr("gpu")

    def verify(self) -> None:
        verify_mask(self, self.ptr, self.mask)
        verify_writable(self, self.ptr)
        _verify_order(self, self.sem, self.scope)
        require(self.kind in KINDS, self, "kind", "there is no atomic {k!r}", k=self.kind)
        expected = self.result_type()
        require(
            self.value.type == expected,
            self,
            "operand-types",
            "combines {v}, it must be {w}",
            v=self.value.type,
            w=expected,
        )
        bitwise = self.kind in ("and", "or", "xor")
        require(
            not (bitwise and element_of(expected).is_floating()),
            self,
            "element-type",
            "{k} takes integers, not {t}",
            k=self.kind,
            t=element_of(expected),
        )

    no_evaluate = "it accesses memory; see execute"

    def execute(self, state: Any, *args: Any) -> Array:
        ptr, value, mask = split_optional(self, args)
        return state.memory.atomic(self, ptr, value, mask)


class AtomicCAS(_Reading, name="atomic.cas", traits=READS | WRITES):
    """Atomic compare-and-swap: writes `value` where memory equals `expected` bit for bit.
    Masked-off lanes return 0.

    %4 = atomic.cas %0, %1, %2, %3, sem="acq_rel", scope="gpu"
      : (4xptr<i32>, 4xi32, 4xi32, 4xi1) -> 4xi32
    """

    expected: Value = operand()
    value: Value = operand()
    mask: Value | None = optional()
    sem: str = attr("acq_rel")
    scope: str = attr("gpu")

    def verify(self) -> None:
        verify_mask(self, self.ptr, self.mask)
        verify_writable(self, self.ptr)
        _verify_order(self, self.sem, self.scope)
        expected = self.result_type()
        require(
            self.value.type == self.expected.type == expected,
            self,
            "operand-types",
            "compares {e} and writes {v}, both must be {w}",
            e=self.expected.type,
            v=self.value.type,
            w=expected,
        )

    no_evaluate = "it accesses memory; see execute"

    def execute(self, state: Any, *args: Any) -> Array:
        ptr, expected, value, mask = split_optional(self, args)
        return state.memory.compare_and_swap(self, ptr, expected, value, mask)


class AtomicLoad(_Reading, name="atomic.load", traits=READS | WRITES):
    """Atomic load. Masked-off lanes return 0. `sem` is relaxed or acquire.

    %2 = atomic.load %0, %1, sem="acquire", scope="gpu" : (4xptr<i32>, 4xi1) -> 4xi32
    """

    mask: Value | None = optional()
    sem: str = attr("acquire")
    scope: str = attr("gpu")

    def verify(self) -> None:
        verify_mask(self, self.ptr, self.mask)
        _verify_order(self, self.sem, self.scope)
        _verify_one_way(self, self.sem, "acquire")

    no_evaluate = "it accesses memory; see execute"

    def execute(self, state: Any, *args: Any) -> Array:
        ptr, mask = split_optional(self, args)
        return state.memory.atomic_load(self, ptr, mask)


class AtomicStore(Access, name="atomic.store", traits=WRITES):
    """Atomic store. `sem` is relaxed or release.

    atomic.store %0, %1, %2, sem="release", scope="gpu" : (4xptr<i32>, 4xi32, 4xi1) -> ()
    """

    value: Value = operand()
    mask: Value | None = optional()
    sem: str = attr("release")
    scope: str = attr("gpu")

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        verify_pointer(self, self.ptr)
        verify_mask(self, self.ptr, self.mask)
        verify_writable(self, self.ptr)
        _verify_order(self, self.sem, self.scope)
        _verify_one_way(self, self.sem, "release")
        verify_stored(self, self.ptr, self.value)

    no_evaluate = "it accesses memory; see execute"

    def execute(self, state: Any, *args: Any) -> tuple[()]:
        ptr, value, mask = split_optional(self, args)
        state.memory.atomic_store(self, ptr, value, mask)
        return ()


class AtomicPoll(Access, name="atomic.poll", traits=READS | WRITES):
    """Waits, for each lane, until memory equals `expected` bit for bit. Returns whether it did so
    within `timeout` nanoseconds. Without a timeout, the wait is unbounded.

    A lane waits at least for the timeout, a program at most for the timeout times the number of its
    lanes. Masked-off lanes do not wait and return false. `sem` is relaxed or acquire.

        %3 = atomic.poll %0, %1, _, %2, sem="acquire", scope="gpu"
          : (4xptr<i32>, 4xi32, i64) -> 4xi1
    """

    expected: Value = operand()
    mask: Value | None = optional()
    timeout: Value | None = optional()
    sem: str = attr("acquire")
    scope: str = attr("gpu")

    def result_type(self) -> Type:
        verify_pointer(self, self.ptr)
        return with_element(self.ptr.type, I1)

    def verify(self) -> None:
        verify_mask(self, self.ptr, self.mask)
        _verify_order(self, self.sem, self.scope)
        _verify_one_way(self, self.sem, "acquire")
        pointed = pointed_type(self.ptr)
        require(
            self.expected.type == pointed,
            self,
            "operand-types",
            "waits for {e}, it must be {w}",
            e=self.expected.type,
            w=pointed,
        )
        require(
            element_of(pointed).is_int() and not element_of(pointed).is_bool(),
            self,
            "element-type",
            "waits for integers, not {t}",
            t=element_of(pointed),
        )
        require(
            self.timeout is None or self.timeout.type == I64,
            self,
            "operand-types",
            "the timeout is {t}, it must be i64",
            t=self.timeout.type if self.timeout else "",
        )

    no_evaluate = "it accesses memory; see execute"

    def execute(self, state: Any, *args: Any) -> Array:
        ptr, expected, mask, timeout = split_optional(self, args)
        return state.memory.poll(self, ptr, expected, mask, timeout is not None)


AnyAtomic = AtomicRMW | AtomicCAS | AtomicLoad | AtomicStore | AtomicPoll
"""Any atomic op."""

Reading = AtomicRMW | AtomicCAS | AtomicLoad | AtomicPoll
"""The atomic ops that read memory."""

Writing = AtomicRMW | AtomicCAS | AtomicStore
"""The atomic ops that write memory."""


def acquires(op: AnyAtomic) -> bool:
    """Whether the op acquires a scalar flag or lock: other programs may have written any memory
    before they released it, so no later load may move before the op."""
    return not isinstance(op.ptr.type, Tile) and op.sem in ("acquire", "acq_rel")


def releases(op: AnyAtomic) -> bool:
    """Whether the op releases a scalar flag or lock: other programs that observe it may then write
    any memory, so no earlier load may move after the op."""
    return not isinstance(op.ptr.type, Tile) and op.sem in ("release", "acq_rel")


def synchronizes(op: core.Op) -> bool:
    """Whether the op acquires or releases a scalar flag or lock."""
    return isinstance(op, AnyAtomic) and (acquires(op) or releases(op))
