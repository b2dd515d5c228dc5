"""Tile IR as a stage of a compilation, which users can read and override."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext
from tilewright.ir.printer import print_module
from tilewright.ir.verify import verify_module


def tile_ir_stages(
    module: Module, ctx: PassContext, names: Sequence[str]
) -> tuple[Module, dict[str, str]]:
    """The module after all passes, and its text as a stage under each of the names.

    If one of the stages is overridden, both are those of the override.

    Raises:
        IRError: an overriding text is not valid tile IR.
    """
    text = ""
    for name in names:
        override = ctx.replaced_text(name)
        if override is not None:
            module, text = _parsed(override, module, name), override
    return module, dict.fromkeys(names, text or print_module(module))


def _parsed(text: str, module: Module, name: str) -> Module:
    """The module of a text that overrides a stage, with the names of the arguments of `module`."""
    result = parse_module(text, name)
    verify_module(result)
    result.entry.arg_names = module.entry.arg_names
    return result
