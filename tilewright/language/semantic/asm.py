"""Inline assembly, and dispatch to library functions by operand types."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.diagnostics import IRError
from tilewright.ir.types import U32, U64, DType, Scalar
from tilewright.language.semantic import convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.values import constexpr, tensor, tuple, unwrap
from tilewright.ops.asm import InlineAsm, InlineAsmEffect, registers_of, split_constraints

Signature = Sequence[Any]
Symbols = Mapping[Any, Any]


def _listed(values: Any) -> list[Any]:
    """The items of a sequence of the language or of Python."""
    plain = values.value if isinstance(values, constexpr) else values
    return list(plain.values) if isinstance(plain, tuple) else list(plain)


def _number_types(
    types: Sequence[Scalar], constraints: str, pack: int
) -> builtins.tuple[DType, ...]:
    """For each result the type of the number in its register.

    An address may be in a register of 32 bits, as in Triton: code for its effect alone often names
    the type of its operand for a result that is not used.
    """
    outputs, _ = split_constraints(constraints)
    found: list[DType] = []
    first = 0
    for type in types:
        number = type if isinstance(type, DType) else U64
        is_word = number is not type and "".join(outputs[first : first + 1]).endswith("r")
        found.append(U32 if is_word else number)
        first += registers_of(number, pack)
    return (*found,)


def inline_asm(
    s: Semantic, code: Any, constraints: Any, args: Any, dtype: Any, is_pure: Any, pack: Any
) -> Any:
    """One tensor for each dtype; see `tl.inline_asm_elementwise`."""
    if not s.options.assembly:
        raise ValueError(
            f"inline_asm_elementwise is not supported on {s.options.backend_name!r}: use other "
            "operations there, selected by `tl.target_info.current_target()`"
        )
    operands = convert.broadcast_all(s, [convert.to_tensor(s, a) for a in _listed(args)])
    plain = dtype.value if isinstance(dtype, constexpr) else dtype
    several = isinstance(plain, tuple | list) or hasattr(plain, "__iter__")
    types = [convert.as_dtype(t) for t in (_listed(plain) if several else [plain])]
    if not types:
        raise ValueError("inline_asm_elementwise must give something: dtype is empty")
    count = unwrap(pack)
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"pack is a positive integer, not {count}")
    cls = InlineAsm if unwrap(is_pure) else InlineAsmEffect
    registers = str(unwrap(constraints))
    numbers = _number_types(types, registers, count)
    op = cls([a.handle for a in operands], str(unwrap(code)), registers, numbers, count)
    try:
        op.verify()
    except IRError as error:
        reason = str(error).removeprefix(f"{op.name}: ").removesuffix(f" [{error.code}]")
        raise ValueError(f"inline_asm_elementwise: {reason}") from None
    inserted = s.builder.insert(op).results
    results = [convert.cast(s, tensor(r), t) for r, t in zip(inserted, types, strict=True)]
    return tuple(results) if several else results[0]


def select_symbol(args: Sequence[tensor], symbols: Symbols) -> Any:
    """The symbol and the result type for operands of these types.

    Raises:
        ValueError: there is no symbol for these types.
    """
    types = (*(a.dtype for a in args),)
    result = symbols.get(types)
    if result is None:
        expected = list(symbols)
        signatures = ", ".join(f"({', '.join(map(str, e))})" for e in expected)
        got = ", ".join(map(str, types))
        raise ValueError(f"input arg type does not match.Expect one of {signatures}, got ({got})")
    return result


def _promoted(s: Semantic, args: Sequence[tensor]) -> list[tensor]:
    """The arguments cast to the type to which they promote in arithmetic."""
    common = args[0].dtype
    assert isinstance(common, DType)
    for other in args[1:]:
        assert isinstance(other.dtype, DType)
        common = convert.computation_type(common, False, other.dtype, False)
    return [convert.cast(s, a, common) for a in args]


def dispatch(s: Semantic, args: Any, symbols: Symbols, call: Callable[..., Any]) -> Any:
    """Call the symbol for the types of the operands, after broadcasting; if there is none, the
    symbol for the types after promotion."""
    operands = [convert.to_tensor(s, a) for a in _listed(args)]
    if operands:
        exact = (*(a.dtype for a in operands),) in symbols
        operands = list(convert.broadcast_all(s, operands if exact else _promoted(s, operands)))
    symbol, result = select_symbol(operands, symbols)
    return call(symbol, operands, result)
