"""The build context of the primitives of the language."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.base.codes import coded
from tilewright.ir.types import DType
from tilewright.language.values import tensor

if TYPE_CHECKING:
    from tilewright.ir.builder import Builder
    from tilewright.ir.core import Op

MinDotSize = tuple[int, int, int] | Callable[[DType, DType], tuple[int, int, int]]


class LanguageOptions(Protocol):
    """The properties of the target and the compile options that primitives depend on."""

    @property
    def supported_fp8_dtypes(self) -> tuple[str, ...]: ...
    @property
    def deprecated_fp8_dot_operand_dtypes(self) -> tuple[str, ...]: ...
    @property
    def default_dot_input_precision(self) -> str: ...
    @property
    def allowed_dot_input_precisions(self) -> tuple[str, ...]: ...
    @property
    def max_num_imprecise_acc_default(self) -> int: ...
    @property
    def min_dot_size(self) -> MinDotSize: ...
    @property
    def assembly(self) -> str: ...
    @property
    def native_descriptors(self) -> bool: ...
    @property
    def debug(self) -> bool: ...
    @property
    def derivatives(self) -> bool: ...
    @property
    def sanitize_overflow(self) -> bool: ...
    @property
    def strict_triton(self) -> bool: ...
    @property
    def backend_name(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def num_warps(self) -> int: ...


class IncompatibleTypeErrorImpl(Exception):
    """Two operands with incompatible types."""

    def __init__(self, type_a: Any, type_b: Any) -> None:
        self.type_a = type_a
        self.type_b = type_b
        self.message = f"invalid operands of type {type_a!s} and {type_b!s}"
        super().__init__(self.message)
        coded("operand-types", self)


class StaticAssertionError(Exception):
    """A failed assertion of a primitive about compile-time values.

    The front end reports it as `CompileTimeAssertionFailure` at the call.
    """


def static_assert(condition: object, message: str) -> None:
    """Raise StaticAssertionError unless the condition holds."""
    if not condition:
        raise StaticAssertionError(message)


Inline = Callable[[Any, Sequence[Any]], Any]


def _no_inlining(fn: Any, args: Sequence[Any]) -> Any:
    raise TypeError(f"{fn} can't be called here: there is no front end")


class Semantic:
    """The build context: insertion point, options, and inlining of jit functions.

    Attributes:
        builder: the insertion point and the source location.
        options: see `LanguageOptions`.
        inline: ``inline(fn, args)`` compiles the body of a jit function at the insertion point and
            returns its result; set by the front end.
    """

    __slots__ = ("builder", "inline", "options")

    def __init__(
        self, builder: Builder, options: LanguageOptions, inline: Inline = _no_inlining
    ) -> None:
        self.builder = builder
        self.options = options
        self.inline = inline

    def warn(self, message: str) -> None:
        """Issue a warning at the line of the kernel, or at the Python caller if there is none."""
        loc = self.builder.loc
        if loc is None:
            warnings.warn(message, stacklevel=3)
        else:
            warnings.warn_explicit(message, UserWarning, loc.file, loc.line)

    def emit(self, op: Op) -> tensor:
        """Insert an op and return its only result."""
        return tensor(self.builder.value(op))
