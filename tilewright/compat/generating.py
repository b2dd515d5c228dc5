"""Names that programs import from `triton.compiler.code_generator`, Triton's front end."""

from __future__ import annotations

from typing import Any

from tilewright.compat.missing import missing_names

_MISSING = missing_names(
    "triton.compiler.code_generator",
    "CodeGenerator ast_to_ttir flatten_values_to_ir unflatten_ir_values",
    "`tilewright.compiler.ASTSource(kernel, signature).module(options)` builds the IR of a kernel",
)


def __getattr__(name: str) -> Any:
    if name in _MISSING:
        return _MISSING[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
