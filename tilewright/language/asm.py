"""Assembly of the target, and functions of libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.language.extra import libdevice
from tilewright.language.semantic import asm as semantic
from tilewright.language.semantic import convert
from tilewright.language.values import builtin, is_builtin, tensor, unwrap

__all__ = ["inline_asm_elementwise"]

extern = builtin
"""Marks a function of a library as one of the language: it is called with ``_semantic=``."""


@builtin
def inline_asm_elementwise(
    asm: Any,
    constraints: Any,
    args: Any,
    dtype: Any,
    is_pure: Any,
    pack: Any,
    *,
    _semantic: Any = None,
) -> Any:
    """Assembly of the target (PTX on NVIDIA GPUs) that computes element after element.

        y = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)

    Args:
        asm: its text; registers are ``$0`` on, those of the results first.
        constraints: as LLVM has them, such as ``"=r,r,r"``.
        args: tensors or numbers, broadcast to one shape; without any, the result is a scalar.
        dtype: of the result, or a tuple with that of each.
        is_pure: whether computing the results is all that it does.
        pack: elements that it takes at once. Those of fewer than 32 bits share registers of 32.

    Returns:
        a tensor, or a tuple of them if `dtype` is one.

    Raises:
        ValueError: the target takes no assembly, or constraints and operands do not match.
    """
    return semantic.inline_asm(_semantic, asm, constraints, args, dtype, is_pure, pack)


@builtin
def dispatch(
    func: Callable[..., Any],
    lib_name: Any,
    lib_path: Any,
    args: Any,
    arg_type_symbol_dict: Any,
    ret_shape: Any,
    is_pure: Any,
    *,
    _semantic: Any = None,
) -> Any:
    """What ``func(lib_name, lib_path, symbol, args, result_dtype, is_pure)`` gives for the symbol
    that the dtypes of the operands select.

    Args:
        arg_type_symbol_dict: from dtypes of operands to symbol and dtype of the result.
        ret_shape: ignored; the operands, broadcast to one shape, have that of the result.

    Raises:
        ValueError: there is no symbol for these dtypes, even after promotion.
    """

    def call(symbol: str, given: list[tensor], result: Any) -> Any:
        return func(lib_name, lib_path, symbol, given, result, is_pure)

    return semantic.dispatch(_semantic, args, unwrap(arg_type_symbol_dict), call)


_PREFIX = "__nv_"
# What the language's library has under one name for several types.
_ONE_NAME = {"fabs": "abs", "llabs": "abs", "clzll": "clz", "popcll": "popc", "ffsll": "ffs",
             "brevll": "brev", "powi": "pow", "umulhi": "mulhi", "mul64hi": "mulhi",
             "umul64hi": "mulhi"}  # fmt: skip


def device_function(symbol: str) -> Callable[..., Any] | None:
    """The function of `tl.extra.libdevice` that a symbol of NVIDIA's library names; None if none
    does. The functions of fp32 end in ``f`` there."""
    if not symbol.startswith(_PREFIX):
        return None
    name = symbol.removeprefix(_PREFIX)
    for candidate in (name, name.removesuffix("f")):
        found = getattr(libdevice, _ONE_NAME.get(candidate, candidate), None)
        if is_builtin(found):
            return found
    return None


@builtin
def extern_elementwise(
    lib_name: Any,
    lib_path: Any,
    args: Any,
    arg_type_symbol_dict: Any,
    is_pure: Any,
    *,
    _semantic: Any = None,
) -> tensor:
    """A function of NVIDIA's device library by its symbol, on every target.

        extern_elementwise("libdevice", "", [x],
                           {(tl.float32,): ("__nv_asinf", tl.float32)}, True, _semantic=_semantic)

    Symbols are those that start with ``__nv_``; each is the function of `tl.extra.libdevice` of
    that name. No code of other libraries is linked.

    Raises:
        ValueError: no symbol for the operands' dtypes, or not one of the device library.
    """

    def call(symbol: str, given: list[tensor], result: Any) -> tensor:
        function = device_function(symbol)
        if function is None:
            raise ValueError(
                f"there is no function {symbol!r}; extern_elementwise has those of the device "
                "library, `__nv_…`, and links no other library"
            )
        found: tensor = function(*given, _semantic=_semantic)
        return convert.cast(_semantic, found, convert.as_dtype(result))

    return semantic.dispatch(_semantic, args, unwrap(arg_type_symbol_dict), call)
