"""The protocol between a process and its compile workers: jobs, and the encoding of values."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.base import knobs
from tilewright.targets.protocol import GPUTarget

LENGTH_BYTES = 8


@dataclass(frozen=True)
class Job:
    """A module to compile.

    Attributes:
        text: tile IR with source locations, from the front end.
        arg_names: argument names of the entry function, which the text lacks.
        device: the target.
        options: parsed by the target.
        settings: the values of all settings by group and name.
    """

    text: str
    arg_names: list[str]
    device: GPUTarget
    options: Any
    settings: dict[str, dict[str, Any]]


def settings() -> dict[str, dict[str, Any]]:
    """The current values of all settings by group and name."""
    return {name: group.knobs for name, group in knobs.GROUPS.items()}


class Sink(Protocol):
    """The writing side of a binary file."""

    def write(self, content: bytes, /) -> Any: ...
    def flush(self) -> None: ...


class Origin(Protocol):
    """The reading side of a binary file; a short read means end of file."""

    def read(self, count: int, /) -> bytes: ...


def send(to: Sink, value: Any) -> None:
    """Write a value with a length prefix."""
    content = pickle.dumps(value)
    to.write(len(content).to_bytes(LENGTH_BYTES, "little") + content)
    to.flush()


def receive(source: Origin) -> Any:
    """Read a value written by `send`.

    Raises:
        EOFError: the other side closed the connection.
    """
    length = int.from_bytes(_exactly(source, LENGTH_BYTES), "little")
    return pickle.loads(_exactly(source, length))


def _exactly(source: Origin, count: int) -> bytes:
    content = source.read(count)
    if len(content) < count:
        raise EOFError
    return content
