"""What inline assembly rejects, and functions of the device library by their symbols."""

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, evaluate, kernel_from
from tilewright.base.diagnostics import CompilationError
from tilewright.frontend.options import FrontendOptions
from tilewright.ops.asm import InlineAsm, InlineAsmEffect

PTX = FrontendOptions(assembly="PTX")


def error_of(arguments: str, options: FrontendOptions = PTX) -> str:
    text = f"def k(p):\n    x = tl.load(p)\n    tl.inline_asm_elementwise({arguments})\n"
    with pytest.raises(CompilationError) as info:
        build(kernel_from(text), {"p": "*i32"}, options=options)
    assert str(info.value).startswith("at 3:4:")
    return str(info.value.__cause__ or info.value)


def test_target_without_assembly() -> None:
    message = error_of("'', '=r,r', [x], tl.int32, True, 1", FrontendOptions(backend_name="cpu"))
    assert message.startswith("inline_asm_elementwise is not supported on 'cpu'")


REJECTED = [
    ("'', '=r,r', [x], (), True, 1", "must give something"),
    ("'', '=r,r', [x], tl.int32, True, 0", "pack is a positive integer, not 0"),
    ("'', '=r,r', [x], 8, True, 1", "expected a dtype, got"),
    ("'', '=r', [x], tl.int32, True, 1", "name 0 registers for operands; i32 in packs of 1 take 1"),
    ("'', '=r,r', [x], tl.int32, True, 2", "name 1 registers for results; i32 in packs of 2 take"),
]


@pytest.mark.parametrize(("arguments", "message"), REJECTED)
def test_assembly_rejects(arguments: str, message: str) -> None:
    assert message in error_of(arguments)


@pytest.mark.parametrize(("pure", "cls"), [(True, InlineAsm), (False, InlineAsmEffect)])
def test_impure_assembly_has_a_side_effect(pure: bool, cls: Any) -> None:
    text = f"def k():\n    tl.inline_asm_elementwise('', '=r', [], tl.int32, {pure}, 1)\n"
    module = build(kernel_from(text), options=PTX)
    (op,) = (op for op in module.walk() if isinstance(op, InlineAsm | InlineAsmEffect))
    assert type(op) is cls


def test_addresses_are_numbers_of_their_registers() -> None:
    text = """
    def k(p):
        dtypes = (p.dtype, tl.int8, p.dtype, p.dtype)
        tl.inline_asm_elementwise("", "=l,=l,=r,=&r,=r,=l,=l", [], dtypes, False, 2)
    """
    module = build(kernel_from(text), {"p": "*i32"}, options=PTX)
    (op,) = (op for op in module.walk() if isinstance(op, InlineAsmEffect))
    assert [t.name for t in op.types] == ["uint64", "int8", "uint32", "uint64"]


# -- libraries ------------------------------------------------------------------------------------


@tl.core.extern
def my_exp(x: Any, _semantic: Any = None) -> Any:
    symbols = {
        (tl.float32,): ("__nv_expf", tl.float32),
        (tl.float64,): ("__nv_exp", tl.float64),
    }
    return tl.core.extern_elementwise("libdevice", "", [x], symbols, True, _semantic=_semantic)


@tl.core.extern
def my_fmod(x: Any, y: Any, _semantic: Any = None) -> Any:
    symbols = {(tl.float32, tl.float32): ("__nv_fmodf", tl.float32)}
    return tl.core.extern_elementwise("", "", [x, y], symbols, True, _semantic=_semantic)


@tl.core.extern
def unknown(x: Any, _semantic: Any = None) -> Any:
    symbols = {(tl.float32,): ("my_function", tl.float32)}
    return tl.core.extern_elementwise("mine", "mine.bc", [x], symbols, True, _semantic=_semantic)


@tl.core.extern
def dispatched(x: Any, _semantic: Any = None) -> Any:
    def call(name: str, path: str, symbol: str, args: Any, result: Any, pure: bool) -> Any:
        assert (name, path, symbol, result, pure) == ("lib", "path", "twice", tl.float32, True)
        return tl.add(args[0], args[0], _semantic=_semantic)

    symbols = {(tl.float32,): ("twice", tl.float32)}
    return tl.core.dispatch(call, "lib", "path", [x], symbols, None, True, _semantic=_semantic)


X = np.array([0.5, 1.0, 2.0, 5.5], np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_symbol_follows_the_dtype(dtype: Any) -> None:
    x = X.astype(dtype)
    np.testing.assert_allclose(evaluate("f(a)", x, f=my_exp), np.exp(x), rtol=1e-6)


def test_operands_are_promoted_and_broadcast() -> None:
    found = evaluate("f(a, 2.0)", X.astype(np.float32), f=my_fmod)
    np.testing.assert_array_equal(found, np.fmod(X, np.float32(2)))
    half = X.astype(np.float16)
    found = evaluate("f(a, b)", half, X, f=my_fmod)
    np.testing.assert_array_equal(found, np.fmod(half.astype(np.float32), X))


def test_dispatch_calls_the_symbol() -> None:
    np.testing.assert_array_equal(evaluate("f(a)", X, f=dispatched), X + X)


@pytest.mark.parametrize(("function", "dtype", "message"), [
    (my_exp, np.int32, "input arg type does not match.Expect one of"),
    (unknown, np.float32, "unknown function 'my_function'"),
])  # fmt: skip
def test_library_rejects(function: Any, dtype: Any, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        evaluate("f(a)", X.astype(dtype), f=function)
