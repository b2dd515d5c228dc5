"""Runs prepared launches on a GPU, and has other processes prepare them in the meantime."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Protocol

import numpy as np
import torch

from tests.gpu.programs import At, Prepared, difference
from tilewright.base.diagnostics import DeviceError

GUARD = 1024  # bytes before and after each array that must not change
PATTERN = 0xA5

_lost: list[str] = []  # what ended this process's use of the GPU


class _Room:
    """An array in the GPU's memory, between guards."""

    def __init__(self, at: At) -> None:
        self.array = at.array
        self.start = GUARD + at.shift * at.array.itemsize
        self.bytes = torch.full(
            (self.start + at.array.nbytes + GUARD,), PATTERN, dtype=torch.uint8, device="cuda"
        )
        content = np.frombuffer(at.array.tobytes(), np.uint8)
        if content.size:
            self._middle().copy_(torch.from_numpy(content.copy()))

    def _middle(self) -> torch.Tensor:
        return self.bytes[self.start : self.start + self.array.nbytes]

    @property
    def address(self) -> int:
        return self.bytes.data_ptr() + self.start

    def read(self) -> np.ndarray:
        content = self._middle().cpu().numpy().tobytes()
        return np.frombuffer(content, self.array.dtype).reshape(self.array.shape)

    def guards_hold(self) -> bool:
        before, behind = self.bytes[: self.start], self.bytes[self.start + self.array.nbytes :]
        return bool((before == PATTERN).all()) and bool((behind == PATTERN).all())


def run(prepared: Prepared) -> None:
    """Launch, and raise AssertionError unless memory is then as it must be."""
    assert not _lost, f"this process has lost the GPU in {_lost[0]}"
    rooms = [_Room(a) for a in prepared.args if isinstance(a, At)]
    places = iter(rooms)
    values = [next(places).address if isinstance(a, At) else a for a in prepared.args]
    try:
        prepared.kernel[prepared.grid](*values)
        torch.cuda.synchronize()
    except (DeviceError, RuntimeError) as error:
        _lost.append(f"{prepared.name}: {error}")
        raise
    for i, (room, expected) in enumerate(zip(rooms, prepared.expected, strict=True)):
        assert room.guards_hold(), f"{prepared.name} wrote outside of array {i}"
        bound = prepared.bound
        if isinstance(bound, np.ndarray) and bound.shape != expected.shape:
            bound = None  # one of the operands, which stay as they are
        problem = difference(room.read(), expected, bound)
        assert not problem, f"{prepared.name}: array {i} {problem}"


# -- preparing ------------------------------------------------------------------------------------


class Preparable(Protocol):
    """A job: it has a name, and can be sent to another process."""

    @property
    def name(self) -> str: ...
    def prepare(self) -> Prepared: ...


def _prepare(job: Preparable) -> Prepared | str:
    """The work of the other process. An exception is returned as text: not all can be pickled."""
    try:
        return job.prepare()
    except Exception:
        return traceback.format_exc()


class Ahead:
    """Prepares jobs in other processes, in order and in advance."""

    def __init__(self, pool: Executor, jobs: Sequence[Preparable], distance: int) -> None:
        self.pool = pool
        self.jobs = jobs
        self.distance = distance
        self.places: Mapping[str, int] = {job.name: i for i, job in enumerate(jobs)}
        self.futures: dict[int, Future[Prepared | str]] = {}

    def get(self, job: Preparable) -> Prepared:
        place = self.places[job.name]
        for i in range(place, min(place + self.distance, len(self.jobs))):
            if i not in self.futures:
                self.futures[i] = self.pool.submit(_prepare, self.jobs[i])
        found = self.futures.pop(place).result()
        assert not isinstance(found, str), f"{job.name} could not be prepared:\n{found}"
        return found


def processes() -> int:
    """Processes that one pytest worker may have prepare jobs."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, len(os.sched_getaffinity(0)) // workers)
