"""Compiling in other processes: the code is the same, errors are returned, lost processes do no
harm."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright.language as tl
from tilewright.base import knobs
from tilewright.base.diagnostics import InternalCompilerError, TritonError
from tilewright.compiler import build as making
from tilewright.compiler import workers
from tilewright.compiler.build import build
from tilewright.compiler.job import Job, receive, send, settings
from tilewright.compiler.source import ASTSource
from tilewright.compiler.workers import Lost, Pool, Worker, compiling_elsewhere
from tilewright.runtime.jit import jit
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target as find_target

TARGETS = [GPUTarget("cpu"), GPUTarget("cuda", 90, 32), GPUTarget("interpreter")]


@jit
def helper(x):
    return x * 2 + 1


@jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(0, n, BLOCK):
        total += helper(tl.load(x + step + i, mask=step + i < n, other=0.0))
    tl.store(out + i, total, mask=i < n)


@jit
def product(a, b, c, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


SOURCES = [
    (kernel, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 64}),
    (product, {"a": "*fp16", "b": "*fp16", "c": "*fp32"}, {"BLOCK": 32}),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool()
    yield made
    made.close()


def compiled(source: ASTSource, device: GPUTarget) -> Any:
    return build(source, device, find_target(device).parse_options({}), "0")


@pytest.mark.parametrize("device", TARGETS, ids=lambda device: device.backend)
@pytest.mark.parametrize("kind", [0, 1])
def test_worker_makes_the_same_code(
    pool: Pool, device: GPUTarget, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fn, signature, constants = SOURCES[kind]
    here = compiled(ASTSource(fn, signature, constants), device)
    with compiling_elsewhere(pool):
        monkeypatch.setattr(making, "lower", None)  # nothing is compiled in this process
        there = compiled(ASTSource(fn, signature, constants), device)
    assert there.files() == here.files()


def test_settings_are_those_of_the_program(pool: Pool) -> None:
    source = ASTSource(*SOURCES[0])
    with knobs.compilation.scope():
        knobs.compilation.disable_line_info = True
        here = compiled(source, TARGETS[0])
        with compiling_elsewhere(pool):
            there = compiled(source, TARGETS[0])
    assert there.files() == here.files()


def test_errors_of_the_kernel_come_back(pool: Pool) -> None:
    if shutil.which("ptxas") is None:
        pytest.skip("needs ptxas, which makes the error")
    source = ASTSource(*SOURCES[0])
    with knobs.nvidia.scope():
        knobs.nvidia.assembler = "ptxas"
        knobs.nvidia.ptxas_options = "--no-such-option"
        with pytest.raises(TritonError, match="no-such-option") as here:
            compiled(source, TARGETS[1])
        with compiling_elsewhere(pool), pytest.raises(type(here.value), match="no-such-option"):
            compiled(source, TARGETS[1])


def test_crash_names_the_signal_and_spares_this_process(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    victim = Worker()

    def killed(job: Job) -> Any:
        os.kill(victim._process.pid, signal.SIGSEGV)
        return Worker.lower(victim, job)

    lost = SimpleNamespace(lower=killed, alive=False)
    monkeypatch.setattr(pool, "_take", lambda: lost)
    with knobs.compilation.scope():
        knobs.compilation.reproducer_dir = str(tmp_path)
        with compiling_elsewhere(pool), pytest.raises(InternalCompilerError, match="SIGSEGV"):
            compiled(ASTSource(*SOURCES[0]), TARGETS[0])


def test_lost_worker_is_replaced(pool: Pool) -> None:
    with compiling_elsewhere(pool):
        compiled(ASTSource(*SOURCES[0]), TARGETS[0])
        assert pool._idle
        for worker in pool._idle:
            worker._process.kill()
            worker._process.wait()
        found = compiled(ASTSource(*SOURCES[0]), TARGETS[0])
    assert found.files() == compiled(ASTSource(*SOURCES[0]), TARGETS[0]).files()


def test_job_of_a_killed_worker_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, victim = Pool(), Worker()
    victim._process.kill()
    monkeypatch.setattr(pool, "_take", lambda: victim)
    with compiling_elsewhere(pool):
        assert compiled(ASTSource(*SOURCES[0]), TARGETS[0]).name == "kernel"
    assert not pool._idle


def test_without_workers_this_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError("no processes here")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(Lost, match="no processes here"):
        Worker()
    pool = Pool()
    with compiling_elsewhere(pool):
        assert compiled(ASTSource(*SOURCES[0]), TARGETS[0]).name == "kernel"
    assert not pool._usable


def test_process_that_does_not_start_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_BOOT", "raise SystemExit(3)")
    with pytest.raises(Lost, match="ended while it started"):
        Worker()


def test_worker_ends_with_its_input() -> None:
    worker = Worker()
    worker._process.stdin.close()
    assert worker._process.wait(20) == 0
    worker.close()


def test_values_survive_the_pipe() -> None:
    pipe = BytesIO()
    send(pipe, {"a": [1, 2]})
    send(pipe, settings())
    pipe.seek(0)
    assert receive(pipe) == {"a": [1, 2]}
    assert receive(pipe) == settings()
    with pytest.raises(EOFError):
        receive(pipe)
