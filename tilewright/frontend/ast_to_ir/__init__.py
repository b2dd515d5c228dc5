"""The translation of a function's syntax tree to tile IR.

`frame` has the state, `visit` the dispatch by node class; `scope`, `expr`, `operators`, `stmt`,
`branch`, `loop`, `loop_while` and `call` have the handlers; `join` and `carried` have their common
parts: merges of branches and loop-carried variables. `call_function` compiles the `@jit` functions
that are called, `call_python` evaluates Python's. `explain` and `advice` add notes and suggestions
to errors, which import them. Importing this package registers all handlers.
"""

from tilewright.frontend.ast_to_ir import (
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
