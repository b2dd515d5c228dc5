"""What tuning has found, and how: on disk, shipped, by many processes, on a terminal; `Config`."""

import copy
import os
import pickle
import subprocess
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.runtime.tuned import (
    SIZE,
    Bench,
    blocks,
    grid,
    increment,
    only_small,
    tuned,
)
from tilewright.base import knobs
from tilewright.compiler import build as making
from tilewright.compiler import workers
from tilewright.runtime.autotuner import Config, export_tuning, import_tuning
from tilewright.runtime.tuning import report
from tilewright.runtime.tuning.results import forget_imported
from tilewright.runtime.tuning.search import Search

pytestmark = pytest.mark.usefixtures("tuning")


# -- results on disk, and shipped -----------------------------------------------------------------


def test_results_are_cached_on_disk() -> None:
    x = np.zeros(SIZE, np.float32)
    first = tuned(increment, blocks(16, 32))
    first[grid](x, SIZE)
    again = tuned(increment, blocks(16, 32))
    again[grid](x, SIZE)
    assert again.configs_timings == first.configs_timings
    assert again.best_config == first.best_config
    assert x[0] == 2.0
    other = tuned(increment, blocks(16, 64))  # other configurations: another result
    other[grid](x, SIZE)
    assert other.configs_timings.keys() == set(blocks(16, 64))


def test_failures_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    first = tuned(only_small, blocks(16, 32, 64))
    first[grid](np.zeros(SIZE, np.int32), SIZE)
    monkeypatch.setattr(Search, "run", None)  # nothing is measured any more
    again = tuned(only_small, blocks(16, 32, 64))
    again[grid](np.zeros(SIZE, np.int32), SIZE)
    assert again.configs_timings == first.configs_timings
    assert again.configs_timings[Config({"BLOCK": 64})] == [float("inf")] * 3


TUNE = """
import sys
import numpy as np
import tilewright as tw
from tests.runtime.tuned import blocks, grid, increment, tuned
from tilewright.base import knobs

heard = []
knobs.autotuning.listener = lambda **event: heard.append(event["cache_hit"])
x = np.zeros(100, np.float32)
tuned(increment, blocks(16, 32))[grid](x, 100)
assert x.tolist() == [1.0] * 100
print(heard)
"""


def test_other_processes_measure_nothing() -> None:
    env = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(knobs.cache.dir)}
    command = [sys.executable, "-c", TUNE]
    root = Path(__file__).parents[2]
    pipe = subprocess.PIPE
    at_once = [
        subprocess.Popen(command, cwd=root, env=env, stdout=pipe, text=True) for _ in range(2)
    ]
    reported = sorted(process.communicate()[0].strip() for process in at_once)
    assert reported == ["[False]", "[True]"]  # the second one waited for the first
    later = subprocess.run(command, cwd=root, env=env, stdout=pipe, text=True, check=True)
    assert later.stdout.strip() == "[True]"


@pytest.mark.parametrize(
    ("how", "measured"),
    [
        ({}, 4),
        ({"cache_results": True}, 2),
        ({"cache_results": True, "key": ()}, 2),
    ],
)
def test_results_of_a_custom_bench_are_cached_on_request(
    how: dict[str, Any], measured: int
) -> None:
    bench = Bench(1.0, 2.0)
    how = {"do_bench": bench, **how}
    for _ in range(2):
        kernel = tuned(increment, blocks(16, 32), **how)
        kernel[grid](np.zeros(SIZE, np.float32), SIZE)
    assert bench.calls == measured


@pytest.mark.parametrize("setting", ["cache", "hook"])
def test_results_are_not_cached(setting: str) -> None:
    knobs.autotuning.cache = setting != "cache"
    runs: list[int] = []
    hook = None if setting == "cache" else lambda args: runs.append(1)
    found: list[Any] = []
    for _ in range(2):
        kernel = tuned(increment, blocks(16, 32, pre_hook=hook))
        kernel[grid](np.zeros(SIZE, np.float32), SIZE)
        found.append(kernel.configs_timings)
    assert found[0] != found[1]


def test_shipped_results_are_used(tmp_path: Path) -> None:
    x = np.zeros(SIZE, np.float32)
    kernel = tuned(increment, blocks(16, 32), do_bench=Bench(2.0, 1.0))
    kernel[grid](x, SIZE)
    path = tmp_path / "tuned.json"
    assert export_tuning(path, [kernel]) == 1
    bench = Bench(1.0, 2.0)
    try:
        assert import_tuning(path) == 1
        again = tuned(increment, blocks(16, 32), do_bench=bench)
        again[grid](x, SIZE)
        assert bench.calls == 0
        assert again.best_config == Config({"BLOCK": 32})
        without = tuned(increment, blocks(8, 16), do_bench=bench)  # it has no such configuration
        without[grid](x, SIZE)
        assert bench.calls == 2
    finally:
        forget_imported()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 99, "results": []}', '{"format": 1}'])
def test_other_files_are_not_results(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json does not contain tuning results"):
        import_tuning(path)


# -- Config ---------------------------------------------------------------------------------------


def test_text_of_a_config_has_its_settings() -> None:
    config = Config({"BLOCK": 16}, num_warps=8, maxnreg=64)
    assert config.all_kwargs() == {
        "BLOCK": 16,
        "num_warps": 8,
        "num_ctas": 1,
        "num_stages": 3,
        "maxnreg": 64,
    }
    assert str(config) == "BLOCK: 16, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: 64"
    assert "maxnreg" not in Config({}).all_kwargs()


def test_configs_are_equal_by_their_settings() -> None:
    config = Config({"BLOCK": 16})
    for twin in (Config({"BLOCK": 16}), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert twin == config
        assert hash(twin) == hash(config)
    others = [
        Config({"BLOCK": 32}),
        Config({"BLOCK": 16}, num_warps=8),
        Config({"BLOCK": 16}, pre_hook=print),
        Config({"BLOCK": [1]}),
    ]
    assert len({config, *others}) == 5
    config.found_by_search = True  # pyright: ignore[reportAttributeAccessIssue]


def test_deprecated_arguments_warn() -> None:
    with pytest.warns(DeprecationWarning, match="do_bench"):
        kernel = tuned(increment, blocks(16, 32), warmup=1, rep=2)
    assert (kernel.num_warmups, kernel.num_reps) == (1, 2)


def test_results_on_disk_are_for_all_devices_of_a_kind() -> None:
    kernel = tuned(increment, blocks(16, 32))
    calls = [
        {"x": SimpleNamespace(dtype="float32", device=device), "n": 5}
        for device in ("cuda:1", "cuda:0", "cuda:1")
    ]
    first, other, again = map(kernel._tuning_key, calls)
    assert first == again == (5, "float32")
    assert other == (5, "float32", "cuda:0")
    assert len({kernel._general_key(call)[0] for call in calls}) == 1


# -- compiling many at once -----------------------------------------------------------------------


def test_configurations_are_compiled_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs.autotuning.workers = 2
    here: list[int] = []
    lower = making.lower

    def counted(*args: Any) -> Any:
        here.append(1)
        return lower(*args)

    monkeypatch.setattr(making, "lower", counted)
    kernel = tuned(only_small, blocks(8, 16, 32, 128))
    x = np.zeros(SIZE, np.int32)
    kernel[grid](x, SIZE)
    assert x.tolist() == list(range(SIZE))
    assert len(here) == 1  # the first; the last fails in the front end
    assert len([t for t in kernel.configs_timings.values() if t[0] < float("inf")]) == 3


def test_daemons_compile_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs.autotuning.workers = 2
    monkeypatch.setattr(workers, "Worker", None)  # none may be started
    daemon = SimpleNamespace(daemon=True)
    monkeypatch.setattr(workers.multiprocessing, "current_process", lambda: daemon)
    kernel = tuned(increment, blocks(8, 16, 32))
    kernel[grid](np.zeros(SIZE, np.float32), SIZE)
    assert len(kernel.configs_timings) == 3


# -- on a terminal --------------------------------------------------------------------------------


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_for_terminals(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "QUIET_SECONDS", 0.0)
    out = Terminal() if is_terminal else StringIO()
    progress = report.Progress("add", 4, out=out)
    progress.show("measured", 2, "0.5 ms (BLOCK: 16)")
    progress.clear()
    reported = "\rtuning add [##########..........] measured 2/4, best 0.5 ms (BLOCK: 16)"
    assert out.getvalue() == (f"{reported}\r{' ' * (len(reported) - 1)}\r" if is_terminal else "")


def test_progress_is_silent_at_first() -> None:
    out = Terminal()
    report.Progress("add", 4, out=out).show("measured", 2)
    assert out.getvalue() == ""
