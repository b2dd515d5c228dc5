"""What may help against a mistake: rules by the code of the mistake, see `explain.suggests`.

A rule knows the expression, its operands and the facts that the error carries, never its text.
Importing this package registers them all.
"""

from tilewright.frontend.ast_to_ir.advice import constructs, names, operands

__all__ = ["constructs", "names", "operands"]
