"""A cooperative scheduler, with which the interpreter runs warps with roles.

    turns = Turns()
    turns.run([producer, consumer])      # in either: turns.wait(lambda: queue, "the queue")

Functions run one at a time, each until it waits for a condition that is false. If none can
continue, `wait` raises a `Deadlock` that lists the conditions.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence

from tilewright.base.record import record


class Deadlock(RuntimeError):
    """All functions that have not ended wait."""


class _Stopped(BaseException):
    """Another function has failed: unwind."""


@record(eq=False, frozen=False)
class _Runner:
    run: Callable[[], None]
    ready: Callable[[], bool] | None = None  # what it waits for
    what: str = ""
    ended: bool = False

    def can_run(self) -> bool:
        return not self.ended and (self.ready is None or self.ready())


class Turns:
    """One group of functions that run by turns. See the module.

    Args:
        idle: called when all functions wait; whether it has changed something that they wait for.
    """

    def __init__(self, idle: Callable[[], bool] = lambda: False) -> None:
        self._idle = idle
        self._changed = threading.Condition()
        self._runners: list[_Runner] = []
        self._current: _Runner | None = None
        self._error: BaseException | None = None

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """Run the functions to their ends.

        Raises:
            Exception: what the first function that failed raised.
        """
        self._runners = [_Runner(function) for function in functions]
        self._current = self._runners[0]
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(self._work, runner))
            for runner in self._runners
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Let the other functions run until `ready` returns true.

        Raises:
            Deadlock: none of them can go on.
        """
        if ready():
            return
        with self._changed:
            me = self._current
            assert me is not None
            me.ready, me.what = ready, what
            self._pass_on()
            self._await_turn(me)
            me.ready = None

    def _work(self, me: _Runner) -> None:
        try:
            with self._changed:
                self._await_turn(me)
            me.run()
        except _Stopped:
            pass
        except BaseException as error:  # handed to the thread that called `run`
            self._error = self._error or error
        with self._changed:
            me.ended = True
            if self._error is None:
                self._pass_on()
            self._changed.notify_all()

    def _await_turn(self, me: _Runner) -> None:
        while self._current is not me:
            if self._error is not None:
                raise _Stopped
            self._changed.wait()
        if self._error is not None:
            raise _Stopped

    def _pass_on(self) -> None:
        """Resume the next function that can run."""
        left = [runner for runner in self._runners if not runner.ended]
        self._current = next((runner for runner in left if runner.can_run()), None)
        while left and self._current is None and self._idle():
            self._current = next((runner for runner in left if runner.can_run()), None)
        if left and self._current is None:
            waits = "; ".join(runner.what for runner in left)
            self._error = Deadlock(f"all roles wait: {waits}")
        self._changed.notify_all()
