"""Programs that use torch.compile, each in a fork of one process that has imported Inductor.

The import takes longer than most of the programs. What depends on the order of imports starts a
process of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

SERVER = """
import atexit, json, os, sys, traceback
import torch, tilewright
tilewright.torch.enable(cpu=False)  # as a program does before it imports Inductor
import torch._inductor.compile_fx
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        for name, number in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT), number)
        os.environ.clear()
        os.environ.update(job["environment"])
        sys.argv = [job["program"]]
        status = 1
        try:
            with open(job["program"]) as file:
                code = compile(file.read(), job["program"], "exec")
            exec(code, {"__name__": "__main__"})
            status = 0
        except BaseException:
            traceback.print_exc()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _server() -> subprocess.Popen[str]:
    """The process; it ends with this one, or before."""
    command = [sys.executable, "-c", SERVER]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True
    )

    def end() -> None:
        server.communicate()

    atexit.register(end)
    return server


def output(text: str) -> str:
    """What a program prints; it is a file, since kernels are read from their source."""
    with tempfile.TemporaryDirectory() as folder:
        names = {name: f"{folder}/{name}" for name in ("program", "stdout", "stderr")}
        Path(names["program"]).write_text(text)
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(names | {"environment": dict(os.environ)}) + "\n")
        server.stdin.flush()
        status = server.stdout.readline()
        assert status == "0\n", Path(names["stderr"]).read_text()
        return Path(names["stdout"]).read_text().strip()
