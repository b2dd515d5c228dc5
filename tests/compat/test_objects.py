"""Kernels and compiled kernels as torch and other libraries handle them."""

import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.base import knobs
from tilewright.compiler import ASTSource, CompiledKernel

N = 100


@tw.jit
def doubled(x):
    return x * 2 + 1


@tw.jit
def each_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, doubled(tl.load(x_ptr + i, i < n)), i < n)


def _compiled() -> CompiledKernel:
    """As torch compiles for the CPU."""
    types = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    options = {
        "num_warps": 4,
        "num_stages": 1,
        "debug": True,
        "sanitize_overflow": False,
        "enable_fp_fusion": True,
    }
    attrs = {(0,): [["tt.divisibility", 16]]}
    source = ASTSource(each_kernel, types, {"BLOCK": 128}, attrs)
    return tw.compile(source, target=GPUTarget("cpu", "", 32), options=options)


def _data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    room = np.zeros(N + 8, np.float32)
    x = room[-room.ctypes.data // 4 % 4 :][:N]
    x[:] = np.arange(N)
    return x, np.zeros(N, np.float32)


def test_launch_is_compiled_ahead_in_steps() -> None:
    from tilewright.runtime.launch_steps import compute_cache_key

    kernel, (x, out) = tw.jit(each_kernel.fn), _data()
    kernels, keys, target, backend, bind = kernel.device_caches["cpu"]
    keywords = {"BLOCK": 128, "num_warps": 2, "debug": False}
    arguments, specialization, given = bind(x, out, N, **keywords)
    assert list(arguments) == kernel.arg_names
    assert arguments["n"] == N
    assert [type for type, _ in specialization] == ["*fp32", "*fp32", "i32", "constexpr"]
    key = compute_cache_key(keys, specialization, given)
    assert key not in kernels
    parsed, types, constants, attrs = kernel._pack_args(
        backend, keywords, arguments, specialization, given
    )
    source = kernel.ASTSource(kernel, types, constants, attrs)
    ahead = kernels[key] = kernel.compile(source, target=target, options=parsed.__dict__)
    with knobs.compilation.scope():
        knobs.compilation.listener = lambda **found: hits.append(found["cache_hit"])
        hits: list[bool] = []
        launched = kernel[(1,)](x, out, N, BLOCK=128, num_warps=2)
    assert hits == [True]
    assert launched.hash == ahead.hash
    np.testing.assert_array_equal(out, 2 * x + 1)


def test_state_of_a_device_by_name_number_and_object() -> None:
    kernel = tw.jit(each_kernel.fn)
    by_object: Any = kernel.device_caches
    assert kernel.device_caches["cpu"] is by_object[0] is by_object[torch.device("cpu")]


# -- launches of compiled kernels -----------------------------------------------------------------


@pytest.mark.parametrize("constants", [(), (128,)], ids=["runtime arguments", "all arguments"])
def test_compile_time_arguments_may_be_left_out(constants: tuple[int, ...]) -> None:
    x, out = _data()
    _compiled()[(1, 1, 1)](x, out, N, *constants)
    np.testing.assert_array_equal(out, 2 * x + 1)


@pytest.mark.parametrize("n", [(), (1,)], ids=["without it", "with it"])
def test_an_int_that_is_1_may_be_left_out_too(n: tuple[int, ...]) -> None:
    x, out = _data()
    kernel = each_kernel.warmup(x, out, 1, BLOCK=16)
    kernel[(1, 1, 1)](x, out, *n)
    assert out[:3].tolist() == [1, 0, 0]


@pytest.mark.parametrize("count", [2, 5])
def test_other_counts_are_rejected(count: int) -> None:
    with pytest.raises(TypeError, match=rf"each_kernel takes 4 arguments, not {count}"):
        _compiled()[(1, 1, 1)](*range(count))


def test_run_with_the_long_calling_convention() -> None:
    x, out = _data()
    kernel, seen = _compiled(), list[Any]()
    reported = kernel.launch_metadata((1, 1, 1), 0, x, out, N, 128)
    assert reported is None  # no hook is registered
    kernel.run(
        1, 1, 1, 0, kernel.function, kernel.packed_metadata, "told", seen.append,
        lambda reported: seen.append((reported, out[1])), x, out, N, 128,
    )  # fmt: skip
    assert seen == ["told", ("told", 3.0)]
    np.testing.assert_array_equal(out, 2 * x + 1)


def test_hooks_are_called_once_by_either_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = _data()
    kernel, seen = _compiled(), list[Any]()
    hooks = tw.knobs.runtime.launch_enter_hook, tw.knobs.runtime.launch_exit_hook
    hook: Callable[[Any], None] = lambda reported: seen.append(reported.get()["name"])  # noqa: E731
    hooks[0].add(hook)
    try:
        kernel[(1, 1, 1)](x, out, N)
        reported = kernel.launch_metadata((1, 1, 1), 0, x, out, N)
        rest = (None, None, reported, *hooks)
        kernel.run(1, 1, 1, 0, *rest, x, out, N)
        kernel.run(1, 1, 1, 0, None, None, reported, None, None, x, out, N)
    finally:
        hooks[0].remove(hook)
    assert seen == [kernel.name] * 2


def test_a_stream_that_is_not_the_current_one_is_rejected() -> None:
    x, out = _data()
    kernel = _compiled()
    kernel[(1, 1, 1)](x, out, N, stream=0)
    with pytest.raises(ValueError, match=r"current stream, 0, not on 7"):
        kernel[(1, 1, 1)](x, out, N, stream=7)


def test_fields_that_torch_reads() -> None:
    kernel = _compiled()
    assert kernel.packed_metadata == (4, 1, 0)
    assert kernel.module is None
    assert (kernel.metadata.num_ctas, kernel.metadata.shared) == (1, 0)
    assert kernel.src.fn.arg_names == list(kernel.src.signature)
    assert kernel.src.constants == {(3,): 128}
    assert kernel.src.fn.src.startswith("def each_kernel(")


def test_kernels_of_other_libraries_have_a_base() -> None:
    base: Any = tw.KernelInterface

    class Tuner(base[int]):
        def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            return args, grid

    assert issubclass(Tuner, tw.KernelInterface)
    assert Tuner()[(3,)](1, 2) == ((1, 2), (3,))


# -- sending --------------------------------------------------------------------------------------


def test_a_kernel_is_pickled_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("module_of_kernels")
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    monkeypatch.setattr(module, "each_kernel", each_kernel, raising=False)
    monkeypatch.setattr(each_kernel, "__module__", module.__name__)
    assert pickle.loads(pickle.dumps(each_kernel)) is each_kernel


def test_a_kernel_inside_a_function_cannot_be_pickled() -> None:
    @tw.jit
    def local_kernel(x):
        tl.store(x, 1)

    with pytest.raises((pickle.PicklingError, AttributeError), match="local_kernel"):
        pickle.dumps(local_kernel)


class _Name:
    """A name of a kernel that pickles."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, _: Any) -> str:
        return self.name


def test_torch_sends_a_kernel_without_its_function() -> None:
    """It removes from the kernel what does not pickle, and makes another around what came."""
    x, out = _data()

    @tw.jit
    def sent_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + i, doubled(tl.load(x_ptr + i, i < n)), i < n)

    sent_kernel[(1,)](x, out, N, BLOCK=128)
    source = ASTSource(
        sent_kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}, {"BLOCK": 128}
    )
    kernel = tw.compile(source, target=GPUTarget("cpu"))
    fn: Any = kernel.src.fn
    key, text = fn.cache_key, fn.src
    fn.fn = fn.__globals__ = fn.used_global_vals = fn._hash_lock = None
    fn.repr = _Name("sent_kernel")
    gone = {"module": None, "function": None, "run": None}
    state = {**vars(kernel), **gone, "packed_metadata": kernel.packed_metadata}
    # The class is not one of a module that another process finds.
    came: dict[str, Any] = pickle.loads(pickle.dumps(state))
    other = CompiledKernel.__new__(CompiledKernel)
    vars(other).update(came)
    other._init_handles()
    out[:] = 0
    other.run(1, 1, 1, 0, other.function, None, None, None, None, x, out, N, 128)
    np.testing.assert_array_equal(out, 2 * x + 1)
    assert other.src.fn is not fn
    assert (other.src.fn.cache_key, other.src.fn.src) == (key, text)
    assert other.src.fn.device_caches == {}
