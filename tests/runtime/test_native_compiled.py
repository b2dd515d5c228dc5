"""`CompiledKernel.run`: native launches with Triton's calling convention, next to Python's."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tilewright.language as tl
from tests.runtime.native_cases import native, outcome
from tilewright.base import knobs
from tilewright.compiler.artifact import CompiledKernel, Runner
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.runtime import launch
from tilewright.runtime.jit import jit
from tilewright.runtime.native.compiled import Substitute


@jit
def store_all(out, small, large, flag, x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(2) * 4 + tl.program_id(1) * 2 + tl.program_id(0)
    value = small + large.to(tl.float64) + x + y + tl.where(flag, 0.5, 0.25)
    tl.store(out + i, value * BLOCK, i < n)


SIGNATURE = {
    "out": "*fp64",
    "small": "i32",
    "large": "i64",
    "flag": "u1",
    "x": "fp32",
    "y": "fp64",
    "n": "i32",
}


@pytest.fixture(scope="module")
def kernel() -> CompiledKernel:
    return compile(ASTSource(store_all, SIGNATURE, {"BLOCK": 4}), options={"num_cpu_threads": 1})


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Gets the arguments of each launch that Python makes."""
    seen: list[Any] = []
    real = launch._Launcher.launch

    def recorded(self: Any, kernel: Any, grid: Any, args: Any, *rest: Any, **hooks: Any) -> None:
        seen.append((grid, *args))
        real(self, kernel, grid, args, *rest, **hooks)

    monkeypatch.setattr(launch._Launcher, "launch", recorded)
    return seen


HEAD = (None, None, None, None, None, None)
Call = Callable[[Callable[..., None], Any], None]


def call(
    run: Callable[..., None],
    out: Any,
    *scalars: Any,
    grid: tuple[Any, ...] = (2, 2, 2),
    head: tuple[Any, ...] = HEAD,
    rest: tuple[Any, ...] = (4,),
) -> None:
    small, large, flag, x, y, n = (*scalars, *(3, 5, True, 0.5, 0.25, 8)[len(scalars) :])
    run(*grid, *head, out, small, large, flag, x, y, n, *rest)


NATIVE: list[Call] = [
    call,
    lambda run, out: call(run, out, -3, -(2**40), False, 1e30, -1e300),
    lambda run, out: call(run, out, 2**31 - 1, 2**63 - 1, True, float("nan"), float("inf"), 3),
    lambda run, out: call(run, torch.from_numpy(out)),
    lambda run, out: call(run, out, 1, 1, grid=(1, 2, 1)),
    lambda run, out: call(run, out, grid=(0, 1, 1)),
    lambda run, out: call(run, out, rest=("any",)),
    lambda run, out: call(run, out, head=(0, *HEAD[1:])),
    lambda run, out: call(run, out, head=(0, 1, (4, 1, 0), object(), *_chains())),
]

PYTHON: list[Call] = [
    lambda run, out: call(run, out, np.int32(3)),
    lambda run, out: call(run, out, 3, 5, True, 2),
    lambda run, out: call(run, out, 3, 5, 1),
    lambda run, out: call(run, out, 2**31),
    lambda run, out: call(run, out, 3, 2**63),
    lambda run, out: call(run, out, None),
    lambda run, out: call(run, out.ctypes.data),
    lambda run, out: call(run, out, rest=()),
    lambda run, out: call(run, out, rest=(4, 5)),
    lambda run, out: call(run, out, grid=(True, 2, 2)),
    lambda run, out: call(run, out, grid=(-1, 2, 2)),
    lambda run, out: call(run, out, grid=(2**64, 2, 2)),
    lambda run, out: call(run, out, head=(7, *HEAD[1:])),
    lambda run, out: call(run, out, head=("0", *HEAD[1:])),
    lambda run, out: call(run, torch.empty(8, device="meta")),
    lambda run, out: call(run, out, rest=(), head=HEAD[:-1]),
    lambda run, out: run(2, 2, 2, *HEAD, out, 3, 5, True, 0.5, 0.25, 8, BLOCK=4),
]


def _chains() -> tuple[Any, Any]:
    return knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook


def _both(kernel: CompiledKernel, case: Call) -> tuple[Any, ...]:
    """The outcomes and results of a call by native code and by Python."""
    found: list[Any] = []
    for run in (kernel.run, Runner(kernel)):
        out = np.zeros(8)
        found.append((outcome(case, run, out), out.tobytes()))
    return tuple(found)


@pytest.mark.parametrize("case", NATIVE, ids=range(len(NATIVE)))
def test_native_launch(kernel: CompiledKernel, by_python: list[Any], case: Call) -> None:
    assert not isinstance(kernel.run, Runner)
    natively, expected = _both(kernel, case)
    assert natively == expected
    assert natively[0] is None
    assert len(by_python) == 1


@pytest.mark.parametrize("case", PYTHON, ids=range(len(PYTHON)))
def test_call_that_python_handles(kernel: CompiledKernel, case: Call) -> None:
    natively, expected = _both(kernel, case)
    assert natively == expected


def test_hooks_are_called(kernel: CompiledKernel, by_python: list[Any]) -> None:
    seen: list[Any] = []
    out = np.zeros(8)
    call(kernel.run, out, head=(None, None, None, 5, seen.append, None))
    assert seen == [5]
    enter, _ = _chains()
    enter.add(seen.append)
    try:
        call(kernel.run, out, head=(None, None, None, 6, *_chains()))
        assert seen == [5, 6]
        call(kernel.run, out)
        assert seen == [5, 6]
    finally:
        enter.clear()
    call(kernel.run, out, head=(None, None, None, 7, *_chains()))
    assert seen == [5, 6]
    assert len(by_python) == 2


def test_metadata_of_hooks_is_computed_for_hooks_only(kernel: CompiledKernel) -> None:
    assert kernel.launch_metadata((1, 1, 1), 0, 1) is None
    enter, _ = _chains()
    enter.add(print)
    try:
        found = kernel.launch_metadata((1, 1, 1), 0, np.zeros(8), 3, 5, True, 0.5, 0.25, 8)
    finally:
        enter.clear()
    assert found.get()["name"] == "store_all"


def test_threads_of_the_settings(kernel: CompiledKernel, by_python: list[Any]) -> None:
    every = compile(ASTSource(store_all, SIGNATURE, {"BLOCK": 4}))
    out = np.zeros(8)
    with knobs.runtime.scope():
        knobs.runtime.cpu_threads = 1
        call(every.run, out)
    assert out.all()
    assert not by_python


def test_unsupported_signatures_run_in_python() -> None:
    for signature in ({"x": "*fp32", "y": "fp16"}, {"x": "*fp32", "y": ("i32", "i32")}):
        made = compile(ASTSource(jit(store_first), signature))
        assert isinstance(made.run, Runner)
    out = np.zeros(1, np.float32)
    made.run(1, 1, 1, *HEAD, out, (7, 8))
    assert out == 7


def store_first(x, y):
    tl.store(x, y[0] if isinstance(y, tl.tuple) else y)


class Caller:
    """A function that launches a kernel on a grid of `n` programs, and its substitute.

    Attributes:
        seen: the `n` of each of its calls.
        settings: a namespace with the name `ready`, which is watched.
    """

    def __init__(self, kernel: CompiledKernel, is_brief: bool = False) -> None:
        self.seen: list[int] = []
        self.settings = {"ready": True, "other": 1}
        names, watched = list(SIGNATURE), [(self.settings, "ready")]

        def function(out: Any, *scalars: Any, stream: Any) -> None:
            n = scalars[-1]
            self.seen.append(n)
            made.note((n, 1, 1), n=n)
            kernel.run(n, 1, 1, *HEAD, out, *scalars, 4)

        made = Substitute(kernel, function, names, "stream", watched, is_brief)
        assert made.run is not None
        self.run = made.run

    def launched(self, n: Any, out: Any, small: Any = 3) -> int:
        """Launch; returns how often the function was called."""
        before = len(self.seen)
        self.run(out, small, 5, True, 0.5, 0.25, n, stream=None)
        return len(self.seen) - before


@pytest.mark.parametrize("is_brief", [False, True])
def test_substitute_launches_on_known_grids(kernel: CompiledKernel, is_brief: bool) -> None:
    caller = Caller(kernel, is_brief)
    for n, expected in ((1, 1), (1, 0), (8, 1), (8, 0), (1, 0), (0, 1), (0, 0), (8, 0)):
        for out in (np.zeros(8), torch.zeros(8, dtype=torch.float64)):
            assert caller.launched(n, out) == expected
            expected = 0
            assert list(out) == [37.0] * n + [0] * (8 - n)


def test_substitute_keeps_some_grids(kernel: CompiledKernel) -> None:
    caller, out = Caller(kernel), np.zeros(8)
    assert [caller.launched(n, out) for n in (1, 2, 3, 4, 4, 3, 2, 1, 5, 5, 1)] == [
        *(1, 1, 1, 1, 0, 0, 0, 0, 1, 0),
        1,
    ]


def test_substitute_calls_the_function_when_a_name_changes(kernel: CompiledKernel) -> None:
    caller, out = Caller(kernel), np.zeros(8)
    caller.launched(8, out)
    caller.settings["other"] = 2
    assert caller.launched(8, out) == 0
    caller.settings["ready"] = False
    assert caller.launched(8, out) == 1
    caller.settings["ready"] = True
    assert caller.launched(8, out) == 0


def test_substitute_calls_the_function_if_there_are_hooks(kernel: CompiledKernel) -> None:
    caller, out = Caller(kernel), np.zeros(8)
    caller.launched(8, out)
    enter, _ = _chains()
    enter.add(print)
    try:
        assert caller.launched(8, out) == 1
    finally:
        enter.clear()
    assert caller.launched(8, out) == 0


def test_substitute_calls_the_function_for_other_arguments(kernel: CompiledKernel) -> None:
    caller, out = Caller(kernel), np.zeros(8)
    caller.launched(8, out)
    assert caller.launched(8, out, np.int32(3)) == 1
    with pytest.raises(ValueError, match="meta"):
        caller.launched(8, torch.empty(8, device="meta"))
    for given in ({}, {"streams": 0}, {"stream": 0, "more": 0}):
        with pytest.raises(TypeError, match="argument"):
            caller.run(out, 3, 5, True, 0.5, 0.25, 8, **given)
    with pytest.raises(TypeError, match="argument"):
        caller.run(out, 3, stream=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child(kernel: CompiledKernel, by_python: list[Any]) -> None:
    out = np.zeros(8)
    call(kernel.run, out)
    assert native().address
    child = os.fork()
    if child == 0:
        good = False
        try:
            results = []
            for _ in range(3):
                mine = np.zeros(8)
                call(kernel.run, mine)
                results.append((mine == out).all())
            good = all(results) and len(by_python) == 1
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
