"""Inline assembly, and functions of the device library."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.language import semantic
from tilewright.language.values import builtin, is_builtin, tensor, unwrap

if TYPE_CHECKING:
    from tilewright.language.extra import libdevice
else:
    libdevice = lazy_import("tilewright.language.extra.libdevice")

__all__ = ["inline_asm_elementwise"]

extern = builtin
"""Marks a library function as a builtin: it is called with ``_semantic=``."""


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
    """Elementwise inline assembly (PTX on NVIDIA GPUs).

        y = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)

    Args:
        asm: the text; registers are numbered from ``$0``, results first.
        constraints: LLVM inline assembly constraints, such as ``"=r,r,r"``.
        args: tensors or numbers, broadcast to one shape; without any, the result is a scalar.
        dtype: the dtype of the result, which may be a pointer type, or a tuple of dtypes.
        is_pure: whether the assembly has no side effects.
        pack: number of elements per execution. Elements narrower than 32 bits are packed into
            32-bit registers.

    Returns:
        a tensor, or a tuple of tensors if `dtype` is a tuple.

    Raises:
        ValueError: the target has no inline assembly, or constraints and operands do not match.
    """
    return semantic.asm.inline_asm(_semantic, asm, constraints, args, dtype, is_pure, pack)


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
    """Call ``func(lib_name, lib_path, symbol, args, result_dtype, is_pure)`` with the symbol for
    the dtypes of the operands.

    Args:
        arg_type_symbol_dict: maps operand dtypes to the symbol and dtype of the result.
        ret_shape: ignored; the shape of the result is that of the broadcast operands.

    Raises:
        ValueError: there is no symbol for these dtypes, even after promotion.
    """

    def call(symbol: str, given: list[tensor], result: Any) -> Any:
        return func(lib_name, lib_path, symbol, given, result, is_pure)

    return semantic.asm.dispatch(_semantic, args, unwrap(arg_type_symbol_dict), call)


_PREFIX = "__nv_"
# Symbols of libdevice for one type, whose functions in the language are overloaded.
_ONE_NAME = {"fabs": "abs", "llabs": "abs", "clzll": "clz", "popcll": "popc", "ffsll": "ffs",
             "brevll": "brev", "powi": "pow", "umulhi": "mulhi", "mul64hi": "mulhi",
             "umul64hi": "mulhi"}  # fmt: skip


def device_function(symbol: str) -> Callable[..., Any] | None:
    """The function of `tl.extra.libdevice` for a symbol of NVIDIA's library, or None. The fp32
    functions have the suffix ``f`` there."""
    if not symbol.startswith(_PREFIX):
        return None
    name = symbol.removeprefix(_PREFIX)
    for candidate in (name, name.removesuffix("f")):
        result = getattr(libdevice, _ONE_NAME.get(candidate, candidate), None)
        if is_builtin(result):
            return result
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
    """A function of NVIDIA's device library, by its symbol, on any target.

        extern_elementwise("libdevice", "", [x],
                           {(tl.float32,): ("__nv_asinf", tl.float32)}, True, _semantic=_semantic)

    Symbols start with ``__nv_``; each is mapped to the function of `tl.extra.libdevice` of that
    name. Other libraries are not linked.

    Raises:
        ValueError: no symbol for the operands' dtypes, or not a symbol of the device library.
    """

    def call(symbol: str, given: list[tensor], result: Any) -> tensor:
        function = device_function(symbol)
        if function is None:
            raise ValueError(
                f"unknown function {symbol!r}; extern_elementwise supports those of the device "
                "library, `__nv_…`, and links no other library"
            )
        found: tensor = function(*given, _semantic=_semantic)
        return semantic.convert.cast(_semantic, found, semantic.convert.as_dtype(result))

    return semantic.asm.dispatch(_semantic, args, unwrap(arg_type_symbol_dict), call)
