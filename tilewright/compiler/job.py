"""What processes that compile say to each other: jobs, and the form in which values are sent."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.base import knobs
from tilewright.targets.protocol import GPUTarget

LENGTH_BYTES = 8


@dataclass(frozen=True)
class Job:
    """A module to be compiled.

    Attributes:
        text: tile IR with source locations, as the front end made it.
        arg_names: of the entry, which the text does not have.
        device: what to compile for.
        options: as the target has parsed them.
        settings: the values of all settings, by group and name.
    """

    text: str
    arg_names: list[str]
    device: GPUTarget
    options: Any
    settings: dict[str, dict[str, Any]]


def settings() -> dict[str, dict[str, Any]]:
    """The values of all settings now, by group and name."""
    return {name: group.knobs for name, group in knobs.GROUPS.items()}


class Sink(Protocol):
    """Takes bytes, as binary files do."""

    def write(self, content: bytes, /) -> Any: ...
    def flush(self) -> None: ...


class Origin(Protocol):
    """Gives bytes, as binary files do: fewer than asked for only at the end."""

    def read(self, count: int, /) -> bytes: ...


def send(to: Sink, value: Any) -> None:
    """Write a value, with its length before it."""
    content = pickle.dumps(value)
    to.write(len(content).to_bytes(LENGTH_BYTES, "little") + content)
    to.flush()


def receive(source: Origin) -> Any:
    """Read what `send` wrote.

    Raises:
        EOFError: the other side is gone.
    """
    length = int.from_bytes(_exactly(source, LENGTH_BYTES), "little")
    return pickle.loads(_exactly(source, length))


def _exactly(source: Origin, count: int) -> bytes:
    content = source.read(count)
    if len(content) < count:
        raise EOFError
    return content
