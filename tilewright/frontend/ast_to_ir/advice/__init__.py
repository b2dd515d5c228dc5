"""Suggested fixes for errors: rules by error code, see `explain.suggests`.

A rule has access to the expression, its operands and the facts attached to the error, but not to
the message. Importing this package registers all rules.
"""

from tilewright.frontend.ast_to_ir.advice import constructs, names, operands

__all__ = ["constructs", "names", "operands"]
