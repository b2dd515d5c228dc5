"""Names that programs import from `triton.compiler.code_generator`, Triton's front end."""

from __future__ import annotations

from tilewright.compat.missing import missing_names

__getattr__ = missing_names(
    __name__,
    "triton.compiler.code_generator",
    "CodeGenerator ast_to_ttir flatten_values_to_ir unflatten_ir_values",
    "`tilewright.compiler.ASTSource(kernel, signature).module(options)` builds the IR of a kernel",
)
