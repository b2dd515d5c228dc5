"""Loops whose phis LLVM's value numbering separates one by one, for which it ends the process."""

from __future__ import annotations

import pytest

from tilewright.base.llvm_recurrences import LIMIT, has_long_recurrence

HEAD = "define void @f(i32 %n) {\nentry:\n  br label %loop\nloop:\n"
TAIL = "  br i1 %more, label %loop, label %done\ndone:\n  ret void\n}\n"


def loop(sources: list[str], body: str = "") -> str:
    """A function with a loop of phis, of which each is the named value in the next iteration."""
    phis = [
        f"  %p{i} = phi i32 [ 0, %entry ], [ %{source}, %loop ]\n"
        for i, source in enumerate(sources)
    ]
    return HEAD + "".join(phis) + body + TAIL


def delay_line(length: int) -> str:
    return loop([*(f"p{i + 1}" for i in range(length - 1)), "n"])


@pytest.mark.parametrize(("length", "is_long"), [(LIMIT + 1, False), (LIMIT + 2, True)])
def test_a_delay_line(length: int, is_long: bool) -> None:
    assert has_long_recurrence(delay_line(length)) == is_long
    assert has_long_recurrence(loop(["n"]) + delay_line(length)) == is_long


def test_a_recurrence_by_way_of_other_values() -> None:
    count = 2 * LIMIT
    body = "".join(f"  %s{i} = add i32 %p{i}, %p{(i + 1) % count}\n" for i in range(count))
    assert has_long_recurrence(loop([f"s{i}" for i in range(count)], body))


def test_accumulators_that_depend_on_one_value() -> None:
    """As those of a product, however many there are."""
    count = 4 * LIMIT
    operands = ", ".join(f"i32 %p{i}" for i in range(count))
    body = f"  %all = call i32 @f({operands})\n"
    body += "".join(f"  %s{i} = add i32 %p{i}, %all\n" for i in range(count))
    assert not has_long_recurrence(loop([f"s{i}" for i in range(count)], body))
