"""What sessions of the profiler record and write, on the CPU and with the events of a driver that
only records."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.fake_cuda import FakeCuda, Gpu, compiled
from tilewright import profiler as proton
from tilewright.base import knobs
from tilewright.profiler import clocks, scopes, viewer
from tilewright.profiler.data import COUNT, CPU_TIME, TIME, Frame


def described(grid: Any, metadata: Any, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"fill {args['n']}", "flops32": args["n"], "bytes": 4 * args["n"], "other": 1}


@tw.jit(launch_metadata=described)
def fill(out, n, value):
    i = tl.arange(0, 64)
    tl.store(out + i, value, i < n)


OUT = np.zeros(64, np.float32)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    proton.finalize()
    assert not knobs.launch_hooks


def launch(n: int = 64) -> None:
    fill[(1,)](OUT, n, 2.0)


def tree(name: str = "proton") -> Frame:
    return viewer.read(f"{name}.hatchet")


def names(frame: Frame) -> Any:
    """The names of the frames as nested dictionaries."""
    return {name: names(child) for name, child in frame.children.items()}


def test_launches_belong_to_scopes() -> None:
    launch()  # before the session: not recorded
    proton.start()
    launch()
    with proton.scope("outer"):
        for _ in range(3):
            launch()
        with proton.scope("inner"):
            launch()
    proton.finalize()
    launch()
    root = tree()
    kernel = next(iter(root.children))
    assert kernel.startswith("fill")
    assert names(root) == {kernel: {}, "outer": {kernel: {}, "inner": {kernel: {}}}}
    outer = root.children["outer"]
    found = outer.children[kernel].metrics
    assert (found[COUNT], found["device_id"], found["device_type"]) == (3, "0", "CPU")
    assert found.keys() == {COUNT, TIME, "device_id", "device_type"}
    assert viewer.total(outer, COUNT) == 4
    assert not outer.metrics
    assert OUT[0] == 2


def test_times_are_those_of_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    launch()
    proton.start()
    before = time.perf_counter_ns()
    for _ in range(5):
        launch()
    limit = time.perf_counter_ns() - before
    proton.finalize()
    assert 0 < viewer.total(tree(), TIME) < limit


def test_names_and_metrics_of_launch_metadata() -> None:
    proton.start("plain")
    proton.start("described", hook="triton")
    launch(10)
    launch(10)
    launch(20)
    proton.finalize()
    assert list(tree("plain").children) == [fill.fn.__name__]
    ten = tree("described").children["fill 10"].metrics
    assert (ten[COUNT], ten["flops32"], ten["bytes"]) == (2, 20, 80)
    assert "other" not in ten
    assert viewer.total(tree("described"), "bytes") == 160


def test_hatchets_literal_format() -> None:
    proton.start(hook="triton")
    with proton.scope("a", metrics={"tokens": 3, "part (exc)": 2.5}):
        launch()
    proton.finalize()
    root, devices = json.loads(Path("proton.hatchet").read_text())
    assert root["frame"] == {"name": "ROOT", "type": "function"}
    # Zeros at the root say which metrics include those of the frames below.
    assert root["metrics"] == {COUNT: 0, TIME: 0, "tokens": 0, "flops32": 0, "bytes": 0}
    (scope,) = root["children"]
    assert scope["metrics"] == {"tokens": 3, "part (exc)": 2.5}
    assert scope["children"][0]["children"] == []
    assert devices["CPU"]["0"].keys() == {
        "arch", "bus_width", "clock_rate", "memory_clock_rate", "num_sms",
    }  # fmt: skip


def test_metrics_of_a_scope_are_summed_up() -> None:
    proton.start()
    for count in (1, 2, np.int64(4)):
        with proton.scope("a", {"items": count}):
            pass
    proton.enter_scope("a")
    proton.exit_scope("a", metrics={"items": 8})
    proton.finalize()
    assert tree().children["a"].metrics == {"items": 15}


@pytest.mark.parametrize("value", ["3", None, True, [1]])
def test_metrics_are_numbers(value: Any) -> None:
    proton.start()
    with pytest.raises(TypeError, match="the metric 'items' is a number, not"):
        proton.enter_scope("a", metrics={"items": value})
    assert scopes.path() == ()


def test_scopes_decorate_functions_that_call_themselves() -> None:
    @proton.scope("down")
    def down(n: int) -> int:
        launch()
        return down(n - 1) if n else 5

    proton.start()
    assert down(2) == 5
    proton.finalize()
    kernel = fill.fn.__name__
    assert names(tree()) == {"down": {kernel: {}, "down": {kernel: {}, "down": {kernel: {}}}}}


def test_a_scope_ends_with_an_exception() -> None:
    proton.start()
    with pytest.raises(ZeroDivisionError), proton.scope("a"):
        raise ZeroDivisionError
    assert scopes.path() == ()


def test_scopes_are_nested() -> None:
    assert proton.enter_scope("unrecorded") is None
    assert proton.exit_scope() is None
    proton.start()
    first = proton.enter_scope("a")
    second = proton.enter_scope("b")
    with pytest.raises(ValueError, match=r"exit_scope\('a'\): the innermost scope is 'b'"):
        proton.exit_scope("a")
    assert (proton.exit_scope("b"), proton.exit_scope()) == (second, first)
    assert first != second


def test_time_on_the_host() -> None:
    proton.start()
    with proton.cpu_timed_scope("host"):
        time.sleep(0.01)
    with pytest.raises(ValueError, match="cpu_time"):
        proton.cpu_timed_scope("host", {"cpu_time": 1})
    proton.finalize()
    assert 10e6 <= float(tree().children["host"].metrics[CPU_TIME]) < 10e9


def test_states_are_below_the_scopes() -> None:
    proton.start()
    with proton.state("copy"), proton.scope("a"):
        launch()
    launch()
    proton.finalize()
    kernel = fill.fn.__name__
    assert names(tree()) == {"a": {"copy": {kernel: {}}}, kernel: {}}


def test_a_thread_is_in_the_scopes_of_the_main_thread_until_it_has_its_own() -> None:
    def work() -> None:
        launch()
        with proton.scope("own"):
            launch()

    proton.start()
    with proton.scope("main"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    proton.finalize()
    kernel = fill.fn.__name__
    assert names(tree()) == {"main": {kernel: {}}, "own": {kernel: {}}}


def test_inactive_sessions_record_nothing_and_cost_nothing() -> None:
    first, second = proton.start("first"), proton.start("second")
    proton.deactivate(first)
    launch()
    with proton.scope("a", {"items": 1}):
        pass
    proton.deactivate()
    assert not knobs.launch_hooks
    launch()
    proton.activate(first)
    launch()
    assert proton.start("second") == second  # activates it
    launch()
    proton.finalize(first)
    launch()
    with pytest.raises(ValueError, match=f"there is no session {first}; those started are"):
        proton.activate(first)
    proton.finalize()
    assert viewer.total(tree("first"), COUNT) == 2
    assert viewer.total(tree("second"), COUNT) == 3
    assert list(tree("second").children["a"].metrics.items()) == [("items", 1)]
    assert "a" not in tree("first").children


def test_a_failed_launch_is_not_recorded() -> None:
    proton.start(hook="triton")

    def fails(metadata: Any) -> None:
        raise RuntimeError("planned")

    knobs.runtime.launch_enter_hook.add(fails)
    with pytest.raises(RuntimeError, match="planned"):
        launch()
    knobs.runtime.launch_enter_hook.remove(fails)
    launch()
    proton.finalize()
    assert viewer.total(tree(), COUNT) == 1


def test_the_functions_of_the_program() -> None:
    proton.start(context="python")
    with proton.scope("a"):
        launch()
    proton.finalize()
    (path,) = [line for line in _paths(tree()) if line[-1].startswith("fill")]
    assert path[-2] == "a"
    file, _, function = path[-4].rpartition(":")  # the caller of `launch`
    assert Path(file).name == Path(__file__).name
    assert function.startswith("test_the_functions_of_the_program@")


def _paths(frame: Frame) -> list[tuple[str, ...]]:
    below = [path for child in frame.children.values() for path in _paths(child)]
    return [(frame.name, *path) for path in below or [()]]


def test_events_of_chromes_trace_viewer() -> None:
    proton.start("t", data="trace", hook="triton")
    with proton.scope("a", {"items": 2}):
        launch(8)
        launch(9)
    proton.finalize(output_format="chrome_trace")
    written = json.loads(Path("t.chrome_trace").read_text())
    scope, eight, nine = written["traceEvents"]
    assert [e["name"] for e in (scope, eight, nine)] == ["a", "fill 8", "fill 9"]
    assert {e["ph"] for e in written["traceEvents"]} == {"X"}
    assert (scope["cat"], scope["ts"], scope["args"]) == ("scope", 0, {"scopes": [], "items": 2})
    assert (eight["cat"], eight["pid"], eight["args"]["bytes"]) == ("kernel", "cpu", 32)
    assert eight["args"]["scopes"] == ["a"]
    assert 0 <= eight["ts"] < eight["ts"] + eight["dur"] <= nine["ts"]
    assert nine["ts"] + nine["dur"] <= scope["dur"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": "gpu"}, "context is one of 'shadow', 'python', not 'gpu'"),
        ({"data": "list"}, "data is one of 'tree', 'trace', not 'list'"),
        ({"backend": "roctracer"}, "backend is one of None, 'cupti', not 'roctracer'"),
        ({"mode": "pcsampling"}, "mode is one of None, '', not 'pcsampling'"),
        ({"hook": "torch"}, "hook is one of None, 'triton', not 'torch'"),
    ],
)
def test_unavailable_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        proton.start(**options)


def test_a_format_is_that_of_the_data() -> None:
    proton.start("t", data="trace")
    with pytest.raises(ValueError, match="output_format is 'chrome_trace' for the data of t"):
        proton.finalize(output_format="hatchet")


def test_a_function_is_profiled_while_it_runs() -> None:
    @proton.profile(name="deep/step", hook="triton")
    def step(n: int) -> int:
        launch(n)
        return n

    assert (step(3), step(4)) == (3, 4)
    launch()
    proton.finalize()
    assert list(tree("deep/step").children) == ["fill 3", "fill 4"]


# -- events ---------------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = FakeCuda([Gpu(), Gpu()])
    made.install(monkeypatch)
    yield made
    proton.finalize()
    assert not made.events
    assert not made.faults


def test_times_of_a_gpu_are_those_of_its_events(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "BATCH", 4)
    fake.tick = 0.5  # ms from one event to the next
    kernel = compiled([((0,), "i64")], "cuda:1")
    proton.start()
    most = 0
    for _ in range(10):
        kernel[(1, 1, 1)](7)
        most = max(most, len(fake.events))
    assert most <= 2 * 4 + 1  # released in batches
    proton.finalize()
    metrics = tree().children["k"].metrics
    assert (metrics[COUNT], metrics[TIME]) == (10, 10 * 500_000)
    assert (metrics["device_type"], metrics["device_id"]) == ("CUDA", "1")
    _, devices = json.loads(Path("proton.hatchet").read_text())
    facts = devices["CUDA"]["1"]
    assert facts == {
        "arch": "90", "bus_width": 6144, "clock_rate": 1980000, "memory_clock_rate": 3201000,
        "num_sms": 132,
    }  # fmt: skip


def test_launches_that_a_graph_captures_have_no_time(fake: FakeCuda) -> None:
    kernel = compiled([], "cuda:0")
    proton.start()
    fake.capturing = True
    kernel[(1, 1, 1)]()
    fake.capturing = False
    kernel[(1, 1, 1)]()
    proton.finalize()
    assert tree().children["k"].metrics[COUNT] == 1
    assert len(fake.launches) == 2


def test_capture_that_begins_between_launches(fake: FakeCuda) -> None:
    kernel = compiled([], "cuda:0")
    proton.start()
    kernel[(1, 1, 1)]()
    fake.capturing = True
    kernel[(1, 1, 1)]()
    fake.capturing = False
    proton.finalize()
    assert tree().children["k"].metrics[COUNT] == 1
