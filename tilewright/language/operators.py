"""The operators of tensors, by the names of Python's special methods, and their installation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.language.semantic import arith
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.subscript import subscript
from tilewright.language.values import builtin, tensor, tensor_method

Binary = Callable[[Semantic, Any, Any], tensor]

BINARY_OPERATORS: dict[str, Binary] = {
    "add": arith.add,
    "sub": arith.sub,
    "mul": arith.mul,
    "truediv": arith.truediv,
    "floordiv": arith.floordiv,
    "mod": arith.mod,
    "and": arith.bit_and,
    "or": arith.bit_or,
    "xor": arith.bit_xor,
    "lshift": arith.shl,
    "rshift": arith.shr,
}
COMPARISONS: dict[str, Binary] = {
    "eq": arith.eq,
    "ne": arith.ne,
    "lt": arith.lt,
    "le": arith.le,
    "gt": arith.gt,
    "ge": arith.ge,
}
UNARY_OPERATORS: dict[str, Callable[[Semantic, tensor], tensor]] = {
    "neg": arith.neg,
    "invert": arith.invert,
    "not": arith.logical_not,
}


def _install_operators() -> None:
    """Install the operators in `tensor` as primitives, for code that passes ``_semantic=``."""

    def install(name: str, apply: Callable[..., tensor], swapped: bool = False) -> None:
        @builtin
        def operator(self: tensor, *other: Any, _semantic: Any = None) -> tensor:
            args = (*other, self) if swapped else (self, *other)
            return apply(_semantic, *args)

        operator.__name__ = f"__{name}__"
        setattr(tensor, operator.__name__, operator)

    for name, apply in BINARY_OPERATORS.items():
        install(name, apply)
        install(f"r{name}", apply, swapped=True)
    for table in (COMPARISONS, UNARY_OPERATORS):
        for name, apply in table.items():
            install(name, apply)


_install_operators()


@builtin
def _getitem(self: tensor, slices: Any, *, _semantic: Any = None) -> tensor:
    """``x[:, None]``, ``x[3]``, ``x[:, 0:16]``: indexing with new axes, integers and slices."""
    return subscript(_semantic, self, slices)


tensor_method(_getitem, "__getitem__")
