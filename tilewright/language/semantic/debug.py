"""Printing and assertions at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.codes import coded
from tilewright.ir.types import I64, DType, shape_of
from tilewright.language.semantic import convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.values import constexpr, tensor
from tilewright.ops import arith as ops
from tilewright.ops.debug import Assert, Assume, Print

PRINTABLE = frozenset(map(chr, [*range(9, 14), *range(32, 127)]))  # those of ASCII


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


def _require_effects(s: Semantic, what: str) -> None:
    if s.builder.pure:
        raise ValueError(
            f"{what} is not possible in a function that is given to an op for its elements: how "
            "often it runs is open"
        )


def print_label(prefix: Any, has_values: bool) -> str:
    """The printed form of the prefix, with a leading blank and a trailing colon.

    Raises:
        AssertionError: it is not a string of printable ASCII.
    """
    text = _plain(prefix)
    if not isinstance(text, str):
        raise coded("print-prefix", AssertionError(f"{text} is not string"))
    assert PRINTABLE.issuperset(text), f"{text} is not an ascii string"
    if has_values:
        text = f"{text.rstrip(' ').removesuffix(':')}: "
    return f" {text}" if len(text) > 2 and not text.startswith(" ") else text


def device_print(s: Semantic, prefix: Any, values: Sequence[Any], hex: Any) -> None:
    label = print_label(prefix, bool(values))
    _require_effects(s, "printing")
    tensors = [convert.to_tensor(s, v) for v in values]
    s.builder.insert(Print([t.handle for t in tensors], label, bool(_plain(hex)), None))


def device_assert(s: Semantic, condition: Any, message: Any, mask: Any) -> None:
    """Emit an assertion if the option `debug` is set.

    None is emitted in a function that is passed to an op for its elements, such as a combine
    function: it is pure, and how often it runs is unspecified.
    """
    if not s.options.debug or s.builder.pure:
        return
    holds = convert.as_condition(s, convert.to_tensor(s, condition))
    if _plain(mask) is not None:
        checked = convert.as_condition(s, convert.to_tensor(s, mask))
        holds, checked = convert.broadcast(s, holds, checked)
        ones = convert.constant(s, True, checked.dtype, shape_of(checked.type))
        ignored = s.emit(ops.Xor(checked.handle, ones.handle))
        holds = s.emit(ops.Or(holds.handle, ignored.handle))
    s.builder.insert(Assert(holds.handle, str(_plain(message))))


def assume(s: Semantic, condition: tensor) -> None:
    """Emit an assumption, or an assertion if the option `debug` is set, which must not be folded by
    its own assumption. None is emitted in combine functions and functions that are mapped over
    elements."""
    if s.options.strict_triton and shape_of(condition.type):
        raise ValueError(
            f"tl.assume takes a scalar condition, not {condition.type}: state it for the scalars "
            "that the tile is computed from"
        )
    if s.options.debug:
        device_assert(s, condition, "the assumption does not hold", None)
    elif not s.builder.pure and not shape_of(condition.type):
        s.builder.insert(Assume(convert.as_condition(s, condition).handle))


def checks_overflow(s: Semantic, element: Any) -> bool:
    """Whether arithmetic on this element type is checked for overflow.

    It is for integers of fewer than 64 bits, since a 64-bit check would need a wider type. Where
    wrap-around is intended, `tl.add` and the like take ``sanitize_overflow=False``.
    """
    return (
        s.options.debug
        and s.options.sanitize_overflow
        and not s.builder.pure
        and isinstance(element, DType)
        and element.is_int()
        and not element.is_bool()
        and element.primitive_bitwidth < 64
    )


def assert_no_overflow(s: Semantic, op: type[Any], name: str, x: tensor, y: tensor) -> None:
    """Assert that an operation on two integers of one type does not overflow."""
    element = x.dtype
    assert isinstance(element, DType)
    wide = s.emit(op(convert.cast(s, x, I64).handle, convert.cast(s, y, I64).handle))
    shape = shape_of(x.type)
    low = convert.constant(s, element.get_int_min_value(), I64, shape)
    high = convert.constant(s, element.get_int_max_value(), I64, shape)
    above = s.emit(ops.Cmp(wide.handle, low.handle, "ge"))
    below = s.emit(ops.Cmp(wide.handle, high.handle, "le"))
    fits = s.emit(ops.And(above.handle, below.handle))
    s.builder.insert(Assert(fits.handle, f"{element} overflow detected for operation {name}"))
