"""Hooks around launches and compilations (which may cancel them), listeners, recorded
variants, compiling in threads."""

import gc
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.base import knobs
from tilewright.base.knobs import HookChain
from tilewright.runtime.async_compile import AsyncCompileMode, FutureKernel
from tilewright.runtime.jit import JITFunction, jit

pytestmark = pytest.mark.usefixtures("launcher", "settings")


def fill(out, value, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), value)


def apply(out, F: tl.constexpr, SCALE: tl.constexpr):
    tl.store(out, F(tl.load(out)) * SCALE)


@jit
def double(x):
    return x * 2


def broken(out, N: tl.constexpr):
    tl.static_assert(N < 4, "too large")
    tl.store(out, N)


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[None]:
    with knobs.cache.scope(), knobs.runtime.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path / "cache")
        yield


def array() -> Any:
    return np.zeros(8, np.float32)


# -- launches -------------------------------------------------------------------------------------


def test_launch_hooks_surround_each_launch() -> None:
    received: list[Any] = []
    out = array()
    kernel = jit(fill)
    kernel[(1,)](out, 1.0, N=8)  # native code has the variant before there are hooks
    kernel[(1,)](out, 2.0, N=8)
    knobs.runtime.launch_enter_hook.add(
        lambda reported: received.append((reported.get(), float(out[0])))
    )
    knobs.runtime.launch_exit_hook.add(
        lambda reported: received.append((reported.get(), float(out[0])))
    )
    compiled = kernel[(1,)](out, 3.0, N=8)
    assert [value for _, value in received] == [2.0, 3.0]
    reported = received[0][0]
    assert reported == {"name": "fill", "function": compiled.function, "stream": 0}
    compiled[(1, 1, 1)](out, 4.0, 8)
    assert len(received) == 4
    knobs.runtime.launch_enter_hook.clear()
    knobs.runtime.launch_exit_hook.clear()
    kernel[(1,)](out, 5.0, N=8)
    assert len(received) == 4
    assert out[0] == 5.0
    assert not knobs.launch_hooks


def test_exit_hooks_run_in_reverse_and_metadata_is_lazy() -> None:
    calls: list[Any] = []

    def metadata(grid: Any, metadata: Any, args: dict[str, Any]) -> dict[str, Any]:
        calls.append("metadata")
        return {"bytes": args["out"].nbytes * grid[0], "warps": metadata.num_warps}

    kernel = jit(launch_metadata=metadata)(fill)
    for name in "ab":
        knobs.runtime.launch_enter_hook.add(lambda reported, name=name: calls.append(f"+{name}"))
        knobs.runtime.launch_exit_hook.add(lambda reported, name=name: calls.append(f"-{name}"))
    kernel[(1,)](array(), 1.0, N=8)
    assert calls == ["+a", "+b", "-b", "-a"]
    reported: list[Any] = []
    knobs.runtime.launch_enter_hook = lambda given: reported.append(given.get())
    kernel[(2,)](array(), 1.0, N=8)
    assert reported[0]["bytes"] == 64
    assert reported[0]["warps"] == 4


def test_scope_removes_what_was_added() -> None:
    chain = knobs.runtime.launch_enter_hook
    with knobs.runtime.scope():
        chain.add(print)
        assert knobs.launch_hooks == [print]
    assert chain.calls == []
    assert knobs.launch_hooks == []
    assert knobs.runtime.launch_enter_hook is chain


def test_chains_hold_a_function_once() -> None:
    chain, calls = HookChain(), []
    chain.add(calls.append)
    chain.add(calls.append)
    chain(1)
    assert calls == [1]
    chain.remove(calls.append)
    chain.remove(calls.append)
    chain(2)
    assert calls == [1]


def test_load_hooks_surround_loading() -> None:
    received: list[Any] = []
    knobs.runtime.kernel_load_start_hook.add(lambda *reported: received.append(reported))
    knobs.runtime.kernel_load_end_hook.add(lambda *reported: received.append(reported))
    kernel = jit(fill)
    compiled = kernel[(1,)](array(), 1.0, N=8)
    kernel[(1,)](array(), 2.0, N=8)
    assert [(reported[1], reported[2], reported[4]) for reported in received] == [
        (None, "fill", compiled.hash),
        (compiled.function, "fill", compiled.hash),
    ]


def test_kernels_are_loaded_before_the_enter_hook_of_their_first_launch() -> None:
    """A profiler takes the time between the hooks of a launch as that of the kernel."""
    received: list[str] = []
    knobs.runtime.kernel_load_end_hook.add(lambda *reported: received.append("loaded"))
    knobs.runtime.launch_enter_hook.add(lambda metadata: received.append("enter"))
    jit(fill)[(1,)](array(), 1.0, N=8)
    assert received == ["loaded", "enter"]


def test_load_hooks_receive_the_file_of_the_kernel(tmp_path: Path) -> None:
    received: list[Any] = []
    knobs.runtime.kernel_load_end_hook.add(lambda *reported: received.append(reported))
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path)
        compiled = jit(fill)[(1,)](array(), 1.0, N=8)
        ((name, path),) = received[0][3].items()
        assert Path(path).is_relative_to(tmp_path)
        assert Path(path).name == name
        assert compiled.metadata_group == {name: path}
        Path(path).unlink()
        assert compiled.metadata_group == {}


def test_unload_hooks_are_called_for_freed_kernels() -> None:
    received: list[Any] = []
    kernel = jit(fill)
    kernel[(1,)](array(), 1.0, N=8)
    knobs.runtime.kernel_unload_hook.add(lambda *reported: received.append(reported[2]))
    other = jit(fill)
    other[(1,)](array(), 1.0, N=8)
    assert received == []
    del kernel, other
    gc.collect()
    assert received == ["fill"]


def test_pre_run_hooks_receive_the_arguments() -> None:
    seen: list[Any] = []
    kernel = jit(fill)
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append((args[1:], kwargs)))
    kernel[(1,)](array(), 1.0, N=8)
    assert seen == [((1.0,), {"N": 8})]


# -- compilations ---------------------------------------------------------------------------------


def test_compilation_hooks_receive_the_variant() -> None:
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    knobs.runtime.jit_cache_hook = lambda **reported: before.append(reported)
    knobs.runtime.jit_post_compile_hook = lambda **reported: after.append(reported)
    kernel = jit(fill)
    kernel[(1,)](array(), 1.0, N=8, num_warps=2)
    kernel[(1,)](array(), 2.0, N=8, num_warps=2)
    assert len(before) == len(after) == 1
    reported = before[0]
    assert reported["fn"].jit_function is kernel
    assert (reported["fn"].module, reported["fn"].name) == (fill.__module__, "fill")
    assert reported["repr"].startswith(
        "fill[num_warps=2, num_ctas=1, num_stages=3, enable_fp_fusion="
    )
    assert reported["repr"].endswith("](out: *fp32, value: fp32, N: constexpr)")
    assert reported["compile"]["signature"] == {"out": "*fp32", "value": "fp32", "N": "constexpr"}
    assert reported["compile"]["constants"] == {(2,): 8}
    assert reported["compile"]["device"] == "cpu"
    assert reported["compile"]["num_warps"] == 2
    assert reported["key"] == reported["compile"]["key"] == after[0]["key"]
    assert (reported["is_manual_warmup"], reported["already_compiled"]) == (False, False)
    kernel.warmup(np.float32, 1.0, N=4, grid=(1,))
    assert before[1]["is_manual_warmup"]


def test_post_compile_hook_finds_the_kernel() -> None:
    found: list[Any] = []

    def hook(**reported: Any) -> None:
        cache = reported["fn"].jit_function.device_caches[reported["compile"]["device"]]
        found.append(cache[0].get(reported["key"]))

    knobs.runtime.jit_post_compile_hook = hook
    kernel = jit(fill)
    launched = [kernel[(1,)](array(), 1.0, N=n) for n in (4, 8)]
    assert found == launched
    caches: Any = kernel.device_caches
    assert list(caches[0].kernel_cache.values()) == launched
    values = [re.findall(r"\('constexpr',\s*([^)]+)\)", key) for key in caches[0].kernel_cache]
    assert values == [["4"], ["8"]]


def test_variants_of_equal_text_have_separate_names() -> None:
    def scaled_by(number: tl.constexpr) -> Any:
        @jit
        def scaled(x):
            return x * number

        return scaled

    kernel, outputs = jit(apply), []
    for number in (2.0, 3.0):
        out = np.ones(1, np.float32)
        kernel[(1,)](out, scaled_by(tl.constexpr(number)), 1.0)
        outputs.append(out[0])
    assert outputs == [2.0, 3.0]
    assert len(kernel.device_caches["cpu"].kernel_cache) == 2


def test_cache_hook_can_cancel_the_launch() -> None:
    knobs.runtime.jit_cache_hook = lambda **reported: True
    kernel, out = jit(fill), array()
    for _ in range(2):
        assert kernel[(1,)](out, 1.0, N=8) is None
    assert not out.any()
    knobs.runtime.jit_cache_hook = None
    assert kernel[(1,)](out, 1.0, N=8) is not None
    assert out.all()


def test_programs_wrap_the_compilation_of_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    original, requests = JITFunction._do_compile, list[Any]()

    def planned(self: Any, key: Any, *args: Any) -> Any:
        requests.append((key, *args))
        previous = self.compile
        self.compile = lambda source, **given: (
            sources.append((source, given)) or previous(source, **given)
        )
        try:
            return original(self, key, *args)
        finally:
            self.compile = previous

    sources: list[Any] = []
    monkeypatch.setattr(JITFunction, "_do_compile", planned)
    kernel, out = jit(fill), array()
    compiled = kernel[(1,)](out, 1.0, N=8, num_warps=2)
    kernel[(1,)](out, 3.0, N=8, num_warps=2)
    assert out.tolist() == [3.0] * 8
    ((key, signature, device, constexprs, options, attrs, warmup),) = requests
    ((source, given),) = sources
    assert (device, signature["out"], constexprs, warmup) == ("cpu", "*fp32", {(2,): 8}, False)
    assert (source.signature, source.constants, source.attrs) == (signature, constexprs, attrs)
    assert given["options"]["num_warps"] == options.num_warps == 2
    cache = kernel.device_caches["cpu"]
    assert (given["target"], cache.kernel_cache[key]) == (cache.target, compiled)


def test_programs_compile_a_variant_by_its_parts() -> None:
    requests: list[Any] = []
    knobs.runtime.jit_cache_hook = lambda **reported: requests.append(reported)
    kernel, out = jit(fill), array()
    kernel[(1,)](out, 1.0, N=8)
    (cache,) = kernel.device_caches.values()
    (compiled,) = cache.kernel_cache.values()
    made = requests[0]["compile"]
    options = cache.backend.parse_options({})
    types = made["signature"], 0, made["constants"], options, made["configs"][0]
    again = kernel._do_compile("mine", *types, warmup=True)
    assert again.hash == compiled.hash
    assert (cache.kernel_cache["mine"], again.device) == (again, "cpu")
    assert [r["key"] for r in requests] == [made["key"], "mine"]
    assert (requests[1]["is_manual_warmup"], requests[1]["compile"]["device"]) == (True, "cpu")
    calls: list[Any] = []
    hook = lambda **reported: calls.append(reported) or "value"  # noqa: E731
    types = made["signature"], cache.target, "cpu", made["constants"], options, made["configs"]
    arguments = "k", *types, False
    assert kernel._call_hook(hook, *arguments) == "value"
    assert kernel._call_hook(None, *arguments) is None
    assert calls[0]["compile"]["specialization_data"]


def test_compilation_listener_receives_times_and_cache_hits() -> None:
    received: list[dict[str, Any]] = []
    knobs.compilation.listener = lambda **reported: received.append(reported)
    for _ in range(2):
        jit(fill)[(1,)](array(), 1.0, N=8)
    assert [reported["cache_hit"] for reported in received] == [False, True]
    assert received[0]["metadata"]["name"] == received[1]["metadata"]["name"] == "fill"
    times = received[0]["times"]
    assert times.ir_initialization > 0
    assert times.total_lowering == sum(time for _, time in times.lowering_stages) > 0
    assert times.total >= times.total_lowering


# -- recorded variants ----------------------------------------------------------------------------


def recorded(kernel: JITFunction, *args: Any, **kwargs: Any) -> str:
    """What hooks receive about the variant of a launch."""
    reported: list[str] = []
    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = lambda **given: reported.append(
            given["compile"]["specialization_data"]
        )
        kernel[(1,)](*args, **kwargs)
    return reported[0]


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [(fill, (1.0,), {"N": 8}), (fill, (1,), {"N": 4}), (apply, (double, 0.1), {})],
)
def test_recorded_variant_is_preloaded(
    fn: Any, args: Any, kwargs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = recorded(jit(fn), array(), *args, **kwargs)
    assert json.loads(text)["name"] == fn.__name__
    kernel, out = jit(fn), array()
    preloaded = kernel.preload(text)
    monkeypatch.setattr(JITFunction, "compile", None)  # nothing is compiled any more
    assert kernel[(1,)](out, *args, **kwargs) is preloaded


def test_other_recordings_are_rejected() -> None:
    text = recorded(jit(fill), array(), 1.0, N=8)
    expected = "Specialization data is for fill but trying to preload for broken"
    with pytest.raises(RuntimeError, match=expected):
        jit(broken).preload(text)
    other = json.dumps({**json.loads(text), "target": ["cuda", 90, 32]})
    with pytest.raises(RuntimeError, match=r"Specialization data is for GPUTarget.*cuda.*preload"):
        jit(fill).preload(other)
    text = recorded(jit(apply), array(), double, 0.1)
    with pytest.raises(RuntimeError, match=r"Unable to resolve JITFunction .*:gone for preload"):
        jit(apply).preload(text.replace(":double", ":gone"))


# -- compiling in threads -------------------------------------------------------------------------


def test_warmups_compile_in_the_executor() -> None:
    threads: set[str] = set()
    knobs.compilation.listener = lambda **reported: threads.add(threading.current_thread().name)
    kernel, out = jit(fill), array()
    with ThreadPoolExecutor(2, "compiling") as executor, AsyncCompileMode(executor):
        futures = [kernel.warmup(out, 1.0, N=n, grid=(1,)) for n in (2, 4, 4)]
        assert all(isinstance(future, FutureKernel) for future in futures)
        assert futures[0].metadata.name == "fill"  # waits
    assert all(name.startswith("compiling") for name in threads)
    (cache,) = kernel.device_caches.values()
    assert [type(made).__name__ for made in cache.kernel_cache.values()] == ["CompiledKernel"] * 2
    assert futures[1] is futures[2]
    assert kernel[(1,)](out, 1.0, N=4) is futures[1].result()


def test_launch_waits_for_its_kernel() -> None:
    kernel, out = jit(fill), array()
    with ThreadPoolExecutor(1) as executor, AsyncCompileMode(executor):
        kernel.warmup(out, 1.0, N=8, grid=(1,))
        compiled = kernel[(1,)](out, 3.0, N=8)
        assert out.tolist() == [3.0] * 8
    assert type(compiled).__name__ == "CompiledKernel"


def test_errors_are_raised_on_exit() -> None:
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(tw.CompilationError, match="too large"), AsyncCompileMode(executor):
            jit(broken).warmup(np.float32, N=8, grid=(1,))
        with AsyncCompileMode(executor, ignore_errors=True):
            future = jit(broken).warmup(np.float32, N=8, grid=(1,))
        assert future.result(ignore_errors=True) is None


def test_modes_do_not_nest() -> None:
    with ThreadPoolExecutor(1) as executor, AsyncCompileMode(executor):
        expected = "Another AsyncCompileMode is already active"
        with pytest.raises(RuntimeError, match=expected), AsyncCompileMode(executor):
            pass
