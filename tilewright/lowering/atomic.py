"""A spin loop on memory, shared by the targets."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.lowering.emit import I1, Builder, V, const


def wait_until_equal(
    b: Builder, read: Callable[[], V], expected: V, timeout: V | None, now: Callable[[], V]
) -> V:
    """Spin until a read returns `expected`, or until the timeout; returns the former as an i1.

    Args:
        read: emits a read of memory; executed at least once.
        timeout: nanoseconds to wait, an i64; None waits indefinitely.
        now: emits a read of a monotonic clock, in nanoseconds.
    """
    start = now() if timeout is not None else None
    poll, waiting, done = b.block("poll"), b.block("waiting"), b.block("polled")
    b.br(poll)
    b.at(poll)
    equal = b.icmp("eq", read(), expected)
    seen = b.current
    b.cond_br(equal, done, waiting)
    b.at(waiting)
    if start is None or timeout is None:
        b.br(poll)
        last = None
    else:
        expired = b.icmp("uge", b.sub(now(), start), timeout)
        last = b.current
        b.cond_br(expired, done, poll)
    b.at(done)
    result = b.phi(I1)
    result.add(const(I1, 1), seen)
    if last is not None:
        result.add(const(I1, 0), last)
    return result.value
