"""The options of the front end: properties of the target, and compile options."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.base import knobs
from tilewright.frontend.defaults import DOT_PRECISIONS, FP8_TYPES
from tilewright.language.semantic.context import MinDotSize


@dataclass(frozen=True)
class FrontendOptions:
    """Options that affect the generated IR.

    Attributes:
        supported_fp8_dtypes: short names of the fp8 types that a kernel may use.
        deprecated_fp8_dot_operand_dtypes: those that `dot` upcasts to fp16 with a warning.
        default_dot_input_precision: default of `input_precision` of `dot`.
        allowed_dot_input_precisions: the values of `input_precision` that `dot` accepts.
        max_num_imprecise_acc_default: of fp8 dots, see `tl.dot`.
        min_dot_size: minimum (M, N, K) of `dot`, or a function from the operands' dtypes to it.
        assembly: the language of `inline_asm_elementwise`; "" if unsupported.
        native_descriptors: whether hardware implements accesses of tensor descriptors, which
            `strict_triton` requires of some.
        derivatives: whether the IR is differentiated: it then has marks for functions with a
            derivative of their own.
        debug: whether assertions in kernels are checked.
        sanitize_overflow: whether `debug` also checks integer arithmetic for overflow.
        strict_triton: whether extensions to Triton are errors; default: the setting
            `language.strict_triton`.
        lanes: threads of a warp; 0 on targets without warps.
        num_warps, num_stages, enable_fp_fusion, backend_name, arch: compile options, which kernels
            can query.
    """

    supported_fp8_dtypes: tuple[str, ...] = FP8_TYPES
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = DOT_PRECISIONS
    max_num_imprecise_acc_default: int = 0
    min_dot_size: MinDotSize = (1, 1, 1)
    assembly: str = ""
    native_descriptors: bool = False
    derivatives: bool = False
    debug: bool = False
    sanitize_overflow: bool = True
    strict_triton: bool = field(default_factory=lambda: knobs.language.strict_triton)
    lanes: int = 0
    num_warps: int = 4
    num_stages: int = 3
    enable_fp_fusion: bool = True
    backend_name: str = "cpu"
    arch: str = ""
