"""The collector is paused while something is compiled, and runs again after."""

import gc
import os
import threading

import pytest

from tilewright.base.garbage import collector_paused


def test_collector_is_off_until_the_last_pause_ends() -> None:
    assert gc.isenabled()
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_pauses_of_several_threads_overlap() -> None:
    entered, leave = threading.Event(), threading.Event()

    def pause() -> None:
        with collector_paused():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=pause)
    with collector_paused():
        thread.start()
        entered.wait()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_collector_runs_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), collector_paused():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_pauses_of_other_threads_end_in_a_child() -> None:
    entered, leave = threading.Event(), threading.Event()

    def pause() -> None:
        with collector_paused():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=pause)
    thread.start()
    entered.wait()
    child = os.fork()
    if child == 0:
        enabled = gc.isenabled()
        with collector_paused():
            paused = not gc.isenabled()
        os._exit(0 if enabled and paused and gc.isenabled() else 1)
    status = os.waitpid(child, 0)[1]
    leave.set()
    thread.join()
    assert status == 0
