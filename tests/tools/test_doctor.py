"""`python -m tilewright doctor`: results on this machine, and reports of simulated problems."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.fake_cuda import FakeCuda, Gpu
from tilewright.base import knobs
from tilewright.base.findings import NOTE, OK, PROBLEM, Finding
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.tensors import read
from tilewright.tools import cli, doctor, probe
from tilewright.tools.doctor import CHECKS

ROOT = Path(__file__).parents[2]


def found(title: str) -> dict[str, Finding]:
    return {finding.what: finding for finding in CHECKS[title]()}


def answers(output: dict[str, dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    return output.__getitem__


@pytest.fixture
def no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes are started: the CPU works, and there is no GPU."""
    output = {"cpu": {"seconds": 1.0, "right": True}, "cuda": {"missing": "no such file"}}
    monkeypatch.setattr(doctor, "ask", answers(output))


def test_this_machine_has_no_problems_without_optional_packages() -> None:
    """In a process of its own, which must load none of them."""
    program = """
import sys
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.tensors import read
from tilewright.tools import cli
status = cli.main(["doctor"])
loaded = {"torch", "triton", "matplotlib", "pandas"} & set(sys.modules)
sys.exit(f"loaded: {loaded}" if loaded else status)
"""
    command = [sys.executable, "-W", "error", "-c", program]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1].startswith("0 problems, ")
    assert "kernel on cpu    compiled and ran in " in run.stdout
    for title in CHECKS:
        assert f"\n{title}\n" in "\n" + run.stdout


def test_llvm_that_cannot_be_loaded_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    package = tmp_path / "llvmlite" / "binding"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "__init__.py").write_text("raise OSError('libllvmlite.so: wrong ELF class')")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.tensors import read
from tilewright.tools import cli
sys.exit(cli.main(["doctor", "--json"]))
"""
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    output = json.loads(run.stdout)
    assert not output["healthy"]
    llvm = next(f for f in output["checks"]["compilers"] if f["what"] == "target cpu")
    assert llvm["level"] == "problem"
    assert "wrong ELF class" in llvm["summary"]
    assert "pip install" in llvm["advice"]
    assert {f["level"] for f in output["checks"]["cache"]} == {"ok"}


@pytest.mark.usefixtures("no_trials")
def test_json_has_all_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["healthy"] is True
    assert output["compiler"].startswith("0.")
    assert list(output["checks"]) == list(CHECKS)
    for finding in [f for findings in output["checks"].values() for f in findings]:
        assert set(finding) == {"level", "what", "summary", "advice"}
        assert finding["level"] in (OK, NOTE)


@pytest.mark.usefixtures("no_trials")
def test_a_failing_check_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> list[Finding]:
        raise RuntimeError("out of order")

    monkeypatch.setitem(CHECKS, "cache", broken)
    assert cli.main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert " ! cache            the check failed: RuntimeError: out of order" in output
    assert output.splitlines()[-1].startswith("1 problem, ")


# -- kernels on devices ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "level", "summary"),
    [
        ({"seconds": 1.0, "right": True}, OK, "correct result"),
        ({"seconds": 1.0, "right": False}, PROBLEM, "result is wrong"),
        ({"error": "DeviceError: broken"}, PROBLEM, "DeviceError: broken"),
    ],
)
def test_results_of_trials_are_classified(
    answer: dict[str, Any], level: str, summary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ask", answers({"cpu": answer}))
    finding = found("CPU")["kernel on cpu"]
    assert finding.level == level
    assert summary in finding.summary


def boot(program: str) -> str:
    """In place of the program that children run; it takes the same fields."""
    return program.replace("{", "{{").replace("}", "}}") + "  # {what!r}"


@pytest.mark.parametrize(
    ("program", "summary", "advice"),
    [
        (f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})", "SIGILL", "CPU_FEATURES"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})", "SIGSEGV", ""),
        ("raise SystemExit('no kernel today')", "status 1: no kernel today", ""),
        ("pass", "no output", ""),
        ("import time; time.sleep(60)", "timed out after", ""),
    ],
)
def test_any_failure_of_the_child_is_reported(
    program: str, summary: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_PROBE", boot(program))
    answer = doctor.ask("cpu", 1.0 if "sleep" in program else 60.0)
    assert summary in answer["error"]
    assert advice in answer.get("advice", "")


def test_a_child_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "the child process cannot be started" in doctor.ask("cpu")["error"]


def test_an_error_of_the_probe_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    probe.main("nonsense:x")
    answer = json.loads(capsys.readouterr().out)
    assert "no driver for devices of type 'nonsense'" in answer["error"]
    probe.main("cuda:99")
    assert "error" in json.loads(capsys.readouterr().out)


def test_wrong_results_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe.run_kernel("cpu")["right"] is True
    monkeypatch.setattr(probe, "expected", lambda x, sums: x)
    assert probe.run_kernel("cpu")["right"] is False


# -- GPUs -----------------------------------------------------------------------------------------


def test_gpus_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = {"name": "H200", "capability": [9, 0], "memory": 141 << 30, "multiprocessors": 132}
    output = {"driver": "CUDA 12.8", "gpus": [gpu]}
    run = {"seconds": 2.0, "right": True}
    monkeypatch.setattr(doctor, "ask", answers({"cuda": output, "cuda:0": run}))
    findings = found("GPUs")
    assert findings["CUDA driver"].summary == "for CUDA 12.8"
    assert findings["cuda:0"].summary == "H200, capability 9.0, 141.0 GiB, 132 multiprocessors"
    assert findings["kernel on cuda:0"].level == OK


def test_without_a_driver_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ask", answers({"cuda": {"missing": "libcuda.so.1"}}))
    note = found("GPUs")["CUDA driver"]
    assert note.level == NOTE
    assert "run on the CPU" not in note.advice  # there may be GPUs of other vendors
    monkeypatch.setattr(doctor, "ask", answers({"cuda": {"error": "it does not start"}}))
    assert found("GPUs")["CUDA driver"].level == PROBLEM


def test_the_probe_queries_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.ctypes, "CDLL", lambda name: None)
    FakeCuda([Gpu(), Gpu()]).install(monkeypatch)
    output = probe.gpus()
    assert output["driver"].startswith("CUDA ")
    assert [gpu["capability"] for gpu in output["gpus"]] == [(9, 0), (9, 0)]
    assert output["gpus"][0]["multiprocessors"] == 132


def test_arrays_are_copied_to_a_gpu_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda([Gpu()]).install(monkeypatch)
    array = np.arange(7, dtype=np.float32)
    there = DeviceArray("cuda:0", array)
    assert read(there)[:3] == (there.data_ptr(), "fp32", "cuda:0")
    assert there.numpy().tolist() == array.tolist()


@pytest.mark.gpu
def test_a_kernel_runs_on_the_gpu() -> None:
    answer = doctor.ask("cuda:0")
    assert answer.get("right") is True, answer


# -- the rest -------------------------------------------------------------------------------------


def test_a_requested_assembler_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_PTXAS_PATH", "/nowhere/ptxas")
    finding = found("compilers")["assembler"]
    assert finding.level == PROBLEM
    assert "/nowhere/ptxas" in finding.summary


def test_no_assembler_is_a_note_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Callable[..., None] = lambda *args: None  # noqa: E731
    for module in ("assemble", "doctor"):
        for name in ("find_program", "find_library"):
            monkeypatch.setattr(f"tilewright.targets.nvidia.{module}.{name}", nothing)
    finding = found("compilers")["assembler"]
    assert finding.level == NOTE
    assert "pip install nvidia-cuda-nvcc" in finding.advice


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "file" / "cache")
        finding = found("cache")["writing"]
    assert finding.level == PROBLEM
    assert "TILEWRIGHT_CACHE_DIR" in finding.advice


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", fail)
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path)
        findings = found("cache")
    assert findings["locks"].level == NOTE
    assert findings["writing"].level == OK


def test_the_trial_leaves_no_entry_in_the_cache(tmp_path: Path) -> None:
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path)
        assert {finding.level for finding in found("cache").values()} == {OK}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_settings_are_listed_with_their_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CPU_THREADS", "many")
    monkeypatch.setenv("TILEWRIGHT_ASEMBLER", "ptxas")
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    monkeypatch.setenv("TRITON_OF_ITS_OWN", "1")
    findings = found("settings")
    assert findings["TILEWRIGHT_CPU_THREADS"].level == PROBLEM
    assert "'many'" in findings["TILEWRIGHT_CPU_THREADS"].summary
    assert findings["TILEWRIGHT_ASEMBLER"].advice == "Did you mean TILEWRIGHT_ASSEMBLER?"
    assert findings["TRITON_PRINT_AUTOTUNING"].summary == "autotuning.print = True"
    assert findings["TRITON_OF_ITS_OWN"].level == OK
