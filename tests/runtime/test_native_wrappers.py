"""Native launches of tuned kernels and of computed arguments, and launches bound to arguments."""

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.runtime.native_cases import outcome
from tests.threads import in_threads
from tilewright.base import knobs
from tilewright.runtime.autotuner import Autotuner, autotune
from tilewright.runtime.config import Config
from tilewright.runtime.heuristics import Heuristics, heuristics
from tilewright.runtime.interface import KernelInterface
from tilewright.runtime.jit import JITFunction, jit


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache for all of these tests, as they compile the same few kernels."""
    with knobs.cache.scope(), knobs.autotuning.scope():
        knobs.cache.dir = str(tmp_path_factory.mktemp("cache"))
        knobs.autotuning.workers = 0
        yield


Array = np.ndarray[Any, Any]


def fill(out, value, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Shows what it has been called with."""
    tl.store(out, value)
    tl.store(out + 1, n)
    tl.store(out + 2, BLOCK)
    tl.store(out + 3, EVEN)


def grid(meta: dict[str, Any]) -> tuple[int]:
    assert meta.keys() == {"out", "value", "n", "BLOCK", "EVEN"}
    return (meta["BLOCK"] // meta["BLOCK"],)


def quick(fn: Callable[[], Any], quantiles: Any) -> list[float]:
    """What measures configurations in these tests: the larger block is the faster."""
    fn()
    return [1.0, 1.0, 1.0]


def even(args: dict[str, Any]) -> int:
    return int(args["n"] % args["BLOCK"] == 0)


def tuned(fn: Any, *configs: Config, **options: Any) -> Autotuner:
    return autotune(list(configs) or CONFIGS, key=["n"], do_bench=quick, **options)(fn)


CONFIGS = [Config({"BLOCK": 16}), Config({"BLOCK": 32}, num_warps=8)]

WRAPPED: dict[str, Callable[[], Any]] = {
    "tuned": lambda: tuned(jit(fill), *(Config({"BLOCK": b, "EVEN": b // 16}) for b in (16, 32))),
    "one configuration": lambda: tuned(jit(fill), Config({"BLOCK": 16, "EVEN": 1})),
    "computed": lambda: heuristics({"BLOCK": lambda args: 16, "EVEN": even})(jit(fill)),
    "computed inside": lambda: tuned(heuristics({"EVEN": even})(jit(fill))),
    "computed outside": lambda: heuristics({"EVEN": lambda args: args["n"] % 2})(tuned(jit(fill))),
    "computed twice": lambda: heuristics({"num_warps": lambda args: 4 + 4 * (args["n"] % 2)})(
        heuristics({"BLOCK": lambda args: 16, "EVEN": lambda args: args["num_warps"]})(jit(fill))
    ),
}


@pytest.fixture
def out() -> Array:
    return np.zeros(4, np.int32)


def without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a launch by Python is a failure."""
    for kind in (JITFunction, Autotuner, Heuristics):
        monkeypatch.setattr(kind, "run", None)


def warm(kernel: Any, out: Array, *args: Any, **kwargs: Any) -> Any:
    for _ in range(3):
        kernel[grid](out, *args, **kwargs)
    return kernel


def launched(kernel: Any, out: Array, *args: Any, **kwargs: Any) -> list[int]:
    out[:] = 0
    kernel[grid](out, *args, **kwargs)
    return out.tolist()


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_launches_equal_those_of_python(
    name: str, out: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, reference = WRAPPED[name](), WRAPPED[name]()
    calls = [(7, n) for n in (32, 33, 16, 64, 2, 33)] + [(2.5, 32), (7, 2**40), (7, 1)]
    for _ in range(4):
        for value, n in calls:
            out[:] = 0
            reference.run(out, value, n, grid=grid)
            expected = out.tolist()
            assert launched(kernel, out, value, n) == expected
            assert launched(kernel, out, n=n, value=value) == expected
            if isinstance(kernel, Autotuner):
                assert kernel.best_config is not None
                assert str(kernel.best_config) == str(reference.best_config)


@pytest.mark.parametrize("name", WRAPPED)
def test_warm_launches_run_no_python(
    name: str, out: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = WRAPPED[name]()
    expected = [launched(kernel, out, 7, n) for n in (32, 33)]
    for n in (32, 33, 32, 33):
        launched(kernel, out, 7, n)
    without_python(monkeypatch)
    assert [launched(kernel, out, 7, n) for n in (32, 33)] == expected
    assert launched(kernel, out, value=9, n=33)[0] == 9


# -- what changes under it ------------------------------------------------------------------------


def one_block(block: int) -> Autotuner:
    return tuned(jit(fill), *(Config({"BLOCK": b, "EVEN": 0}) for b in (block, 2 * block)))


def test_the_tuned_configuration_may_be_replaced(out: Array) -> None:
    kernel = warm(one_block(16), out, 7, 32)
    found = kernel.best_config.kwargs["BLOCK"]
    (key,) = kernel.cache
    kernel.cache[key] = other = Config({"BLOCK": 64, "EVEN": 0})
    for _ in range(3):
        assert launched(kernel, out, 7, 32)[2] == 64
        assert kernel.best_config is other
    kernel.cache.clear()
    for _ in range(3):
        assert launched(kernel, out, 7, 32)[2] == found
    kernel.cache = {key: other}
    assert launched(kernel, out, 7, 32)[2] == 64
    kernel.configs = [Config({"BLOCK": 4, "EVEN": 0})]
    assert launched(kernel, out, 7, 32)[2] == 4


def test_an_only_configuration_may_be_replaced_in_place(out: Array) -> None:
    kernel = warm(tuned(jit(fill), Config({"BLOCK": 16, "EVEN": 0})), out, 7, 32)
    kernel.configs[0] = Config({"BLOCK": 8, "EVEN": 0})
    for _ in range(3):
        assert launched(kernel, out, 7, 32)[2] == 8
    kernel.configs.append(Config({"BLOCK": 64, "EVEN": 0}))
    for _ in range(3):
        assert launched(kernel, out, 7, 32)[2] in (8, 64)


def test_the_wrapped_kernel_may_be_replaced(out: Array) -> None:
    kernel = warm(one_block(16), out, 7, 32)
    calls: list[Any] = []

    class Other(KernelInterface):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(kwargs["BLOCK"])

    kernel.fn = Other()
    kernel[grid](out, 7, 32)
    assert len(calls) == 1


def test_functions_may_be_replaced_in_place(out: Array) -> None:
    kernel = warm(WRAPPED["computed"](), out, 7, 32)
    kernel.values["BLOCK"] = lambda args: 64
    for _ in range(3):
        assert launched(kernel, out, 7, 32)[2] == 64
    kernel.values = {"EVEN": lambda args: 5, "BLOCK": lambda args: args["EVEN"] + 3}
    for _ in range(3):
        assert launched(kernel, out, 7, 32)[2:] == [8, 5]


def test_run_of_a_wrapper_may_be_replaced(out: Array) -> None:
    kernel = warm(WRAPPED["computed inside"](), out, 7, 32)
    replacement: Any = lambda *args, **kwargs: "replaced"  # noqa: E731
    kernel.run = replacement
    assert kernel[grid](out, 7, 32) == "replaced"
    del kernel.run
    assert launched(kernel, out, 8, 32)[0] == 8
    kernel.fn.fn.run = replacement
    assert kernel[grid](out, 7, 32) == "replaced"


def test_evicted_variants_are_recreated(out: Array) -> None:
    kernel = warm(WRAPPED["computed inside"](), out, 7, 32)
    first = kernel[grid](out, 7, 32)
    kernel.fn.fn.device_caches.clear()
    second = kernel[grid](out, 7, 32)
    assert second is not first
    assert kernel[grid](out, 7, 32) is second


def test_a_wrapper_of_another_kind_is_launched_by_python(out: Array) -> None:
    class Mine(Heuristics):
        count = 0

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return super().run(*args, **kwargs)

    inner = jit(fill)
    mine = Mine(inner, inner.arg_names, {"EVEN": even})
    kernel = tuned(mine)
    warm(kernel, out, 7, 32)
    before = mine.count
    warm(kernel, out, 7, 32)
    assert mine.count == before + 3


# -- hooks and errors -----------------------------------------------------------------------------


def test_hooks_of_configurations_are_called_each_time(out: Array) -> None:
    seen: list[Any] = []
    config = Config({"BLOCK": 16, "EVEN": 0}, pre_hook=lambda args: seen.append(args["value"]))
    kernel = tuned(jit(fill), config)
    for value in range(5):
        kernel[grid](out, value, 32)
    assert seen == list(range(5))


def test_hooks_of_the_kernel_are_called_each_time(out: Array) -> None:
    kernel = warm(WRAPPED["computed inside"](), out, 7, 32)
    seen: list[Any] = []
    hook = lambda *args, **kwargs: seen.append(kwargs["EVEN"])  # noqa: E731
    kernel.fn.fn.add_pre_run_hook(hook)
    for _ in range(2):
        kernel[grid](out, 7, 32)
    assert seen == [1, 1]


def test_error_of_a_function_propagates(out: Array) -> None:
    count = [0]

    def compute(args: dict[str, Any]) -> int:
        count[0] += 1
        if args["value"] == 13:
            raise LookupError("no such value")
        return 16

    kernel = heuristics({"BLOCK": compute, "EVEN": lambda args: 0})(jit(fill))
    warm(kernel, out, 7, 32)
    before = count[0]
    with pytest.raises(LookupError, match="no such value"):
        kernel[grid](out, 13, 32)
    assert count[0] == before + 1
    assert launched(kernel, out, 8, 32)[0] == 8


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((7,), {}),
        ((7, 32, 16, 1, 5), {}),
        ((7, 32), {"valu": 3}),
        ((7, 32), {"value": 3}),
        ((object(), 32), {}),
        ((7, 32), {"EVEN": 1}),
        ((7, 32), {"BLOCK": 8}),
        ((7, 32, 8), {}),
        ((7, 32), {"num_warps": 2}),
        ((7, 32), {"num_warps": "two"}),
    ],
)
def test_unusual_calls_equal_those_of_python(name: str, args: Any, kwargs: Any, out: Array) -> None:
    """Those that fail and those that override what a wrapper adds."""
    kernel, reference = WRAPPED[name](), WRAPPED[name]()
    warm(kernel, out, 7, 32)
    for _ in range(3):
        expected, got = (
            outcome(lambda launch: launch(out, *args, **kwargs) and out.tolist(), launch)
            for launch in (lambda *a, **k: reference.run(*a, grid=grid, **k), kernel[grid])
        )
        assert str(got) == str(expected)


def test_conflict_with_a_configuration_is_rejected(out: Array) -> None:
    kernel = warm(WRAPPED["tuned"](), out, 7, 32)
    for _ in range(3):
        with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
            kernel[grid](out, 7, 32, BLOCK=8)


# -- references and threads -----------------------------------------------------------------------


@pytest.mark.parametrize("name", WRAPPED)
def test_launches_leak_no_references_or_memory(name: str, out: Array) -> None:
    kernel, value = WRAPPED[name](), 123456789
    warm(kernel, out, value, 32)

    def often(count: int) -> None:
        for _ in range(count):
            kernel[grid](out, value, 32)
            kernel[(0,)](out, value, n=32)

    often(50)
    watched = [out, value, kernel, None, True, int, kernel[grid](out, value, 32)]
    gc.collect()
    before = [sys.getrefcount(item) for item in watched], sys.getallocatedblocks()
    often(5000)
    gc.collect()
    after = [sys.getrefcount(item) for item in watched], sys.getallocatedblocks()
    assert all(abs(a - b) <= 20 for a, b in zip(before[0], after[0], strict=True))
    assert after[1] - before[1] < 300  # what other tests left may go meanwhile


def test_threads_launch_while_tuning_results_change() -> None:
    kernel = WRAPPED["computed inside"]()

    def work(number: int) -> None:
        mine = np.zeros(4, np.int32)
        for i in range(600):
            n = 32 + i % 5
            kernel[grid](mine, i, n)
            assert mine[0] == i, mine
            assert mine[3] == (n % mine[2] == 0)
            if number == 0 and i % 50 == 0:
                kernel.cache.clear()

    in_threads(work, 4)


# -- launches bound to their arguments ------------------------------------------------------------


def test_bound_launches(out: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = jit(fill)
    again = kernel.bind(out, 7, n=32, BLOCK=16, EVEN=1, grid=grid)
    assert out.tolist() == [0, 0, 0, 0]  # not launched yet
    without_python(monkeypatch)
    compiled = again()
    for _ in range(3):
        out[:] = 0
        assert again() is compiled
        assert out.tolist() == [7, 32, 16, 1]
    monkeypatch.undo()
    assert compiled is kernel[grid](out, 7, 32, 16, 1)


@pytest.mark.parametrize("name", WRAPPED)
def test_bound_launches_of_wrapped_kernels(
    name: str, out: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = WRAPPED[name]()
    again = kernel.bind(out, 7, 33, grid=grid)
    expected = launched(WRAPPED[name](), out, 7, 33)
    without_python(monkeypatch)
    out[:] = 0
    again()
    assert out.tolist() == expected


def test_bound_launches_with_parts_and_empty_grids() -> None:
    def add(pair, out, n: tl.constexpr):
        i = tl.arange(0, n)
        tl.store(out + i, tl.load(pair[0] + i) + pair[1])

    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    jit(add).bind((x, 2.5), out, 8, grid=(0,))()
    assert not out.any()
    jit(add).bind((x, 2.5), out, 8, grid=[1])()
    assert (out == x + 2.5).all()


def test_bound_launches_follow_hooks_and_settings(out: Array) -> None:
    kernel = jit(fill)
    again = kernel.bind(out, 7, 32, 16, 1, grid=(1,))
    plain = again()
    seen: list[Any] = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(args[1]))
    assert again() is plain
    assert seen == [7]
    kernel.pre_run_hooks = []
    with knobs.runtime.scope():
        knobs.runtime.debug = True
        assert again().metadata.debug
    assert again() is plain


def test_bound_launches_outlive_their_kernel(out: Array) -> None:
    kernel = jit(fill)
    again = kernel.bind(out, 7, 32, 16, 1, grid=(1,))
    kernel.device_caches.clear()
    del kernel
    gc.collect()
    again()
    assert out[0] == 7
    with pytest.raises(TypeError):
        again(5)  # pyright: ignore[reportCallIssue]


def test_bound_launches_through_python(out: Array) -> None:
    config = Config({"BLOCK": 16, "EVEN": 0}, pre_hook=lambda args: None)
    again = tuned(jit(fill), config).bind(out, 7, 32, grid=grid)
    again()
    assert out[0] == 7


@pytest.mark.parametrize("wrong", [{"value": object()}, {"valu": 3}, {"grid": None}, {"grid": 4}])
def test_errors_of_binding_equal_those_of_launching(wrong: Any, out: Array) -> None:
    given: dict[str, Any] = {"value": 7, "n": 32, "BLOCK": 16, "EVEN": 1, "grid": (1,), **wrong}
    kernel = jit(fill)
    for _ in range(2):
        assert outcome(kernel.bind, out, **given) == outcome(kernel.run, out, **given)
        kernel[(1,)](out, 7, 32, 16, 1)
