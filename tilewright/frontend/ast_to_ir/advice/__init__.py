"""The notes of errors, with suggested fixes: rules by error code, see `explain.suggests`.

A rule has access to the expression, its operands and the facts attached to the error, but not to
the message. Importing this package registers all rules.
"""

from tilewright.frontend.ast_to_ir.advice import constructs, names, operands
from tilewright.frontend.ast_to_ir.explain import notes

__all__ = ["constructs", "names", "notes", "operands"]
