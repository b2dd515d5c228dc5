"""The operators of tensors, by the names of Python's special methods, and their installation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.language import semantic
from tilewright.language.values import builtin, tensor, tensor_method

Unary = Callable[[semantic.Semantic, tensor], tensor]
Binary = Callable[[semantic.Semantic, Any, Any], tensor]

# The functions that return the function of an operator: the semantics are imported by the first
# kernel that is compiled.

BINARY_OPERATORS: dict[str, Callable[[], Binary]] = {
    "add": lambda: semantic.arith.add,
    "sub": lambda: semantic.arith.sub,
    "mul": lambda: semantic.arith.mul,
    "truediv": lambda: semantic.arith.truediv,
    "floordiv": lambda: semantic.arith.floordiv,
    "mod": lambda: semantic.arith.mod,
    "and": lambda: semantic.arith.bit_and,
    "or": lambda: semantic.arith.bit_or,
    "xor": lambda: semantic.arith.bit_xor,
    "lshift": lambda: semantic.arith.shl,
    "rshift": lambda: semantic.arith.shr,
}
COMPARISONS: dict[str, Callable[[], Binary]] = {
    "eq": lambda: semantic.arith.eq,
    "ne": lambda: semantic.arith.ne,
    "lt": lambda: semantic.arith.lt,
    "le": lambda: semantic.arith.le,
    "gt": lambda: semantic.arith.gt,
    "ge": lambda: semantic.arith.ge,
}
UNARY_OPERATORS: dict[str, Callable[[], Unary]] = {
    "neg": lambda: semantic.arith.neg,
    "invert": lambda: semantic.arith.invert,
    "not": lambda: semantic.arith.logical_not,
}


def _install_operators() -> None:
    """Install the operators in `tensor` as primitives, for code that passes ``_semantic=``."""

    def install(
        name: str, apply: Callable[[], Callable[..., tensor]], swapped: bool = False
    ) -> None:
        @builtin
        def operator(self: tensor, *other: Any, _semantic: Any = None) -> tensor:
            args = (*other, self) if swapped else (self, *other)
            return apply()(_semantic, *args)

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
    return semantic.subscript.subscript(_semantic, self, slices)


tensor_method(_getitem, "__getitem__")
