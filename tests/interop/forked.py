"""Programs that use torch, each in a fork of one process that has imported slow modules.

The imports take longer than most of the programs. What depends on the order of imports starts a
process of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

PLAIN = """
import sys, torch, tilewright
"""
"""What programs begin with that set up torch.compile."""

TORCH = """
import numpy, torch, torch._dynamo
"""
"""Neither tilewright, which reads settings when it is imported, nor what it changes in torch."""

INDUCTOR = """
import torch, tilewright
tilewright.torch.enable(cpu=False)  # as a program does before it imports Inductor
import torch._inductor.compile_fx
"""

SERVER = """
import atexit, json, os, runpy, sys, traceback, warnings
for line in sys.stdin:
    job = json.loads(line)
    with warnings.catch_warnings(action="ignore"):  # threads of NumPy do not matter to the copy
        child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for name, number in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT), number)
        os.environ.clear()
        os.environ.update(job["environment"])
        sys.argv = job["command"]
        sys.path[0] = os.path.dirname(sys.argv[0])
        if job["strict"]:
            warnings.simplefilter("error")
        status = 1
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
            status = 0
        except SystemExit as exit:
            status = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
            if isinstance(exit.code, str):
                print(exit.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _server(imports: str) -> subprocess.Popen[str]:
    """The process; it ends with this one, or before."""
    command = [sys.executable, "-c", imports + SERVER]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True
    )

    def end() -> None:
        server.communicate()

    atexit.register(end)
    return server


def run(
    program: Path,
    *arguments: str,
    imports: str = TORCH,
    environment: Mapping[str, str] | None = None,
    strict: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end.

    Args:
        imports: what the process has imported before.
        environment: variables that differ from those of this process.
        strict: whether warnings are errors.
    """
    command = [str(program), *arguments]
    with tempfile.TemporaryDirectory() as folder:
        files = {name: f"{folder}/{name}" for name in ("stdout", "stderr")}
        server = _server(imports)
        assert server.stdin is not None
        assert server.stdout is not None
        variables = {**os.environ, **(environment or {})}
        job = {**files, "command": command, "environment": variables, "strict": strict}
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        out, err = (Path(file).read_text() for file in files.values())
    return subprocess.CompletedProcess(command, status, out, err)


def run_text(
    text: str,
    imports: str = INDUCTOR,
    *,
    environment: Mapping[str, str] | None = None,
    strict: bool = False,
) -> subprocess.CompletedProcess[str]:
    """As `run`, of a program's text; it is a file, since kernels are read from their source."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(text)
        return run(program, imports=imports, environment=environment, strict=strict)


def output(
    text: str,
    imports: str = INDUCTOR,
    *,
    environment: Mapping[str, str] | None = None,
    strict: bool = False,
) -> str:
    """What a program prints that ends well."""
    done = run_text(text, imports, environment=environment, strict=strict)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
