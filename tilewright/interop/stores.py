"""The stores of a kernel to an argument, for errors about undeclared stores."""

from __future__ import annotations

from typing import Any

from tilewright.analysis.accessed_arguments import first_stores
from tilewright.base.diagnostics import Loc
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import STEPS
from tilewright.compiler.source import ASTSource
from tilewright.ir.passes import run
from tilewright.targets.protocol import Target


def line_of_store(source: ASTSource, target: Target, options: Any, index: int) -> Loc | None:
    """The location of the first store to an argument; None if there is none.

    Args:
        index: of the argument, as in `written` of a kernel's metadata.
    """
    module = source.module(target.frontend_options(options))
    run(module, STEPS, context_for(target, options))
    store = first_stores(module.entry).get(index)
    return store.loc if store is not None else None
