"""The translation of a function's syntax tree to tile IR.

`visit` has the state and the dispatch; `scope`, `expr`, `operators`, `stmt`, `branch`, `loop` and
`call` the handlers of the nodes. Importing this package fills the tables of handlers.
"""

from tilewright.frontend.ast_to_ir import branch, call, expr, loop, operators, scope, stmt, visit

__all__ = ["branch", "call", "expr", "loop", "operators", "scope", "stmt", "visit"]
