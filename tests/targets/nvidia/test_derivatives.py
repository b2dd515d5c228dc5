"""Derived kernels compile for Hopper, without a GPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.autodiff.cases import NAMES, case
from tests.autodiff.harness import (
    cleaned,
    copied,
    forward_module,
    launch_points,
    launch_verdicts,
    regrid_vjp,
)
from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff.arrays import arrays_of
from tilewright.autodiff.coarsen import coarsening
from tilewright.autodiff.reverse import reverse_mode
from tilewright.compiler.driver import compile
from tilewright.compiler.source import IRSource

ATOMIC = re.compile(r"\b(red|atom)\.")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_kernel_compiles_for_hopper(name: str) -> None:
    text, grid, args, wrt, outputs, constexprs = case(name)
    module = forward_module(text, args, constexprs)
    loads, _ = launch_verdicts(module, grid, args)
    shared = [a for a in arrays_of(module.entry).values() if a.name in wrt]
    shared = [a for a in shared if not loads[a.name].distinct]
    points = launch_points(module, grid, args)
    coarse = coarsening(module.entry, shared, points, BlockFinder())
    atomic = [a.name for a in shared if coarse is None or a.name not in coarse.arrays]
    derived = reverse_mode(module, wrt, outputs, atomic=atomic, coarse=coarse)
    made = compile(IRSource.of_module(cleaned(derived.module)), target="cuda:90")
    ptx = str(made.asm["ptx"])
    assert ".target sm_90" in ptx
    assert bool(ATOMIC.search(ptx)) == bool(atomic)


@pytest.mark.parametrize(
    ("name", "count"),
    [("full attention", 1), ("causal attention", 1), ("grouped product with gelu", 3)],
)
def test_kernels_on_separate_grids_compile_for_hopper(name: str, count: int) -> None:
    """One for each loop, and one that saves what they need and a forward launch does not store."""
    text, grid, args, wrt, outputs, constexprs = case(name)
    module = forward_module(text, args, constexprs)
    cotangents = {n: np.ones(args[n].shape) for n in outputs}
    _, kernels = regrid_vjp(module, grid, copied(args), cotangents, wrt)
    assert len(kernels) == count
    for kernel in kernels:
        made = compile(IRSource.of_module(kernel), target="cuda:90")
        assert ".target sm_90" in str(made.asm["ptx"])
        assert not ATOMIC.search(str(made.asm["ptx"]))
