"""Sources for CUDA, in C programs with a fake driver that prints the calls it receives.

Whether the cubins run is tested on a GPU, in tests/gpu.
"""

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.ahead import programs
from tests.ahead.programs import built, compiled, linked, output, rejected, symbol_of
from tilewright.compat import search_path

kernels = programs.kernels

ROOT = Path(__file__).parents[2]
STUB = Path(__file__).with_name("stub_driver.c")

PROGRAM = """
#include <stdio.h>
#include "HEADER"
const int widths[] = {WIDTHS, 0};
extern int context_now, failing_load;
int main(void) {
  CUstream stream = (CUstream)7;
  BODY
  return 0;
}
"""


def reported(folder: Path, header: Path, widths: str, body: str, *sources: Path) -> list[str]:
    """What a program does with the driver, by lines."""
    text = PROGRAM.replace("HEADER", header.name).replace("WIDTHS", widths).replace("BODY", body)
    return output(built(folder, text, STUB, *sources)).splitlines()


def test_launch_loads_the_cubin_once_in_each_context(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = compiled(
        f"{kernels}::add", "-s", "*fp32:16, *fp32, *fp32, i32:16, 256", "-w", "8",
        "-t", "cuda:90:32", "-g", "(n + BLOCK - 1) / BLOCK", "-o", tmp_path / "add", capsys=capsys,
    )  # fmt: skip
    source, header = sorted(files)
    name = symbol_of(files)
    body = f"""
  printf("%d\\n", {name}(stream, 0x1230, 0x20, 0x30, 1008));
  printf("%d\\n", {name}(0, 0x1230, 0x20, 0x30, 0));
  context_now = 2;
  failing_load = 209;
  printf("%d\\n", load_{name}());
  failing_load = 0;
  printf("%d\\n", load_{name}());
  printf("%d\\n", {name}(stream, 0x1230, 0x28, 0x30, 16));
  printf("%d\\n", {name}(stream, 0x1238, 0x20, 0x30, 16));
  printf("%d\\n", {name}(stream, 0x1230, 0x20, 0x30, 15));
  printf("%d\\n", {name}(stream, 0x1230, 0x20, 0x30, -512));
  printf("%d\\n", unload_{name}());
  context_now = 1;
  printf("%d\\n", {name}(stream, 0x1230, 0x28, 0x30, 16));
"""
    assert reported(tmp_path, header, "8, 8, 8, 4", body, source) == [
        "load 1 in 1: 7fELF",
        "function add of 1",
        "with 6 = 1",  # it may begin before the preceding kernel has ended
        "launch 100 on 4 1 1 x 256 1 1, shared 0, stream 7: 1230 20 30 3f0",
        "0",
        "0",  # an empty grid
        "209",
        "load 2 in 2: 7fELF",
        "function add of 2",
        "0",
        "with 6 = 1",
        "launch 200 on 1 1 1 x 256 1 1, shared 0, stream 7: 1230 28 30 10",
        "0",
        *["1", "1", "1"],  # broken hints, a negative grid
        *["unload 2", "unload 1", "0"],
        "load 3 in 1: 7fELF",
        "function add of 3",
        "with 6 = 1",
        "launch 300 on 1 1 1 x 256 1 1, shared 0, stream 7: 1230 28 30 10",
        "0",
    ]


def test_shared_memory_and_launch_attributes(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = compiled(
        f"{kernels}::matmul", "-s", "*fp16:16, *fp16:16, *fp32:16, i32:16, i32:1, 128", "-t",
        "cuda:90", "-ns", "3", "--option", "launch_pdl=True", "--option",
        "launch_cooperative_grid=True", "-on", "mm", "-o", tmp_path / "mm", capsys=capsys,
    )  # fmt: skip
    source, header = sorted(files)
    name = symbol_of(files)
    body = f"""
  printf("%d\\n", {name}(stream, 3, 2, 1, 16, 32, 48, 128, 1));
  printf("%d\\n", {name}(stream, 3, 2, 1, 16, 32, 48, 128, 2));
"""
    load, function, shared, carveout, cooperative, dependent, launch, *rest = reported(
        tmp_path, header, "8, 8, 8, 4", body, source
    )
    assert (load, function) == ("load 1 in 1: 7fELF", "function matmul of 1")
    size = int(shared.removeprefix("attribute 8 of 100 is "))
    assert size > 48 << 10
    assert carveout == "attribute 9 of 100 is 100"
    assert (cooperative, dependent) == ("with 2 = 1", "with 6 = 1")
    assert launch == f"launch 100 on 3 2 1 x 128 1 1, shared {size}, stream 7: 10 20 30 80"
    assert rest == ["0", "1"]


def test_narrow_numbers_are_rounded_to_nearest_even(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = compiled(
        f"{kernels}::scalars", "-s", "*fp64, i8, u32, fp32, fp64, fp16, bf16, i64, i1",
        "-t", "cuda:80", "-g", "1", "-on", "s", "-o", tmp_path / "s", capsys=capsys,
    )  # fmt: skip
    source, header = sorted(files)
    numbers = [0.1, -0.0, 65519.0, 65520.0, 2.0**-24, 2.0**-25, 3 * 2.0**-26, 6.1e-5, 1e30]
    texts = [*map(float.hex, numbers), "(float)(1e30 * 1e30)", "-(0.0f / 0.0f)"]
    calls = [
        f"{symbol_of(files)}(stream, 0, -7, 3000000000u, 1.5f, 2.5, {x}, {x}, -1, 1);"
        for x in texts
    ]
    lines = reported(tmp_path, header, "8, 1, 4, 4, 8, 2, 2, 8, 1", "\n".join(calls), source)[2:]
    found = [line.split(":")[1].split() for line in lines]
    assert all(row[:5] == ["0", "f9", "b2d05e00", "3fc00000", "4004000000000000"] for row in found)
    assert all(row[7:] == ["ffffffffffffffff", "1"] for row in found)
    values = np.array([*numbers, np.inf, np.nan], np.float32)
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16).view(np.uint16)
        brains = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert [int(row[5], 16) for row in found][:-1] == halves.tolist()[:-1]
    assert [int(row[6], 16) for row in found][:-1] == brains.tolist()[:-1]
    assert int(found[-1][5], 16) & 0x7E00 == 0x7E00
    assert int(found[-1][6], 16) & 0x7FC0 == 0x7FC0


def test_linked_variants_are_chosen_by_their_hints(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = "(n + BLOCK - 1) / BLOCK"
    wide, plain = (
        compiled(
            f"{kernels}::add", "-s", f"*fp32{p}, *fp32, *fp32, i32{n}, 128", "-t", "cuda:90", "-g",
            grid, "-o", tmp_path / "add", capsys=capsys,
        )
        for p, n in ((":16", ":16"), (":16", ""))
    )  # fmt: skip
    sources = [p for p in (*wide, *plain) if p.suffix == ".c"]
    headers = [p for p in (*wide, *plain) if p.suffix == ".h"]
    dispatch, header = linked(*headers, "-o", tmp_path / "all", "--prefix", "my_", capsys=capsys)
    body = """
  printf("%d\\n", load_my_add());
  printf("%d\\n", my_add_default(stream, 0x10, 0, 0, 256));
  printf("%d\\n", my_add(stream, 0x10, 0, 0, 255, 0));
  printf("%d\\n", my_add_default(stream, 0x18, 0, 0, 256));
  printf("%d\\n", my_add(stream, 0x10, 0, 0, 256, 1));
  printf("%d\\n", unload_my_add());
"""
    lines = reported(tmp_path, header, "8, 8, 8, 4", body, dispatch, *sources)
    assert [line.split(":")[0] for line in lines if line.startswith(("launch", "load"))] == [
        "load 1 in 1",
        "load 2 in 1",
        "launch 100 on 2 1 1 x 128 1 1, shared 0, stream 7",
        "launch 200 on 2 1 1 x 128 1 1, shared 0, stream 7",
    ]
    assert [line for line in lines if len(line) == 1] == ["0", "0", "0", "1", "1", "0"]


def test_ptx_is_embedded_where_there_is_no_assembler(
    kernels: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("target", "compilation"):
        monkeypatch.setattr(f"tilewright.targets.nvidia.{module}.find_assembler", lambda: None)
    files = compiled(
        f"{kernels}::add", "-s", "*fp32, *fp32, *fp32, i32, 64", "-t", "cuda:80", "-g", "n",
        "-o", tmp_path / "add", capsys=capsys,
    )  # fmt: skip
    text = min(files).read_text()
    assert "/* PTX, which the driver compiles */" in text
    numbers = text.split("image[", 1)[1].split("{\n", 1)[1].split("\n}", 1)[0].split(",")
    image = bytes(map(int, numbers))
    assert b".visible .entry add(" in image
    assert image.endswith(b"\0")


WRONG = {
    "shared memory": (
        ["{k}::matmul", "-s", "*fp32:16, *fp32:16, *fp32:16, i32:16, 1, 128", "-tcuda:75", "-w8"],
        "out of resource: shared memory",
    ),
    "no kernel of that name": (["{k}::sub", "-s", "i32"], "its kernels: add, matmul"),
    "two names": (["{k}::add", "-n", "matmul", "-s", ""], "two kernels are specified"),
    "no file": (["nothing.py::add", "-s", "i32"], "no such file: nothing.py"),
    "a type": (["{k}::add", "-s", "*fp33, *fp32, *fp32, i32, 64"], "no element type 'fp33'"),
    "a hint": (["{k}::add", "-s", "*fp32:8, *fp32, *fp32, i32, 64"], "Only 1 and 16 are valid"),
    "a hint of one": (["{k}::add", "-s", "*fp32:1, *fp32, *fp32, i32, 64"], "only integers"),
    "too many": (["{k}::add", "-s", "*fp32, *fp32, *fp32, i32, 64, 1"], "has 6 parts for add(x, y"),
    "no value": (["{k}::add", "-s", "*fp32, *fp32, *fp32, i32"], "'BLOCK' has no value. Sign"),
    "no type": (["{k}::add", "-s", "*fp32, *fp32"], "the parameter 'out' has no type"),
    "a type for a value": (
        ["{k}::add", "-s", "*fp32, *fp32, *fp32, i32, i32"],
        "BLOCK of add is a compile-time parameter: give its value",
    ),
    "twice": (["{k}::add", "-s", "x=*fp32, x=*fp32"], "x is given twice"),
    "a name": (["{k}::add", "-s", "z=*fp32"], "add has no parameter 'z'; it has x, y, out, n"),
    "a grid's name": (["{k}::add", "{s}", "-g", "m / 2"], "the grid uses 'm'"),
    "a grid's pointer": (["{k}::add", "{s}", "-g", "x"], "scalar arguments: n, BLOCK"),
    "a grid's division": (["{k}::add", "{s}", "-g", "n // 2"], "in C, `/` divides whole numbers"),
    "a grid's axes": (["{k}::add", "{s}", "-g", "1, 1, 1, 1"], "one to three expressions"),
    "a grid's end": (["{k}::add", "{s}", "-g", "n;}}"], "is not a C expression"),
    "a target": (["{k}::add", "{s}", "-t", "gpu"], "there is no target 'gpu'; there are cpu, cuda"),
    "a target's form": (["{k}::add", "{s}", "-t", "cuda:90:x"], "NAME, NAME:ARCH or NAME:ARCH:LAN"),
    "an architecture": (["{k}::add", "{s}", "-t", "cuda:1"], "there is no NVIDIA architecture 1"),
    "a processor": (["{k}::add", "{s}", "-t", "cpu:8086"], "LLVM knows no processor '8086'"),
    "a target without C": (["{k}::add", "{s}", "-t", "interpreter"], "cannot be called from C"),
    "warps": (["{k}::add", "{s}", "-t", "cuda:90", "-w", "3"], "num_warps must be a power of 2"),
    "an option": (["{k}::add", "{s}", "--option", "speed=9"], "speed was specified but unrecogn"),
    "a function's name": (["{k}::add", "{s}", "-on", "a b"], "'a b' is not a name"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_usage_is_explained(
    kind: str,
    kernels: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # files that a command writes nevertheless are not the project's
    argv, text = WRONG[kind]
    words: list[str] = []
    for word in argv:
        same = word == "{s}"
        words += ["-s", "*fp32, *fp32, *fp32, i32, 64"] if same else [word.format(k=kernels)]
    assert text in rejected("compile", *words, capsys=capsys)


def test_linker_explains_incompatible_inputs(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def header(target: str, signature: str) -> Path:
        files = compiled(
            f"{kernels}::add", "-s", signature, "-t", target, "-g", "n", "-o", tmp_path / "add",
            capsys=capsys,
        )  # fmt: skip
        return next(path for path in files if path.suffix == ".h")

    def error_of(*headers: Path) -> str:
        return rejected("link", *headers, "-o", tmp_path / "all", capsys=capsys)

    single = header("cpu", "*fp32, *fp32, *fp32, i32, 64")
    double = header("cpu", "*fp64, *fp64, *fp64, i32, 64")
    device = header("cuda:90", "*fp32, *fp32, *fp32, i32, 64")
    assert "compile one of them with another --out-name" in error_of(single, double)
    assert "for cuda in" in error_of(single, device)
    assert "are the same variant of add" in error_of(single, single)
    assert "was not written by `tilewright compile`" in error_of(kernels)
    single.write_text(single.read_text().replace('"base"', '"other"'))
    assert "was written by another version" in error_of(single)


def test_triton_commands_are_equivalent(kernels: Path, tmp_path: Path) -> None:
    def run(module: str, *argv: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", f"triton.tools.{module}", *argv],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([search_path(), str(ROOT)])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    types = "*fp32:16, *fp32:16, *fp32:16, i32, 128"
    given = ["--signature", types, "--grid", "(n + 127) / 128, 1, 1", "--target", "cuda:90:32"]
    given += ["--kernel-name", "add", "--num-warps", "2", "--num-stages", "2", "--out-name", "sum"]
    files = run("compile", str(kernels), *given, "--out-path", "sum")
    assert [Path(file).suffix for file in files] == [".c", ".h"]
    assert run("link", files[1], "-o", "all") == ["all.c", "all.h"]
    assert (
        "CUresult sum_default(CUstream stream, CUdeviceptr x," in (tmp_path / "all.h").read_text()
    )
