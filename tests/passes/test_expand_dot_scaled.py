"""Expanded block-scaled products compute what the op does, bit by bit, for any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir_values import random_arguments, same_bits
from tilewright.ir.core import Function, Module
from tilewright.ir.interpret import evaluate_function
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import Pass, PassContext, Step, Verifier, run
from tilewright.ir.types import text_of
from tilewright.ir.verify import verify_module
from tilewright.ops.dot import Dot
from tilewright.ops.dot_scaled import PACKED, PLAIN, SHORT, DotScaled, storage_type
from tilewright.passes.expand_dot_scaled import FEATURE, expand_dot_scaled, expand_every_dot_scaled

FORMATS = (*SHORT, *PLAIN)
M, N, K = 4, 8, 32


def _operand(format: str, sizes: tuple[int, int], packed_axis: int) -> str:
    extents = list(sizes)
    if format == PACKED:
        extents[packed_axis] //= 2
    return f"{extents[0]}x{extents[1]}x{text_of(storage_type(format))}"


def product(
    left: str, right: str, group: int, scale: str = "u8", *, packs: tuple[bool, bool] = (True, True)
) -> Module:
    """A function of the operands of a product; of no scales if `group` is 0."""
    lhs = _operand(left, (M, K), 1 if packs[0] else 0)
    rhs = _operand(right, (K, N), 0 if packs[1] else 1)
    types = [lhs, rhs, f"{M}x{N}xfp32"]
    names = ["%0", "_", "%1", "_", "%2"]
    if group:
        types += [f"{M}x{K // group}x{scale}", f"{N}x{K // group}x{scale}"]
        names[1], names[3] = "%3", "%4"
    arguments = ", ".join(f"%{i}: {t}" for i, t in enumerate(types))
    used = ", ".join(types[int(name[1])] for name in names if name != "_")
    text = f"""func @f({arguments}) -> {types[2]} {{
  %9 = tile.dot_scaled {", ".join(names)}, lhs_format="{left}", rhs_format="{right}",
    lhs_k_pack={packs[0]}, rhs_k_pack={packs[1]}, fast_math=False : ({used}) -> {types[2]}
  control.return [%9] : {types[2]} -> ()
}}"""
    module = parse_module(text)
    verify_module(module)
    return module


def expanded(module: Module, with_: Pass = expand_dot_scaled, *features: str) -> Function:
    module = module.clone()
    run(module, [Step(with_)], PassContext(frozenset(features)), [Verifier()])
    return module.entry


def check(module: Module) -> None:
    rng = np.random.default_rng(3)
    expansion = expanded(module)
    assert not any(isinstance(op, DotScaled) for op in expansion.walk())
    for _ in range(3):
        arguments = random_arguments(module.entry, rng)
        for i, a in enumerate(arguments):
            if a.dtype == np.uint8:
                arguments[i] = rng.integers(0, 256, a.shape).astype(np.uint8)
        with np.errstate(all="ignore"):
            ours: Any = evaluate_function(expansion, arguments)
            theirs: Any = evaluate_function(module.entry, arguments)
        assert same_bits(ours[0], theirs[0])


@pytest.mark.parametrize("group", [0, 16, 32])
@pytest.mark.parametrize("right", FORMATS)
@pytest.mark.parametrize("left", FORMATS)
def test_formats(left: str, right: str, group: int) -> None:
    check(product(left, right, group))


@pytest.mark.parametrize("packs", [(True, False), (False, True), (False, False)])
def test_other_packing(packs: tuple[bool, bool]) -> None:
    check(product("e2m1", "e2m1", 32, packs=packs))


@pytest.mark.parametrize("scale", ["fp8e4nv", "fp32", "bf16"])
def test_scales_that_are_floats(scale: str) -> None:
    check(product("e2m1", "e4m3", 16, scale))


def test_a_target_with_the_feature_keeps_the_op() -> None:
    module = product("e2m1", "e4m3", 32)
    kept = expanded(module, expand_dot_scaled, FEATURE)
    assert any(isinstance(op, DotScaled) for op in kept.walk())
    derived = expanded(module, expand_every_dot_scaled, FEATURE)
    assert sum(isinstance(op, Dot) for op in derived.walk()) == 1
