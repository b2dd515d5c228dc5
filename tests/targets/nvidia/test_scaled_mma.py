"""Block-scaled products on chips with instructions for them, and on others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.nvidia.lowered import ptx_of
from tests.targets.nvidia.scaled_products import FORMS, Form, arguments_of, module_of
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import Verifier, run
from tilewright.ops.nvidia import ScaledMma
from tilewright.passes.verify_layouts import LayoutVerifier
from tilewright.targets.nvidia.target import NvidiaTarget

WARPS = (1, 4, 8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("form", "name"), FORMS)
def test_instructions_of_a_form(form: Form, name: str) -> None:
    """An instruction for each 16 x 8 results and 32 bytes along K, over the warps that differ."""
    text = ptx_of(module_of(form), 120, num_warps=1)
    found = [line.split()[0] for line in text.splitlines() if "block_scale" in line]
    if not name:
        assert not found
        assert "mma.sync.aligned.m16n8k16.row.col.f32.bf16" in text
        return
    m, n, k = form.extents
    step = 64 if "m16n8k64" in name else 32
    assert found == [f"mma.sync.aligned.{name}"] * (m // 16 * n // 8 * k // step)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("warps", WARPS)
@pytest.mark.parametrize(("form", "name"), FORMS)
def test_passes_keep_the_result(form: Form, name: str, warps: int) -> None:
    """The laid-out IR, in the interpreter, computes what the op does; sums are exact."""
    module = module_of(form)
    target = NvidiaTarget(120)
    ctx = context_for(target, target.parse_options({"num_warps": warps}))
    lowered = module.clone()
    run(lowered, pipeline(target), ctx, [Verifier(), LayoutVerifier(ctx)])
    assert any(isinstance(op, ScaledMma) for op in lowered.walk()) == bool(name)
    ours, theirs = arguments_of(form), arguments_of(form)
    interpret(lowered, 1, ours)
    interpret(module, 1, theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


@pytest.mark.parametrize("chip", [80, 90, 100, 121])
def test_other_chips(chip: int) -> None:
    text = ptx_of(module_of(Form("e2m1", "e2m1")), chip)
    assert ("block_scale" in text) == (chip == 121)
