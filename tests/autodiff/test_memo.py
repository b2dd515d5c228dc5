"""Questions about values that share operands take linear time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tilewright.autodiff import (
    exclusive,
    masked_values,
    reloads,
    residuals,
    running_maxima,
    softmax_results,
    wraps,
)
from tilewright.autodiff.memo import once_for_each_value
from tilewright.ir.core import Region, Value
from tilewright.ir.types import FP32, I1, Tile
from tilewright.ops import arith
from tilewright.ops.dot import Dot
from tilewright.ops.math import Exp

DEPTH = 16  # 2^16 paths, so that a failure ends
MASK, NUMBERS = Tile((4,), I1), Tile((4,), FP32)
SQUARE = Tile((4, 4), FP32)
MAXIMUM, TILE, PRODUCT = Region([FP32, NUMBERS, SQUARE]).args


def shared(kind: Callable[[Value, Value], Any], type: Any, first: Value | None = None) -> Value:
    """x = f(x, x), again and again."""
    value = Region([type]).args[0] if first is None else first
    for _ in range(DEPTH):
        value = kind(value, value).result
    return value


def product(a: Value, b: Value) -> Any:
    return arith.Mul(a, b)


def total(a: Value, b: Value) -> Any:
    return arith.Add(a, b)


def dot(a: Value, b: Value) -> Any:
    return Dot(a, b, PRODUCT, precision="ieee", max_imprecise=0)


class Loop:
    """Stands for a loop without results that are asked for."""

    results: tuple[Value, ...] = (MAXIMUM,)


class NoMaximum:
    loop, index, states = Loop(), 0, ()


def _compared() -> bool:
    (value,) = Region([NUMBERS]).args
    shared(arith.Sub, NUMBERS, value)
    return reloads._is_compared(value)


QUESTIONS: dict[str, Callable[[], object]] = {
    "conditions": lambda: masked_values.conditions(shared(arith.And, MASK)),
    "are_equal": lambda: masked_values.are_equal(
        shared(total, NUMBERS, TILE), shared(total, NUMBERS, TILE)
    ),
    "_is_zero": lambda: running_maxima._is_zero(shared(product, NUMBERS), (MAXIMUM, MAXIMUM)),
    "_are_equal": lambda: running_maxima._are_equal(
        shared(total, NUMBERS, TILE), shared(total, NUMBERS, TILE), (MAXIMUM, MAXIMUM)
    ),
    "_linear": lambda: residuals._linear(shared(total, NUMBERS), NoMaximum()),  # pyright: ignore[reportArgumentType]
    "wraps": lambda: wraps._conditions(shared(arith.And, MASK), 0),
    "is_finite": lambda: masked_values.is_finite(shared(dot, SQUARE)),
    "_is_positive": lambda: softmax_results._is_positive(
        shared(total, NUMBERS, Exp(TILE, False).result)
    ),
    "_is_compared": _compared,
    "_truth": lambda: exclusive._truth(shared(arith.And, I1), {}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_values_that_share_operands(name: str) -> None:
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        QUESTIONS[name]()
    finally:
        sys.setprofile(None)
    assert calls < 20_000


def test_answers_are_kept_for_one_question() -> None:
    """The IR may change between two."""
    answers = iter(range(10))

    @once_for_each_value
    def depth(value: Value, number: int) -> int:
        return depth(value, number - 1) + depth(value, number - 1) if number else next(answers)

    value = Region([FP32]).args[0]
    assert depth(value, 3) == 0
    assert depth(value, 1) == 2 * 1
