"""Kernels compiled ahead of time, and programs in C that call them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tilewright.tools import cli

KERNELS = '''
import tilewright
import tilewright.language as tl


@tilewright.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out = x + y, of n numbers."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)


@tilewright.jit
def matmul(a, b, c, n, stride, B: tl.constexpr):
    """c = a @ b, of square matrices; enough workspace that it is allocated by malloc."""
    i, j = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, n, B):
        l = k + tl.arange(0, B)
        left = tl.load(a + i[:, None] * n + l * stride)
        total = tl.dot(left, tl.load(b + l[:, None] * n + j), total)
    tl.store(c + i[:, None] * n + j, total)


@tilewright.jit
def scalars(out, a, b, c, d, e: tl.float16, f: tl.bfloat16, int, flag: tl.int1):
    """Every kind of number as a double."""
    tl.store(out, a.to(tl.float64))
    tl.store(out + 1, b.to(tl.float64))
    tl.store(out + 2, c.to(tl.float64))
    tl.store(out + 3, d.to(tl.float64))
    tl.store(out + 4, e.to(tl.float64))
    tl.store(out + 5, f.to(tl.float64))
    tl.store(out + 6, int.to(tl.float64))
    tl.store(out + 7, flag.to(tl.float64))


@tilewright.jit
def special(x, out, BLOCK: tl.constexpr):
    """Functions that others take from a library."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    v = tl.sin(v) + tl.exp(v) * tl.log(v) + tl.erf(v) + tl.sqrt(v) / tl.floor(v + 1) + v % 3.0
    half = v.to(tl.float16) * v.to(tl.bfloat16).to(tl.float16)
    tl.store(out + i, half.to(tl.float8e5).to(tl.float32) + tl.sum(v) + tl.sort(v))


@tilewright.jit
def tell(x):
    tl.device_print("x", tl.load(x))
'''

NEEDED = ("gcc", "cc", "clang")


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """The file of the kernels above."""
    path = tmp_path / "kernels_of_ahead.py"
    path.write_text(KERNELS)
    return path


def compiled(*argv: object, capsys: pytest.CaptureFixture[str]) -> list[Path]:
    """The files that `compile` reports as written."""
    assert cli.main(["compile", *map(str, argv)]) == 0, capsys.readouterr().err
    return [Path(line) for line in capsys.readouterr().out.splitlines()]


def linked(*argv: object, capsys: pytest.CaptureFixture[str]) -> list[Path]:
    """The files that `link` reports as written."""
    assert cli.main(["link", *map(str, argv)]) == 0, capsys.readouterr().err
    return [Path(line) for line in capsys.readouterr().out.splitlines()]


def symbol_of(files: Sequence[Path]) -> str:
    """The launch function that files hold: their name, with the dot that no function may have."""
    return files[0].stem.replace(".", "_")


def rejected(*argv: object, capsys: pytest.CaptureFixture[str]) -> str:
    """The error message of a command whose usage is wrong."""
    assert cli.main([*map(str, argv)]) == 2
    return capsys.readouterr().err


def c_compiler() -> str:
    """A C compiler; skips the test where there is none."""
    for name in NEEDED:
        if shutil.which(name):
            return name
    pytest.skip(f"needs a C compiler: {', '.join(NEEDED)}")


def built(folder: Path, text: str, *parts: object, flags: Sequence[str] = ()) -> Path:
    """The program of a text in C and other sources and objects, without a warning."""
    compiler = c_compiler()
    source, program = folder / "main.c", folder / "main"
    source.write_text(text)
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    inputs = [source, *parts, "-o", program]
    done = subprocess.run(
        [compiler, *strict, "-O1", f"-I{folder}", *map(str, inputs), *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return program


def output(program: Path) -> str:
    """What a program prints."""
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
