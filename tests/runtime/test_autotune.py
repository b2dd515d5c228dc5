"""Tuned kernels: which configuration runs, what trials leave behind, pruning, hooks, errors.

Where the choice matters the test measures itself, with times that it makes up.
"""

import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tests.runtime.fake_cuda import FakeCuda, Gpu, Tensor
from tests.runtime.tuned import (
    SIZE,
    Bench,
    add_one,
    blocks,
    count,
    grid,
    increment,
    only_small,
    tuned,
    wrong,
)
from tilewright.base import knobs
from tilewright.base.diagnostics import AutotunerError, OutOfResources
from tilewright.runtime.autotuner import Config
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.usefixtures("tuning")


# -- choosing -------------------------------------------------------------------------------------


def test_fastest_configuration_runs() -> None:
    bench = Bench(3.0, 1.0, 2.0)
    kernel = tuned(add_one, blocks(16, 32, 64), do_bench=bench)
    x, out = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
    compiled = kernel[grid](x, out, SIZE)
    assert np.array_equal(out, x + 1)
    assert kernel.best_config == Config({"BLOCK": 32})
    assert compiled.src.constants[3,] == 32
    assert kernel.cache == {(SIZE, "float32", "float32"): Config({"BLOCK": 32})}
    assert bench.quantiles == (0.5, 0.2, 0.8)
    assert list(kernel.configs_timings.values()) == [[3.0] * 3, [1.0] * 3, [2.0] * 3]


def test_benchmark_function_may_be_replaced() -> None:
    kernel = tuned(add_one, blocks(16, 32, 64), do_bench=Bench(1.0, 2.0, 3.0))
    kernel.do_bench = Bench(3.0, 2.0, 1.0)
    x, out = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
    kernel[grid](x, out, SIZE)
    assert kernel.best_config == Config({"BLOCK": 64})


def test_configurations_with_equal_code_are_measured_once() -> None:
    def hook(args: dict[str, Any]) -> None: ...

    configs = [
        Config({"BLOCK": 16}, num_warps=4),
        Config({"BLOCK": 32}, num_warps=4),
        Config({"BLOCK": 16}, num_warps=8, num_stages=5),
        Config({"BLOCK": 16, "waves_per_eu": 2}, num_ctas=2, maxnreg=64),
        Config({"BLOCK": 32}, num_warps=1),
        Config({"BLOCK": 16}, pre_hook=hook),
        Config({"BLOCK": 16}, num_cpu_threads=1),
    ]
    bench = Bench(3.0, 1.0, 2.0, 4.0)
    kernel = tuned(add_one, configs, do_bench=bench)
    x, out = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
    kernel[grid](x, out, SIZE)
    assert bench.calls == 4
    assert kernel.best_config is configs[1]
    assert [t[0] for t in kernel.configs_timings.values()] == [3.0, 1.0, 3.0, 3.0, 1.0, 2.0, 4.0]
    assert list(kernel.configs_timings) == configs


def test_equal_code_that_fails_fails_for_all() -> None:
    kernel = tuned(only_small, [*blocks(64), *blocks(64, num_warps=8)])
    with pytest.raises(AutotunerError, match="none of the 2 configurations"):
        kernel[grid](np.zeros(SIZE, np.float32), SIZE)


def test_an_option_that_is_a_parameter_has_an_effect() -> None:
    def scale(x, num_stages: tl.constexpr):
        tl.store(x, num_stages)

    bench = Bench(3.0, 1.0)
    configs = [Config({}, num_stages=2), Config({}, num_stages=3)]
    kernel = tuned(scale, configs, key=[], do_bench=bench)
    x = np.zeros(1, np.float32)
    kernel[(1,)](x)
    assert (bench.calls, x[0]) == (2, 3)


def test_real_measurement_selects_the_cheaper_configuration() -> None:
    def spin(x, n, BLOCK: tl.constexpr):
        total = 0.0
        for i in range(BLOCK):
            total += tl.load(x + i % 64)
        tl.store(x + 64, total)

    configs = blocks(400_000, 16)
    kernel = tuned(spin, configs)
    kernel[(1,)](np.zeros(65, np.float32), 1)
    assert kernel.best_config == configs[1]
    slow, fast = (kernel.configs_timings[config][0] for config in configs)
    assert slow > 5 * fast > 0
    assert kernel.bench_time > 0


def test_key_values_and_types_are_tuned_separately() -> None:
    bench = Bench(1.0, 2.0)
    kernel = tuned(add_one, blocks(16, 32), do_bench=bench)
    for dtype, n in ((np.float32, 10), (np.float32, 10), (np.float32, 20), (np.int32, 20)):
        x = np.zeros(SIZE, dtype)
        kernel[grid](x, x.copy(), n)
    assert bench.calls == 2 * 3
    keys = [(10, "float32", "float32"), (20, "float32", "float32"), (20, "int32", "int32")]
    assert list(kernel.cache) == keys


def test_keywords_count_as_positions() -> None:
    bench = Bench(1.0, 2.0)
    kernel = tuned(add_one, blocks(16, 32), do_bench=bench)
    x = np.zeros(SIZE, np.float32)
    out = np.zeros(SIZE, np.float32)
    kernel[grid](x=x, out=out, n=SIZE)
    kernel[grid](x, out, n=SIZE)
    assert bench.calls == 2


def test_one_configuration_is_not_measured() -> None:
    bench = Bench(1.0)
    kernel = tuned(add_one, blocks(16), do_bench=bench)
    x = np.zeros(SIZE, np.float32)
    kernel[grid](x, x, SIZE)
    assert bench.calls == 0
    assert x.tolist() == [1.0] * SIZE


def test_threads_tune_once_and_see_their_own_arguments() -> None:
    bench = Bench(1.0, 2.0)
    seen: list[int] = []

    def prune(configs: list[Config], named: dict[str, Any], **rest: Any) -> list[Config]:
        time.sleep(0.01)
        seen.append(named["n"])
        return configs

    how = {"early_config_prune": prune}
    kernel = tuned(increment, blocks(16, 32), prune_configs_by=how, do_bench=bench)
    arrays = [np.zeros(SIZE, np.float32) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda i: kernel[grid](arrays[i], SIZE - i % 2), range(8)))
    assert bench.calls == 4
    assert sorted(seen) == [SIZE - 1, SIZE]
    assert all(x[: SIZE - 1].tolist() == [1.0] * (SIZE - 1) for x in arrays)


@pytest.mark.parametrize("configs", [[], None])
def test_no_configuration_is_the_default_one(configs: Any) -> None:
    kernel = tuned(add_one, configs)
    assert kernel.configs == [Config({}, num_warps=4, num_stages=3, num_ctas=1)]
    x = np.zeros(SIZE, np.float32)
    kernel[grid](x, x, SIZE, BLOCK=16)
    assert x.tolist() == [1.0] * SIZE


def test_options_reach_the_compiler() -> None:
    kernel = tuned(add_one, [Config({"BLOCK": 16}, num_warps=8, num_stages=2)])
    x = np.zeros(SIZE, np.float32)
    metadata = kernel[grid](x, x, SIZE).metadata
    assert (metadata.num_warps, metadata.num_stages) == (8, 2)


def test_conflicting_keyword_is_rejected() -> None:
    x = np.zeros(SIZE, np.float32)
    for configs in (blocks(16), blocks(16, 32)):
        with pytest.raises(ValueError, match=r"Conflicting meta-parameters: BLOCK\. Make sure"):
            tuned(add_one, configs)[grid](x, x, SIZE, BLOCK=8)


@pytest.mark.parametrize("argument", ["key", "reset_to_zero", "restore_value"])
def test_unknown_names_are_ignored_with_a_warning(argument: str) -> None:
    how: dict[str, Any] = {"key": ["n"], argument: ["n", "m"]}
    expected = rf"{argument} .* not kernel arguments, and are ignored: m\. Valid .*: x, out, n"
    decorated = tw.jit(add_one)
    with pytest.warns(UserWarning, match=expected) as seen:
        kernel: Any = tw.autotune(blocks(16, 32), **how)(decorated)
    assert seen[0].filename == __file__
    assert (kernel.keys, kernel.reset_to_zero, kernel.restore_value) == tuple(
        ["n"] if name in how else [] for name in ("key", "reset_to_zero", "restore_value")
    )


def test_key_without_a_hash_is_rejected(launcher: str) -> None:
    kernel, x = tuned(add_one, blocks(16, 32), key=["n", "out"]), np.zeros(SIZE, np.float32)
    for _ in range(2):
        with pytest.raises(
            TypeError, match="key` of autotune contains `out`, but a value of type n"
        ):
            kernel[grid](x, x, SIZE)
    assert not kernel.cache


def test_warmup_compiles_all_configurations() -> None:
    kernel = tuned(add_one, blocks(16, 32))
    compiled = kernel.warmup(np.float32, np.float32, SIZE, grid=grid)
    assert [one.src.constants[3,] for one in compiled] == [16, 32]
    assert not kernel.cache


def test_interpreted_kernel_runs_each_configuration_once() -> None:
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        kernel = tuned(add_one, blocks(16, 32))
    x, out = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    kernel[grid](x, out, SIZE)
    assert out.tolist() == [1.0] * SIZE
    assert len(kernel.cache) == 1


# -- what trials leave behind ---------------------------------------------------------------------


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_in_place_kernel_has_the_effect_of_one_run(library: str) -> None:
    kernel = tuned(increment, blocks(16, 32, 64))
    array = np.arange(SIZE, dtype=np.float32)
    x = torch.from_numpy(array) if library == "torch" else array
    kernel[grid](x, SIZE)
    assert np.array_equal(array, np.arange(SIZE, dtype=np.float32) + 1)
    kernel[grid](x, SIZE)
    assert np.array_equal(array, np.arange(SIZE, dtype=np.float32) + 2)


def test_atomics_and_views_are_protected() -> None:
    kernel = tuned(count, blocks(16, 32))
    whole = np.full(8, 7, np.int32)
    kernel[grid](whole[3:4], np.ones(SIZE, np.int32), SIZE)
    assert whole.tolist() == [7, 7, 7, 107, 7, 7, 7, 7]


def test_each_trial_starts_from_the_initial_values() -> None:
    seen: list[float] = []
    x = np.zeros(SIZE, np.float32)

    def bench(fn: Callable[[], Any], quantiles: Any) -> list[float]:
        seen.append(float(x[0]))
        fn()
        fn()
        return [1.0, 1.0, 1.0]

    tuned(increment, blocks(16, 32), do_bench=bench)[grid](x, SIZE)
    assert seen == [0.0, 0.0]
    assert x[0] == 1.0


def test_arguments_are_restored_when_tuning_fails() -> None:
    x = np.zeros(SIZE, np.float32)

    def bench(fn: Callable[[], Any], quantiles: Any) -> list[float]:
        fn()
        raise ArithmeticError("bench")

    with pytest.raises(ArithmeticError, match="bench"):
        tuned(increment, blocks(16, 32), do_bench=bench)[grid](x, SIZE)
    assert not x.any()


def test_configurations_out_of_resources_are_not_measured() -> None:
    bench = Bench(2.0, 1.0)
    kernel = tuned(increment, blocks(16, 32), do_bench=bench)
    x = np.zeros(1 << 19, np.float32)
    knobs.autotuning.protect_mib = 1
    with pytest.warns(RuntimeWarning, match=r"increment is not tuned.*2 MiB on cpu.*protect_mib"):
        kernel[grid](x, 1 << 19)
    assert bench.calls == 0
    assert kernel.best_config == Config({"BLOCK": 16})
    assert x.max() == x.min() == 1.0


def test_reset_to_zero_clears_before_each_run() -> None:
    total = np.full(1, 5, np.int32)
    bench = Bench(1.0, 2.0)
    kernel = tuned(count, blocks(16, 32), reset_to_zero=["total"], do_bench=bench)
    kernel[grid](total, np.ones(SIZE, np.int32), SIZE)
    assert total[0] == SIZE
    kernel[grid](total, np.ones(SIZE, np.int32), SIZE)
    assert total[0] == 2 * SIZE  # only tuning clears


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_restore_value_restores_before_each_run(library: str) -> None:
    seen: list[float] = []
    array = np.ones(SIZE, np.float32)
    x = torch.from_numpy(array) if library == "torch" else array

    def bench(fn: Callable[[], Any], quantiles: Any) -> list[float]:
        for _ in range(3):
            fn()
            seen.append(float(array[0]))
        return [1.0, 1.0, 1.0]

    kernel = tuned(increment, blocks(16, 32), restore_value=["x"], do_bench=bench)
    kernel[grid](x, SIZE)
    assert seen == [1.0] * 6
    assert array[0] == 2.0


class ChangingCuda(FakeCuda):
    """A driver whose kernels set all memory that is not a copy to ones."""

    def _launch(self, launch: Any, function: int, parameters: int) -> None:
        super()._launch(launch, function, parameters)
        for address, array in self.memory.items():
            if address not in self.allocated:
                array[:] = 1


@pytest.fixture
def ptx() -> Iterator[None]:
    """The fake driver finds kernels in PTX, not in cubins."""
    with knobs.nvidia.scope():
        knobs.nvidia.assembler = "driver"
        yield


@pytest.mark.usefixtures("ptx")
def test_tensors_on_a_gpu_are_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ChangingCuda([Gpu(), Gpu()])
    fake.install(monkeypatch)
    x, out = Tensor(0x10000, "cuda:1"), Tensor(0x20000, "cuda:1")
    for tensor in (x, out):
        fake.memory[tensor.address] = np.full(tensor.nbytes, 7, np.uint8)
    copies: list[int] = []

    def bench(fn: Callable[[], Any], quantiles: Any) -> list[float]:
        copies.append(fake.calls.count("cuMemcpyDtoDAsync_v2"))
        assert fake.memory[out.address][0] == 7
        fn()
        return [1.0, 1.0, 1.0]

    kernel = tuned(add_one, blocks(16, 32), do_bench=bench)
    kernel[grid](x, out, 16)
    assert copies == [1, 2]  # one is saved, then restored after each trial
    assert len(fake.launches) == 3
    assert fake.freed == [a for a, size in fake.allocated.items() if size == out.nbytes]
    assert not fake.faults


@pytest.mark.usefixtures("ptx")
def test_gpu_is_measured_by_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda()
    fake.install(monkeypatch)
    fake.tick = 30.0
    x = Tensor(0x10000, "cuda:0")
    fake.memory[x.address] = np.zeros(x.nbytes, np.uint8)
    kernel = tuned(increment, blocks(16, 32))
    kernel[grid](x, 16)
    assert set(map(tuple, kernel.configs_timings.values())) == {(30.0, 30.0, 30.0)}
    assert not fake.events
    assert not fake.faults
    assert kernel.results()[0]["device"] == "NVIDIA H200 sm_90 132 multiprocessors"


# -- hooks ----------------------------------------------------------------------------------------


def test_hooks_of_configurations_run_before_each_launch() -> None:
    seen: list[tuple[int, int]] = []

    def note(args: dict[str, Any]) -> None:
        seen.append((args["n"], args["BLOCK"]))
        assert args["grid"] is grid

    kernel = tuned(increment, blocks(16, 32, pre_hook=note), do_bench=Bench(2.0, 1.0))
    kernel[grid](np.zeros(SIZE, np.float32), SIZE)
    assert seen == [(SIZE, 16), (SIZE, 32), (SIZE, 32)]


@pytest.mark.parametrize("by_keyword", [False, True])
def test_hooks_may_shape_descriptors(by_keyword: bool) -> None:
    """All configurations compile, each with the blocks that its hook gives."""

    def double(source, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK
        source.store([at], source.load([at]).reshape([BLOCK]) * 2)

    def shape(args: dict[str, Any]) -> None:
        args["source"].block_shape = [args["BLOCK"]]

    kernel = tuned(double, blocks(16, 32, 8, pre_hook=shape), do_bench=Bench(2.0, 1.0, 3.0))
    x = torch.arange(SIZE, dtype=torch.float32)
    source = TensorDescriptor.from_tensor(x, [1])
    if by_keyword:
        kernel[grid](source=source, n=SIZE)
    else:
        kernel[grid](source, SIZE)
    assert torch.equal(x, 2 * torch.arange(SIZE, dtype=torch.float32))
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert all(time[0] < 4 for time in kernel.configs_timings.values())


def test_own_hooks_replace_the_usual_ones() -> None:
    seen: list[Any] = []

    def before(args: dict[str, Any], reset_only: bool = False) -> None:
        seen.append(("before", args["BLOCK"], reset_only))

    def after(args: dict[str, Any], exception: Exception | None) -> None:
        seen.append(("after", args["BLOCK"], exception))

    bench = Bench(1.0, 2.0)
    how: dict[str, Any] = {"pre_hook": before, "post_hook": after, "do_bench": bench}
    kernel = tuned(increment, blocks(16, 32), **how)
    kernel[grid](np.zeros(SIZE, np.float32), SIZE)
    assert seen == [
        ("before", 16, False),
        ("after", 16, None),
        ("before", 32, False),
        ("after", 32, None),
        ("before", 16, True),
    ]
    assert kernel.user_defined_pre_hook
    assert kernel.user_defined_post_hook


def test_post_hook_receives_the_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    kernel = tuned(
        increment,
        blocks(16, 32),
        post_hook=lambda args, exception: seen.append(exception),
        do_bench=Bench(1.0, 1.0),
    )
    inner = kernel.fn
    failure = OutOfResources(9, 3, "shared memory")

    class Failing:
        def __getitem__(self, grid: Any) -> Any:
            launch = inner[grid]

            def run(*args: Any, **kwargs: Any) -> Any:
                if kwargs["BLOCK"] == 16:
                    raise failure
                return launch(*args, **kwargs)

            return run

        def run(self, *args: Any, **kwargs: Any) -> Any:
            return inner.run(*args, **kwargs)

    monkeypatch.setattr(kernel, "fn", Failing())
    kernel[grid](np.zeros(SIZE, np.float32), SIZE)
    assert seen == [failure, None]
    assert kernel.best_config == Config({"BLOCK": 32})
    assert kernel.configs_timings[Config({"BLOCK": 16})] == [float("inf")] * 3


def test_listener_is_called_for_every_choice() -> None:
    received: list[dict[str, Any]] = []
    knobs.autotuning.listener = lambda **event: received.append(event)
    kernel = tuned(increment, blocks(16, 32))
    x = np.zeros(SIZE, np.float32)
    kernel[grid](x, SIZE)
    kernel[grid](x, SIZE)
    again = tuned(increment, blocks(16, 32))
    again[grid](x, SIZE)
    assert [event["cache_hit"] for event in received] == [False, True]
    assert received[0]["fn"] is kernel.fn
    assert received[0]["key"] == (SIZE, "float32")
    assert received[0]["best_config"] == kernel.best_config == received[1]["best_config"]
    assert (
        received[0]["configs_timings"] == received[1]["configs_timings"] == kernel.configs_timings
    )
    assert received[0]["duration"] > 0


# -- pruning --------------------------------------------------------------------------------------


def test_early_prune_sees_arguments_and_decides() -> None:
    seen: list[Any] = []

    def prune(configs: list[Config], named: dict[str, Any], **rest: Any) -> list[Config]:
        seen.append((len(configs), sorted(named), rest["n"]))
        return configs[1:]

    bench = Bench(2.0, 1.0)
    how = {"early_config_prune": prune}
    kernel = tuned(increment, blocks(8, 16, 32), prune_configs_by=how, do_bench=bench)
    kernel[grid](np.zeros(SIZE, np.float32), n=SIZE)
    assert seen == [(3, ["x"], SIZE)]
    assert bench.calls == 2
    assert kernel.best_config == Config({"BLOCK": 32})


@pytest.mark.parametrize(("top_k", "measured"), [(0.5, 2), (0.1, 1), (3, 3), (1.0, 4), (9, 4)])
def test_perf_model_keeps_the_most_promising(top_k: Any, measured: int) -> None:
    bench = Bench(*range(1, 9))
    how = {"perf_model": lambda BLOCK, n, **rest: n / BLOCK, "top_k": top_k}
    kernel = tuned(increment, blocks(8, 16, 32, 64), prune_configs_by=how, do_bench=bench)
    kernel[grid](np.zeros(SIZE, np.float32), SIZE)
    assert bench.calls == (measured if measured > 1 else 0)
    assert kernel.best_config == Config({"BLOCK": 64 if measured < 4 else 8})


def test_pruning_everything_is_an_error() -> None:
    how = {"early_config_prune": lambda configs, named, **rest: []}
    expected = (
        r"^Autotuner error: No valid autotuner configs after pruning\. `early_config_prune` should "
        r"return at least one config\.$"
    )
    with pytest.raises(AutotunerError, match=expected):
        tuned(increment, blocks(16, 32), prune_configs_by=how)[grid](np.zeros(SIZE), SIZE)


def test_top_k_beyond_all_is_an_error() -> None:
    how = {"perf_model": lambda **rest: 1.0, "top_k": 1.5}
    with pytest.raises(TypeError, match="top_k must be"):
        tuned(increment, blocks(16, 32), prune_configs_by=how)[grid](np.zeros(SIZE), SIZE)


# -- failures -------------------------------------------------------------------------------------


def test_failing_configuration_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    knobs.autotuning.print = True
    kernel = tuned(only_small, blocks(64, 32, 128))
    x = np.zeros(SIZE, np.int32)
    kernel[grid](x, SIZE)
    assert x.tolist() == list(range(SIZE))
    assert kernel.best_config == Config({"BLOCK": 32})
    output = capsys.readouterr().out
    assert "Autotuning kernel only_small with config BLOCK: 64, num_warps: 4" in output
    assert "Triton autotuning for function only_small,\nwith key as (100, 'int32'),\n" in output
    assert "best config selected: BLOCK: 32, num_warps: 4" in output
    lines = [line for line in output.splitlines() if "too large" in line]
    assert ["BLOCK: 64" in line or "BLOCK: 128" in line for line in lines] == [True, True]


def test_failures_of_all_configurations_are_named() -> None:
    with pytest.raises(AutotunerError) as caught:
        tuned(only_small, blocks(64, 128))[grid](np.zeros(SIZE, np.int32), SIZE)
    text = str(caught.value)
    assert "none of the 2 configurations of only_small runs" in text
    assert "BLOCK: 64," in text
    assert "BLOCK: 128," in text
    assert text.count("too large") == 2
    assert pickle.loads(pickle.dumps(caught.value)).message == caught.value.message


def test_error_of_a_kernel_is_raised() -> None:
    with pytest.raises(AutotunerError, match="missing is not defined") as caught:
        tuned(wrong, blocks(64, 128))[grid](np.zeros(SIZE, np.int32), SIZE)
    assert isinstance(caught.value.__cause__, tw.CompilationError)


def test_wrong_arguments_are_not_attributed_to_configurations() -> None:
    with pytest.raises(TypeError, match="failed to specialize argument of type: object"):
        tuned(increment, blocks(16, 32))[grid](object(), SIZE)
    with pytest.raises(TypeError, match="missing"):
        tuned(add_one, blocks(16, 32))[grid](np.zeros(4), n=SIZE)


# -- heuristics -----------------------------------------------------------------------------------


def scaled(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + i, tl.load(x + i) + TWICE)
    else:
        tl.store(out + i, tl.load(x + i, i < n) + TWICE, i < n)


HEURISTICS = {
    "EVEN": lambda args: args["n"] % args["BLOCK"] == 0,
    "TWICE": lambda args: 2 * args["BLOCK"] + args["EVEN"],
}


@pytest.mark.parametrize("n", [96, 100])
def test_heuristics_see_configuration_and_each_other(n: int) -> None:
    kernel = tw.autotune(blocks(16, 32), ["n"], do_bench=Bench(2.0, 1.0))(
        tw.heuristics(HEURISTICS)(tw.jit(scaled))
    )
    x, out = np.zeros(128, np.float32), np.zeros(128, np.float32)
    kernel[grid](x, out, n)
    assert out[:n].tolist() == [64.0 + (n % 32 == 0)] * n
    assert not out[n:].any()


def test_heuristics_around_autotune() -> None:
    values = {"EVEN": lambda args: args["n"] % 32 == 0, "TWICE": lambda args: args["n"]}
    kernel = tw.heuristics(values)(
        tw.autotune(blocks(16, 32), ["n", "EVEN"], do_bench=Bench(2.0, 1.0))(tw.jit(scaled))
    )
    x, out = np.zeros(128, np.float32), np.zeros(128, np.float32)
    kernel[grid](x, out, 96)
    assert out[:96].tolist() == [96.0] * 96
    assert list(kernel.fn.cache) == [(96, True, "float32", "float32")]
    assert kernel.arg_names == kernel.fn.arg_names == kernel.fn.fn.arg_names


def test_heuristics_alone() -> None:
    kernel = tw.heuristics(HEURISTICS)(tw.jit(scaled))
    x, out = np.zeros(128, np.float32), np.zeros(128, np.float32)
    kernel[grid](x, out, 100, BLOCK=16)
    assert out[:100].tolist() == [32.0] * 100
    compiled = kernel.warmup(np.float32, np.float32, 96, grid=(1,), BLOCK=16)
    assert compiled.src.constants[4,] is True
