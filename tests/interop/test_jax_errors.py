"""Errors of calls of kernels in JAX programs say what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.interop.jax_kernels import add_kernel, scale_kernel, split_kernel
from tilewright.jax import call


@tw.jit
def reading_kernel(x, out, other):
    tl.store(out, tl.load(x) + tl.load(other))


@tw.autotune([tw.Config({"BLOCK": 16}, pre_hook=lambda args: None)], key=[])
@tw.jit
def hooked_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))


F32 = jax.ShapeDtypeStruct((16,), np.float32)


def ones(n: int = 16) -> Any:
    return jnp.ones(n, jnp.float32)


def traced_block() -> Any:
    return jax.jit(lambda x, b: call(add_kernel, x, x, n=16, BLOCK=b, grid=(1,), out_shape=F32))(
        ones(), 16
    )


def traced_grid() -> Any:
    return jax.jit(
        lambda x, n: call(
            add_kernel, x, x, n=n, BLOCK=16, grid=lambda m: (m["n"] // 16,), out_shape=F32
        )
    )(ones(), 16)


def add(x: Any) -> Any:
    return call(add_kernel, x, x, n=16, BLOCK=16, grid=(1,), out_shape=F32)


def calling(kernel: Any, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    def function() -> Any:
        given = [ones() if arg is Ellipsis else arg for arg in args]
        named: dict[str, Any] = {k: ones() if arg is Ellipsis else arg for k, arg in kwargs.items()}
        named = {"grid": (1,), "out_shape": F32, **named}
        return call(kernel, *given, **named)

    return function


REST = {"n": 16, "BLOCK": 16}
ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no kernel": (calling(len, ...), TypeError, "takes a kernel, not .*: decorate the function"),
    "missing": (calling(add_kernel, ..., BLOCK=16, n=16), TypeError, "needs the argument 'out'"),
    "missing constexpr": (
        calling(add_kernel, ..., ..., n=16), TypeError, "needs the compile-time argument 'BLOCK'",
    ),
    "too many": (calling(scale_kernel, 1, 2, 3, 4, 5), TypeError, "takes 4 arguments besides"),
    "twice": (calling(add_kernel, ..., ..., x=1, **REST), TypeError, "with 'x' twice"),
    "unknown option": (
        calling(add_kernel, ..., ..., num_wraps=4, **REST), KeyError, "did you mean num_warps",
    ),
    "traced constexpr": (traced_block, TypeError, "'BLOCK'.*static_argnames"),
    "traced grid": (traced_grid, TypeError, "grid of add_kernel.*static_argnames"),
    "grid of floats": (
        calling(add_kernel, ..., ..., grid=(1.5,), **REST), TypeError, "axis x of the grid is 1.5",
    ),
    "float64": (
        calling(add_kernel, ..., ..., out_shape=jax.ShapeDtypeStruct((16,), np.float64), **REST),
        TypeError, "'out'.*float64.*jax_enable_x64",
    ),
    "no type": (
        calling(add_kernel, ..., ..., out_shape=3, **REST), TypeError, "described by a jax.Shape",
    ),
    "unknown output": (
        calling(add_kernel, ..., ..., out_shape={"ou": F32}, **REST),
        ValueError, "out_shape names 'ou'.*did you mean out",
    ),
    "output is argument": (
        calling(add_kernel, ..., ..., out=3, out_shape={"out": F32}, **REST),
        TypeError, "input_output_aliases=",
    ),
    "wrong shape": (
        calling(scale_kernel, ..., 16, 2.0, 16, out_shape=jax.ShapeDtypeStruct((8,), np.float32),
                input_output_aliases={0: 0}),
        ValueError, r"'x'.*shape \(16,\).*shape \(8,\)",
    ),
    "no such output": (
        calling(scale_kernel, ..., 16, 2.0, 16, input_output_aliases={0: 1}),
        ValueError, "no output of out_shape",
    ),
    "no such argument": (
        calling(scale_kernel, ..., 16, 2.0, 16, input_output_aliases={7: 0}),
        ValueError, "names argument 7 of 4",
    ),
    "two for one": (
        calling(scale_kernel, ..., 16, 2.0, 16, input_output_aliases={0: 0, "x": 0}),
        ValueError, "maps both 0 and 'x'",
    ),
    "no results": (
        calling(scale_kernel, ..., 16, 2.0, 16, out_shape=()),
        ValueError, "JAX removes calls without results.*input_output_aliases",
    ),
    "in place, no array": (
        calling(scale_kernel, ..., 16, 2.0, 16, input_output_aliases={1: 0}),
        TypeError, "'n', which is not an array",
    ),
    "undeclared store": (
        calling(split_kernel, x=..., high=..., **{**REST, "at": 1.0}) , tw.CompilationError,
        r"stores to 'high', which is an input.*input_output_aliases",
    ),
    "output without store": (
        calling(reading_kernel, ..., out_shape=(F32, F32)),
        ValueError, "does not store to 'other'.*may be out",
    ),
    "no free parameter": (
        calling(scale_kernel, ..., 16, 2.0, 16), TypeError, "has 0 parameters left",
    ),
    "complex": (
        calling(add_kernel, jnp.ones(16, jnp.complex64), ..., **REST),
        TypeError, "'x'.*elements of type complex64",
    ),
    "hook": (calling(hooked_kernel, ..., n=16), ValueError, "pre_hook"),
    "tuple of arrays": (
        calling(add_kernel, (np.ones(2),), ..., **REST), TypeError, "tuple with arrays",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_to_do(name: str) -> None:
    function, kind, message = ERRORS[name]
    with pytest.raises(kind, match=f"(?s){message}"):
        function()


def test_keys_of_random_numbers_are_no_arrays_of_kernels() -> None:
    with pytest.raises(TypeError, match=r"'x' of add_kernel has elements of type key"):
        calling(add_kernel, jax.random.key(0), ..., **REST)()


VERSIONS = """
import sys, types
fake = types.ModuleType("jax")
fake.__version_info__ = (0, 4, 31)
sys.modules["jax"] = {fake}
import tilewright.jax
"""


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("None", "needs JAX, which cannot be imported"),
        ("fake", "needs JAX 0.6 or newer, not 0.4.3"),
    ],
)
def test_jax_is_absent_or_too_old(found: str, message: str) -> None:
    code = VERSIONS.format(fake=found)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: tilewright.jax " + message in done.stderr
    assert "pip install -U jax" in done.stderr


def test_torch_tensors_are_no_arguments() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"torch.Tensor.*jax.numpy.asarray"):
        calling(add_kernel, torch.ones(16), ..., **REST)()


def test_an_undeclared_store_names_the_line() -> None:
    with pytest.raises(tw.CompilationError, match=r"tl.store\(high \+ i"):
        calling(split_kernel, x=ones(), high=ones(), n=16, at=1.0, BLOCK=16)()


def test_other_platforms_are_errors() -> None:
    with pytest.raises(NotImplementedError, match="cpu and cuda, not on tpu"):
        jax.export.export(jax.jit(add), platforms=["tpu"])(F32)
