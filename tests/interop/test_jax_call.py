"""Kernels in JAX programs on the CPU: arguments, results, compilation, and errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.interop.jax_kernels import add_kernel, scale_kernel, split_kernel
from tilewright.interop import xla_kernels
from tilewright.jax import call
from tilewright.runtime.jit import InterpretedFunction

Struct = jax.ShapeDtypeStruct


@tw.jit
def accumulate_kernel(total, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total + i, tl.load(total + i, i < n) + tl.load(x + i, i < n), i < n)


@tw.jit
def numbers_kernel(out, a, b, c, d):
    tl.store(out, a.to(tl.float32))
    tl.store(out + 1, b)
    tl.store(out + 2, tl.where(c, 1.0, 2.0))
    tl.store(out + 3, (d.to(tl.int64) >> 40).to(tl.float32))


def blocks(meta: dict[str, Any]) -> tuple[int]:
    return (tw.cdiv(meta["n"], meta["BLOCK"]),)


def add(x: Any, y: Any, **options: Any) -> Any:
    return call(
        add_kernel, x, y, n=x.size, BLOCK=64, grid=blocks, out_shape=Struct(x.shape, x.dtype),
        **options,
    )  # fmt: skip


@pytest.fixture
def compiled() -> Any:
    """The names of the kernels that are compiled or loaded from the cache."""
    names: list[str] = []
    tw.knobs.compilation.listener = lambda **facts: names.append(facts["src"].name)
    yield names
    tw.knobs.compilation.listener = None


def test_outside_and_inside_of_jit() -> None:
    x, y = jnp.arange(200, dtype=jnp.float32), jnp.ones(200)
    np.testing.assert_array_equal(add(x, y), np.arange(200) + 1)
    np.testing.assert_array_equal(jax.jit(add)(x, y), np.arange(200) + 1)
    np.testing.assert_array_equal(add(np.ones(200, np.float32), y), np.full(200, 2))
    twice = jax.jit(lambda x, y: add(add(x, y) * 2, y))
    np.testing.assert_array_equal(twice(x, y), (np.arange(200) + 1) * 2 + 1)
    np.testing.assert_array_equal(jax.lax.fori_loop(0, 5, lambda _, v: add(v, y), x)[:2], [5, 6])


def test_forms_of_out_shape() -> None:
    x = jnp.arange(10, dtype=jnp.float32)
    struct = Struct(x.shape, x.dtype)
    rest: dict[str, Any] = {"n": 10, "at": 4.5, "BLOCK": 16, "grid": (1,)}
    expected = np.minimum(np.arange(10), 4.5), np.maximum(np.arange(10), 4.5)
    found = call(split_kernel, x=x, out_shape=(struct, [x]), **rest)
    assert isinstance(found, tuple)
    assert isinstance(found[1], list)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1][0], expected[1])
    named = call(split_kernel, x, out_shape={"low": struct, "high": struct}, **rest)
    np.testing.assert_array_equal(named["low"], expected[0])
    np.testing.assert_array_equal(named["high"], expected[1])


def scale(x: Any, aliases: dict[Any, Any], out_shape: Any = None) -> Any:
    return call(
        scale_kernel,
        *(x, x.size, 3.0, 16),
        grid=(1,),
        out_shape=x if out_shape is None else out_shape,
        input_output_aliases=aliases,
    )


def test_updates_in_place_leave_the_argument_as_it_is() -> None:
    x = jnp.arange(10, dtype=jnp.float32)
    np.testing.assert_array_equal(scale(x, {0: 0}), 3 * np.arange(10))
    np.testing.assert_array_equal(x, np.arange(10))
    np.testing.assert_array_equal(scale(x, {"x": "x"}, {"x": x})["x"], 3 * np.arange(10))
    both = jax.jit(lambda x: (x + scale(x, {"x": 0}), scale(scale(x, {0: 0}), {0: 0})))
    np.testing.assert_array_equal(both(x)[0], 4 * np.arange(10))
    np.testing.assert_array_equal(both(x)[1], 9 * np.arange(10))


def test_an_array_that_is_passed_twice_and_updated_once() -> None:
    double = jax.jit(
        lambda x: call(
            accumulate_kernel, x, x, n=10, BLOCK=16, grid=(1,), out_shape=x,
            input_output_aliases={0: 0},
        )
    )  # fmt: skip
    np.testing.assert_array_equal(double(jnp.arange(10.0)), 2 * np.arange(10))


def test_numbers_are_passed_as_in_a_launch() -> None:
    given = [(7, 0.1, True, 3 << 40), (1, -2.5, False, -(1 << 41)), (16, 1e30, True, 1 << 62)]
    for a, b, c, d in given:
        found = call(
            numbers_kernel, a=a, b=b, c=c, d=d, grid=(1,), out_shape=Struct((4,), jnp.float32)
        )
        expected = np.zeros(4, np.float32)
        numbers_kernel[(1,)](expected, a, b, c, d)
        np.testing.assert_array_equal(found, expected)
    found = call(
        numbers_kernel, a=np.int32(7), b=np.float32(0.5), c=True, d=0, grid=(1,),
        out_shape=Struct((4,), jnp.float32),
    )  # fmt: skip
    np.testing.assert_array_equal(found, [7, 0.5, 1, 0])


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "float8_e4m3fn", "float64", "int64"]
)
def test_element_types(dtype: str) -> None:
    with jax.enable_x64(dtype.endswith("64")):
        x = jnp.asarray([0, 1, 1, 0] * 4).astype(dtype)
        found = add(x, jnp.zeros_like(x))
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, x)


def test_one_compilation_for_each_variant(compiled: list[str]) -> None:
    step = jax.jit(lambda x, y: add(add(x, y), y))
    x = jnp.ones(96, jnp.float32)
    step(x, x)
    step(x, x)
    assert compiled == ["add_kernel"] * len(compiled)
    assert len(compiled) <= 2
    before = len(compiled)
    add(x, x)
    add(x, x)
    assert len(compiled) == before + 1
    step(jnp.ones(100, jnp.float32), jnp.ones(100, jnp.float32))
    assert len(compiled) > before + 1


def test_subnormals_are_not_flushed() -> None:
    """XLA's threads flush them."""
    tiny = np.full(64, 1e-40, np.float32)
    found = add(jnp.asarray(tiny), jnp.zeros(64))
    np.testing.assert_array_equal(np.asarray(found).view(np.int32), tiny.view(np.int32))


def test_many_programs_run_on_all_threads() -> None:
    x = jnp.arange(1 << 20, dtype=jnp.float32)
    step = jax.jit(add)
    for _ in range(5):
        np.testing.assert_array_equal(step(x, x), 2 * np.arange(1 << 20, dtype=np.float32))


def test_nothing_to_do() -> None:
    empty = jnp.zeros((0,), jnp.float32)
    assert add(empty, empty).shape == (0,)
    x = jnp.ones(8, jnp.float32)
    found = call(scale_kernel, x, 8, 2.0, 16, grid=(0,), out_shape=x, input_output_aliases={0: 0})
    np.testing.assert_array_equal(found, np.ones(8))


def test_calls_on_several_threads() -> None:
    """Each thread compiles a variant of its own, and runs those of the others."""
    sizes = [64, 1000, 5000, 70000]
    failures: list[Any] = []

    def work(number: int) -> None:
        for n in sizes[number:] + sizes[:number]:
            x = jnp.full(n, number, jnp.float32)
            for _ in range(10):
                if not (np.asarray(jax.jit(add)(x, x)) == 2 * number).all():
                    failures.append((number, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_donated_arrays_are_updated_in_place() -> None:
    step = jax.jit(lambda x: scale(x, {0: 0}), donate_argnums=0)
    x = jnp.arange(10, dtype=jnp.float32) + 1
    before = x.unsafe_buffer_pointer()
    y = step(x)
    np.testing.assert_array_equal(y, 3 * np.arange(1, 11))
    assert y.unsafe_buffer_pointer() == before
    assert x.is_deleted()
    with pytest.raises(ValueError, match=r"'x' of scale_kernel .* donated .* donate_argnums"):
        scale(x, {0: 0})


# -- wrappers -------------------------------------------------------------------------------------


@tw.autotune([tw.Config({"BLOCK": 16}), tw.Config({"BLOCK": 64}, num_warps=8)], key=["n"])
@tw.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0 and args["x"].shape[0] > 0})
@tw.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + i, tl.load(x + i) + 1)
    else:
        tl.store(out + i, tl.load(x + i, i < n) + 2, i < n)


def test_autotuned_kernels_with_heuristics() -> None:
    for n, expected in ((128, 2), (100, 3)):
        x = jnp.ones(n, jnp.float32)
        found = jax.jit(lambda x: call(tuned_kernel, x, n=x.size, grid=blocks, out_shape=x))(x)
        np.testing.assert_array_equal(found, np.full(n, expected))
    assert tuned_kernel.best_config in tuned_kernel.configs


def test_a_new_function_as_grid_is_no_new_program(compiled: list[str]) -> None:
    """As in a loop that calls a kernel outside of `jax.jit`."""
    x = jnp.ones(128, jnp.float32)

    def step() -> Any:
        grid = lambda meta: (tw.cdiv(meta["n"], meta["BLOCK"]),)  # noqa: E731
        return call(tuned_kernel, x, n=x.size, grid=grid, out_shape=x)

    step()
    before = len(compiled)
    for _ in range(3):
        np.testing.assert_array_equal(step(), np.full(128, 2))
    assert len(compiled) == before


SCALE = 2.0


@tw.jit
def global_kernel(x, out):
    tl.store(out, tl.load(x) * SCALE)


def test_a_global_that_changed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    one = jnp.ones(1, jnp.float32)
    monkeypatch.setitem(globals(), "SCALE", tl.constexpr(2.0))
    np.testing.assert_array_equal(call(global_kernel, one, grid=(1,), out_shape=one), [2])
    monkeypatch.setitem(globals(), "SCALE", tl.constexpr(3.0))
    with pytest.raises(RuntimeError, match="SCALE has changed"):
        call(global_kernel, one, grid=(1,), out_shape=one)


# -- kernels that need Python ---------------------------------------------------------------------


@tw.jit
def printing_kernel(x, out):
    tl.device_print("value", tl.load(x))
    tl.store(out, tl.load(x))


@tw.jit
def asserting_kernel(x, out):
    tl.device_assert(tl.load(x) > 0, "not positive")
    tl.store(out, tl.load(x))


def test_prints_and_assertions(capfd: pytest.CaptureFixture[str]) -> None:
    one = jnp.ones(1, jnp.float32)
    jax.block_until_ready(call(printing_kernel, one, grid=(1,), out_shape=one))
    assert "value" in capfd.readouterr().out
    checked = jax.jit(lambda x: call(asserting_kernel, x, grid=(1,), out_shape=x, debug=True))
    np.testing.assert_array_equal(checked(one), [1])
    with pytest.raises(Exception, match=r"(?s)DeviceAssertionError.*not positive"):
        jax.block_until_ready(checked(-one))
    jax.block_until_ready(call(asserting_kernel, -one, grid=(1,), out_shape=one))
    with tw.knobs.runtime.scope():
        tw.knobs.runtime.debug = True
        with pytest.raises(Exception, match=r"(?s)DeviceAssertionError.*not positive"):
            jax.block_until_ready(call(asserting_kernel, -one, grid=(1,), out_shape=one))


def test_kernels_that_the_interpreter_executes() -> None:
    kernel = InterpretedFunction(split_kernel.fn)
    x = jnp.arange(10, dtype=jnp.bfloat16)
    low, high = call(kernel, x=x, n=10, at=4.0, BLOCK=16, grid=(1,), out_shape=(x, x))
    np.testing.assert_array_equal(low, np.minimum(np.arange(10), 4).astype(low.dtype))
    np.testing.assert_array_equal(high, np.maximum(np.arange(10), 4).astype(low.dtype))


# -- programs of other processes ------------------------------------------------------------------

RELOAD = """
import sys, numpy as np, jax, jax.export, tilewright.jax
tilewright.jax.enable()
exported = jax.export.deserialize(open(sys.argv[1], "rb").read())
print(np.asarray(exported.call(np.arange(64, dtype=np.float32), np.ones(64, np.float32)))[-1])
"""


def test_exported_programs_run_in_another_process(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    allowed = [jax.export.DisabledSafetyCheck.custom_call("tilewright_kernel")]
    x = Struct((64,), jnp.float32)
    exported = jax.export.export(jax.jit(add), disabled_checks=allowed)(x, x)
    path = tmp_path / "add.bin"
    path.write_bytes(exported.serialize())
    run = [sys.executable, "-c", RELOAD, str(path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.stdout == "64.0\n", done.stderr


def test_a_kernel_that_was_not_offered_is_loaded_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x = jnp.ones(48, jnp.float32)
    program = jax.jit(add).lower(x, x).compile()
    monkeypatch.setattr(xla_kernels._KERNELS, "_offered", {})
    np.testing.assert_array_equal(program(x, x), np.full(48, 2))
    other = jax.jit(partial(add, num_warps=8)).lower(x, x).compile()
    monkeypatch.setattr(xla_kernels._KERNELS, "_offered", {})
    with tw.knobs.cache.scope():
        tw.knobs.cache.dir = str(tmp_path)
        with pytest.raises(Exception, match="not in tilewright's cache: trace the function again"):
            jax.block_until_ready(other(x, x))
