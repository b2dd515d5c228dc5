"""Waiting for memory to change."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.lowering.emit import I1, Builder, V, const


def wait_until_equal(
    b: Builder, read: Callable[[], V], expected: V, timeout: V | None, now: Callable[[], V]
) -> V:
    """Read again and again; whether what was read came to be `expected`.

    Args:
        read: emits a read of memory.
        timeout: nanoseconds to wait, an i64; None waits for ever. At least one read is made.
        now: emits the time in nanoseconds.
    """
    start = now() if timeout is not None else None
    again, waiting, done = b.block("poll"), b.block("waiting"), b.block("polled")
    b.br(again)
    b.at(again)
    equal = b.icmp("eq", read(), expected)
    seen = b.current
    b.cond_br(equal, done, waiting)
    b.at(waiting)
    if start is None or timeout is None:
        b.br(again)
        last = None
    else:
        late = b.icmp("uge", b.sub(now(), start), timeout)
        last = b.current
        b.cond_br(late, done, again)
    b.at(done)
    result = b.phi(I1)
    result.add(const(I1, 1), seen)
    if last is not None:
        result.add(const(I1, 0), last)
    return result.value
