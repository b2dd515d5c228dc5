"""Sources of kernels: their properties, and the inputs of their hash."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.compiler.source import ASTSource, IRSource, runtime_arguments
from tilewright.frontend.options import FrontendOptions


@tilewright.jit
def kernel(x, pair, n, BLOCK: tl.constexpr, FLAG: tl.constexpr = True):  # pyright: ignore[reportArgumentType]
    tl.store(x, pair[0] + n)


@tilewright.jit
def other(x, pair, n, BLOCK: tl.constexpr, FLAG: tl.constexpr = True):  # pyright: ignore[reportArgumentType]
    tl.store(x, pair[0] - n)


SIGNATURE: dict[Any, Any] = {"x": "*i32", "pair": ("i32", "fp32"), "n": "i32"}


def test_signature_is_completed_in_the_order_of_the_parameters() -> None:
    source = ASTSource(kernel, {"n": "i32", "x": "*i32", "pair": ("i32", "fp32")}, {"BLOCK": 4})
    assert source.signature == {**SIGNATURE, "BLOCK": "constexpr", "FLAG": "constexpr"}
    assert list(source.signature) == ["x", "pair", "n", "BLOCK", "FLAG"]
    assert source.constants == {(3,): 4, (4,): True}
    assert source.name == "kernel"
    assert source.text.startswith("def kernel(")


def test_constants_are_named_or_placed() -> None:
    by_name = ASTSource(kernel, {**SIGNATURE, "BLOCK": "constexpr"}, {"BLOCK": 4, "n": 1})
    by_path = ASTSource(kernel, SIGNATURE, {(3,): 4, (2,): 1})
    assert by_name.constants == by_path.constants
    assert by_name.signature["n"] == "constexpr"
    assert by_name.hash() == by_path.hash()


def test_wrong_signatures_are_rejected() -> None:
    with pytest.raises(TypeError, match="Signature keys must be string"):
        ASTSource(kernel, {0: "*i32"})
    with pytest.raises(TypeError, match="kernel: the parameter 'n' has no type"):
        ASTSource(kernel, {"x": "*i32", "pair": ("i32", "fp32")}, {"BLOCK": 4})
    with pytest.raises(TypeError, match="kernel: the parameter 'BLOCK' has no value"):
        ASTSource(kernel, {**SIGNATURE, "BLOCK": "constexpr"})
    with pytest.raises(ValueError, match="kernel has no parameter 'm'; it has x, pair, n"):
        ASTSource(kernel, SIGNATURE, {"m": 4})
    with pytest.raises(TypeError, match="is not a kernel: decorate it with @jit"):
        ASTSource(kernel.fn, SIGNATURE)


def test_hash_depends_on_every_input() -> None:
    sources = [
        ASTSource(kernel, SIGNATURE, {"BLOCK": 4}),
        ASTSource(other, SIGNATURE, {"BLOCK": 4}),
        ASTSource(kernel, {**SIGNATURE, "n": "i64"}, {"BLOCK": 4}),
        ASTSource(kernel, {**SIGNATURE, "pair": ("i32", "fp64")}, {"BLOCK": 4}),
        ASTSource(kernel, SIGNATURE, {"BLOCK": 8}),
        ASTSource(kernel, SIGNATURE, {"BLOCK": 4.0}),
        ASTSource(kernel, SIGNATURE, {"BLOCK": 4, "FLAG": 1}),
        ASTSource(kernel, SIGNATURE, {"BLOCK": 4}, {(0,): [["tt.divisibility", 16]]}),
        ASTSource(kernel, SIGNATURE, {"BLOCK": 4}, {(0,): [["tw.alias", 0]]}),
    ]
    assert len({source.hash() for source in sources}) == len(sources)
    assert sources[0].hash() == ASTSource(kernel, SIGNATURE, {"BLOCK": 4}).hash()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("1", 1),
        (None, "None"),
        ((1, 2), (1, (2,))),
        (tl.float32, tl.int32),
        (kernel, other),
        ([kernel], [other]),
        (np.float32(0.0), np.float32(-0.0)),
        (tl.constexpr(1), tl.constexpr(2)),
    ],
)
def test_different_values_have_different_hashes(a: Any, b: Any) -> None:
    def hash(value: Any) -> str:
        return ASTSource(kernel, SIGNATURE, {"BLOCK": value}).hash()

    assert hash(a) != hash(b)
    assert hash(a) == hash(a)
    assert hash(tl.constexpr(a)) == hash(a)


def test_values_local_to_the_process_are_not_stored() -> None:
    assert ASTSource(kernel, SIGNATURE, {"BLOCK": 4}).cacheable()
    assert not ASTSource(kernel, SIGNATURE, {"BLOCK": object()}).cacheable()


def test_run_time_arguments_are_those_without_a_value() -> None:
    signature = ["*fp32", "constexpr", ("i32", ("constexpr", "fp32")), []]
    expected = [((0,), "*fp32"), ((2, 0), "i32"), ((2, 1, 1), "fp32")]
    assert list(runtime_arguments(signature)) == expected


def test_ir_of_a_kernel_compiles_again_as_a_source(tmp_path: Path) -> None:
    compiled = tilewright.compile(ASTSource(kernel, SIGNATURE, {"BLOCK": 4}), "interpreter")
    path = tmp_path / "kernel.ttir"
    path.write_text(compiled.asm["ttir"])
    source = IRSource(path)
    assert source.name == "kernel"
    assert list(source.signature.values()) == ["*i32", "i32", "fp32", "i32"]
    assert source.module(FrontendOptions()).entry.name == "kernel"
    again = tilewright.compile(source, "interpreter")
    assert again.asm["ttir"] == compiled.asm["ttir"]
