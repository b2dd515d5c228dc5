"""What the front end must know of the target and of the compile options."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.base import knobs
from tilewright.frontend.defaults import DOT_PRECISIONS, FP8_TYPES
from tilewright.language.semantic.context import MinDotSize


@dataclass(frozen=True)
class FrontendOptions:
    """Options that change which IR a kernel gives.

    Attributes:
        supported_fp8_dtypes: short names of the fp8 types that a kernel may use.
        deprecated_fp8_dot_operand_dtypes: those that `dot` upcasts to fp16 with a warning.
        default_dot_input_precision: `input_precision` of a `dot` that does not say.
        allowed_dot_input_precisions: those that a `dot` may ask for.
        max_num_imprecise_acc_default: of fp8 dots, see `tl.dot`.
        min_dot_size: least (M, N, K) of a dot, or a function of the operands' dtypes giving it.
        assembly: what `inline_asm_elementwise` is written in; "" where there is none.
        debug: whether assertions in kernels are checked.
        sanitize_overflow: whether, with `debug`, integer arithmetic is checked too.
        strict_triton: whether what goes beyond Triton is an error, as it is there; by default what
            the setting `language.strict_triton` says.
        num_warps, num_stages, enable_fp_fusion, backend_name, arch: of the compilation.
    """

    supported_fp8_dtypes: tuple[str, ...] = FP8_TYPES
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = DOT_PRECISIONS
    max_num_imprecise_acc_default: int = 0
    min_dot_size: MinDotSize = (1, 1, 1)
    assembly: str = ""
    debug: bool = False
    sanitize_overflow: bool = True
    strict_triton: bool = field(default_factory=lambda: knobs.language.strict_triton)
    num_warps: int = 4
    num_stages: int = 3
    enable_fp_fusion: bool = True
    backend_name: str = "cpu"
    arch: str = ""
