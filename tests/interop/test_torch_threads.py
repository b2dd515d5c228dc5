"""Launches on the threads of torch's OpenMP runtime, after `tilewright.torch.enable`, in processes
that have used neither."""

import sys

import pytest

from tests.interop.forked import TORCH, output

START = """
import os, signal, sys, threading, warnings
import torch, tilewright
import numpy as np
import tilewright as triton, tilewright.language as tl
from tilewright.runtime.devices import cpu

@triton.jit
def sine(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.sin(tl.load(x + at, mask=at < n)), mask=at < n)

def launch(size=1 << 18, times=3):
    x = torch.randn(size)
    y = torch.empty_like(x)
    for _ in range(times):
        sine[(triton.cdiv(size, 256),)](x, y, size, BLOCK=256)
    np.testing.assert_allclose(y.numpy(), np.sin(x.numpy()), atol=1e-6)

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(4)
(torch.randn(1 << 20) + 1).sum()  # starts OpenMP's threads
tilewright.torch.enable(cpu=False)
cpu.native_pool()
started = threads()
launch()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        pytest.param("""
launch()
print(threads() - started)
for n in (1, 2, 3, 1, 4):
    torch.set_num_threads(n)
    launch()
print(threads() - started)
tilewright.torch.disable()
launch()
print(threads() - started)""", "0\n0\n3", id="numbers-of-threads"),
        pytest.param("""
some = [threading.Thread(target=launch, args=(1 << 18, 50)) for _ in range(3)]
for thread in some:
    thread.start()
for thread in some:
    thread.join()
print("done")""", "done", id="launches-by-several-threads"),
        pytest.param("""
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    signal.alarm(60)  # a deadlock ends the child
    launch()
    os._exit(0 if cpu.native_pool().workers == 3 else 1)  # of its own
print(os.waitpid(child, 0)[1])
launch()""", "0", id="fork"),
        pytest.param("""
import ctypes
openmp = ctypes.CDLL(torch._C.__file__)
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def inner(_):
    launch(1 << 16)
    os.write(1, b"ran\\n")  # in one piece, as two threads write
inner = body(inner)
openmp.GOMP_parallel(inner, None, 2, 0)""", "ran\nran", id="within-a-region"),
        pytest.param("""
class Stop(Exception):
    pass
def stop(number, frame):
    raise Stop
signal.signal(signal.SIGALRM, stop)
x = torch.randn(1 << 26)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    while True:
        sine[(1 << 18,)](x, x, 1 << 26, BLOCK=256)
except Stop:
    launch()
    print("stopped")""", "stopped", id="signal"),
    ],
)  # fmt: skip
def test_launches_run_on_threads_of_torch(rest: str, expected: str) -> None:
    pytest.importorskip("torch", minversion="2.9")
    assert output(START + rest, TORCH) == expected
