"""LLVM's optimisation passes for GPU code, before code generation."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from tilewright.base.llvm_library import without_phi_of_ops


@cache
def _passes(numbered: bool) -> llvm.ModulePassManager:
    """No pass unrolls, vectorises or moves code between blocks: tilewright has decided that before.

    LLVM's own pipeline takes four times as long for the same code (measured on a matmul kernel).
    Kept, like what runs them, as llvmlite frees neither wholly.

    Args:
        numbered: whether values are numbered.
    """
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    if numbered:
        passes.add_new_gvn_pass()
    passes.add_simplify_cfg_pass()
    return passes


def clean_up(module: llvm.ModuleRef, builder: llvm.PassBuilder, *, numbered: bool) -> None:
    """Optimise a module; hold the lock `locks.LLVM`.

    Args:
        numbered: whether values are numbered; see `llvm_recurrences`.
    """
    with without_phi_of_ops():
        _passes(numbered).run(module, builder)
