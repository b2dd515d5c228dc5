"""The translation of a function's syntax tree to tile IR.

`visit` has the state and the dispatch; `scope`, `expr`, `operators`, `stmt`, `branch`, `loop`,
`loop_while` and `call` the handlers of the nodes; `join` and `carried` what these share;
`explain` and `advice` what an error says besides its message. Importing this package fills the
tables of handlers and of advice.
"""

from tilewright.frontend.ast_to_ir import (
    advice,
    branch,
    call,
    expr,
    loop,
    loop_while,
    operators,
    scope,
    stmt,
    visit,
)

__all__ = [
    "advice",
    "branch",
    "call",
    "expr",
    "loop",
    "loop_while",
    "operators",
    "scope",
    "stmt",
    "visit",
]
