"""Programs that are started before their input is there: results, failures, and what is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.nvidia import assemble, started_program
from tilewright.targets.nvidia.assemble import Cubin, Ptxas, Request, find_assembler
from tilewright.targets.nvidia.started_program import StartedProgram
from tilewright.targets.nvidia.toolkit import INPUT, OUTPUT, Outcome

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere no program is started early"
)

# As ptxas with line information does, it opens its input again after it has read it.
TWICE = """
import sys, time
time.sleep(float(sys.argv[3]))
data = open(sys.argv[1], 'rb').read()
again = open(sys.argv[1], 'rb').read()
assert data == again, (len(data), len(again))
print('read')
open(sys.argv[2], 'wb').write(data[::-1])
"""


def twice(wait: float = 0) -> list[str]:
    return [sys.executable, "-c", TWICE, INPUT, OUTPUT, str(wait)]


@pytest.mark.parametrize("size", [0, 1, 5_000, 200_000])
@pytest.mark.parametrize(
    ("program", "this"), [(0.0, 0.3), (0.3, 0.0)], ids=["program first", "input first"]
)
def test_input_is_read_twice(size: int, program: float, this: float) -> None:
    content = bytes(i % 251 for i in range(size))
    with StartedProgram(twice(program)) as started:
        time.sleep(this)
        ended = started.finish(content)
    assert ended is not None
    assert (ended.status, ended.stdout, ended.stderr) == (0, "read\n", "")
    assert ended.output == content[::-1]


def test_failures_are_for_another_run() -> None:
    """Messages of a program name the path of its input, which is not that of a usual run."""
    for command in ([sys.executable, "-c", "import sys; sys.exit(3)"], ["/missing", INPUT]):
        with StartedProgram(command) as started:
            assert started.finish(b"abc") is None


def test_no_result_for_inputs_that_do_not_fit_into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(descriptor: int, command: int, size: int = 0) -> int:
        raise PermissionError

    with StartedProgram(twice()) as started:
        monkeypatch.setattr(started_program.fcntl, "fcntl", refused)
        assert started.finish(b"abc") is None


def test_program_ends_with_the_context_and_leaks_no_descriptors() -> None:
    before = len(os.listdir("/proc/self/fd"))
    begin = time.monotonic()

    def used(started: StartedProgram) -> None:
        started.finish(b"abc")

    uses: tuple[Callable[[StartedProgram], object], ...] = (lambda _: None, used)
    for use in uses:
        with StartedProgram(twice(0 if use is used else 60)) as started:
            use(started)
    with pytest.raises(KeyError), StartedProgram(twice(60)):
        raise KeyError
    assert time.monotonic() - begin < 30
    assert len(os.listdir("/proc/self/fd")) == before


# A child that holds the pipe open would make the program wait for it.
FORKING = """
import os, sys, time
from tilewright.targets.nvidia.started_program import StartedProgram
with StartedProgram(sys.argv[1:]) as started:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    ended = started.finish(b"abc")
os.kill(child, 9)
os.waitpid(child, 0)
print(ended.output.decode())
"""


def test_forked_processes_do_not_hold_the_input_back() -> None:
    command = [sys.executable, "-c", FORKING, *twice()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout == "cba\n"


PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 p)
{
    .reg .b64 %rd1;
    .loc 1 7 3
    ld.param.u64 %rd1, [p];
    st.global.u64 [%rd1], %rd1;
    ret;
}
	.file	1 "kernel.py"
""".replace("    .loc ", "\t.loc\t")


@pytest.mark.parametrize("lines", [True, False])
def test_cubins_are_those_of_a_usual_run(lines: bool) -> None:
    """Of the process that was started, and of others: after it, or with other options."""
    assembler = find_assembler()
    if not isinstance(assembler, Ptxas):
        pytest.skip("no ptxas")
    request = Request("sm_90a")
    expected = assembler.attempt(PTX, request)
    assert isinstance(expected, Cubin)
    with assembler.started(request, lines=lines) as started:
        assert started.attempt(PTX, request) == expected
        assert started.attempt(PTX, request) == expected
        assert started.version() == assembler.version()


@triton.jit
def double(x_ptr, BLOCK: tl.constexpr):
    places = x_ptr + tl.arange(0, BLOCK)
    tl.store(places, tl.load(places) * 2)


def test_compilations_start_the_assembler_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process assembles a kernel that is assembled once."""
    assembler = find_assembler()
    if not isinstance(assembler, Ptxas):
        pytest.skip("no ptxas")
    assembler.version()  # runs it once, too

    def run_program(command: Sequence[str], content: bytes) -> Outcome:
        raise AssertionError(f"{command} is run")

    monkeypatch.setattr(assemble, "run_program", run_program)
    kernel = compile(ASTSource(double, {"x_ptr": "*fp32"}, {"BLOCK": 128}), target="cuda:90")
    assert kernel.asm["cubin"]
