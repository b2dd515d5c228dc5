"""Exceptions raised by signal handlers propagate through the compiler unchanged."""

import contextlib
import signal
from collections.abc import Generator
from typing import Any

import pytest

from tests.frontend.kernels import SourceFunction, build, kernel_from
from tilewright.base.signals import from_signal_handler
from tilewright.compiler import build as building
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.protocol import GPUTarget


class Expired(Exception):
    """What the handlers raise."""


@contextlib.contextmanager
def handled() -> Generator[None]:
    """A handler of SIGUSR1 that raises, as one of SIGALRM may."""

    def handler(number: int, frame: Any) -> None:
        raise Expired

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize(
    "body", ["    COMPUTE(1)", "    for i in tl.static_range(COMPUTE(1)):\n        pass"]
)
def test_in_the_front_end(body: str) -> None:
    text = f"@constexpr_function\ndef COMPUTE(x):\n    interrupt()\n\ndef kernel():\n{body}\n"
    with handled(), pytest.raises(Expired):
        build(kernel_from(text, interrupt=interrupt))


def test_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(*args: Any, **options: Any) -> Any:
        interrupt()

    monkeypatch.setattr(building, "lower", lower)
    fn = kernel_from("def kernel(x):\n    pass\n")
    assert isinstance(fn, SourceFunction)
    with handled(), pytest.raises(Expired):
        compile(ASTSource(fn, {"x": "i32"}), target=GPUTarget("interpreter", "", 1))


def test_interrupt_without_a_handler() -> None:
    with handled(), pytest.raises(Expired) as raised:
        raise Expired
    assert not from_signal_handler(raised.value)
