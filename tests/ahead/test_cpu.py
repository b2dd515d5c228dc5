"""Objects for the CPU, called from C programs that link only them and libm."""

import re
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.ahead import programs
from tests.ahead.programs import built, compiled, linked, output, rejected, symbol_of

kernels = programs.kernels

LIBRARIES = ("-lm", "-Wl,--fatal-warnings")

ADD = """
#include <stdio.h>
#include <stdlib.h>
#include "HEADER"

/* Workers that take pairs of programs, the last first, and count them. */
typedef struct { tilewright_workers base; int calls; } counting;

static void pairs(const tilewright_workers *workers, int64_t count, tilewright_range range,
                  void *job) {
  for (int64_t i = count; i > 0; i -= 2) {
    range(job, i < 2 ? 0 : i - 2, i);
    ((counting *)workers)->calls++;
  }
}

int main(void) {
  int n = 5000;
  float *x = malloc(4 * n + 64), *y = malloc(4 * n + 64), *out = malloc(4 * n + 64);
  for (int shift = 0; shift < 2; shift++)
    for (int shared = 0; shared < 2; shared++) {
      counting workers = {{pairs}, 0};
      int wrong = 0;
      for (int i = 0; i < n + 2; i++) x[i] = i, y[i] = 2 * i, out[i] = -1;
      int status = CALL(shared ? &workers.base : NULL, x + shift, y + shift, out + shift, n);
      for (int i = 0; i < n; i++) wrong += out[i + shift] != 3.0f * (i + shift);
      wrong += out[n + shift] != -1;
      printf("%d %d %d\\n", status, status ? 0 : wrong, workers.calls);
    }
  printf("%d %d\\n", CALL(NULL, x, y, out, 0), CALL(NULL, x, y, out, -5000));
}
"""


def test_variant_runs_alone_and_on_workers_and_rejects_broken_hints(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signature = "*fp32:16, *fp32:16, *fp32:16, i32, 256"
    grid = "(n + BLOCK - 1) / BLOCK"
    files = compiled(
        f"{kernels}::add", "-s", signature, "-g", grid, "-t", "cpu", "-o", tmp_path / "add",
        capsys=capsys,
    )  # fmt: skip
    header, code = sorted(files)
    assert (header.suffix, code.suffix) == (".h", ".o")
    text = ADD.replace("HEADER", header.name).replace("CALL", symbol_of(files))
    lines = output(built(tmp_path, text, code, flags=LIBRARIES)).splitlines()
    # 20 programs are 10 pairs; arrays off by four bytes are no multiples of 16.
    assert lines == ["0 0 0", "0 0 10", "3 0 0", "3 0 0", "0 2"]


def test_linked_variants_are_chosen_by_their_hints(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = "(n + BLOCK - 1) / BLOCK, 1, 1"
    for pointer, block in (("*fp32:16", 256), ("*fp32", 256), ("*fp32", 64)):
        signature = f"{pointer}, {pointer}, {pointer}, i32, {block}"
        compiled(
            kernels, "-n", "add", "-s", signature, "-g", grid, "-t", "cpu", "-on", "sum",
            "-o", tmp_path / "add", capsys=capsys,
        )  # fmt: skip
    headers = sorted(tmp_path.glob("add.*.h"), key=lambda p: "BLOCK=64" in p.read_text())
    source, header = linked(*headers, "-o", tmp_path / "add", capsys=capsys)
    text = ADD.replace("HEADER", header.name).replace("CALL", "sum_default")
    text = text.replace(
        "int main(void) {", 'int main(void) {\n  printf("%d\\n", sum_get_num_algos());'
    )
    parts = [source, *tmp_path.glob("*.o")]
    lines = output(built(tmp_path, text, *parts, flags=LIBRARIES)).splitlines()
    assert lines == ["2", "0 0 0", "0 0 10", "0 0 0", "0 0 10", "0 2"]
    # Once more, as a build that names all headers of the folder does.
    before = source.read_bytes(), header.read_bytes()
    linked(*headers, header, "-o", tmp_path / "add", capsys=capsys)
    assert (source.read_bytes(), header.read_bytes()) == before
    text = (
        ADD.replace("HEADER", header.name)
        .replace("CALL(", "sum(")
        .replace(", n);", ", n, 1);")
        .replace(", 0)", ", 0, 1)")
        .replace("-5000)", "-5000, 7)")
    )
    lines = output(built(tmp_path, text, *parts, flags=LIBRARIES)).splitlines()
    assert lines == ["0 0 0", "0 0 40", "0 0 0", "0 0 40", "0 3"]


SCALARS = """
#include <stdio.h>
#include "HEADER"
int main(void) {
  double out[8];
  printf("%d", SYMBOL(NULL, 1, 1, 1, out, -7, 3000000000u, 1.1f, 2.5, 0.1f, 0.1f, 1L << 40, 1));
  for (int i = 0; i < 8; i++) printf(" %.17g", out[i]);
  printf("\\n%d %d %d", SYMBOL(NULL, 1, 1, -1, out, 0, 0, 0, 0, 0, 0, 0, 0),
         SYMBOL(NULL, 1L << 31, 1, 1, out, 0, 0, 0, 0, 0, 0, 0, 0),
         SYMBOL(NULL, 2147483647, 2147483647, 2147483647, out, 0, 0, 0, 0, 0, 0, 0, 0));
}
"""


def test_numbers_of_every_type_arrive(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = compiled(
        f"{kernels}::scalars", "-s", "*fp64, i8, u32, fp32, fp64, fp16, bf16, i64, i1", "-t", "cpu",
        "-o", tmp_path / "s", "-on", "s", capsys=capsys,
    )  # fmt: skip
    header, code = sorted(files)
    assert "int64_t int_," in header.read_text()
    text = SCALARS.replace("HEADER", header.name).replace("SYMBOL", symbol_of(files))
    first, second = output(built(tmp_path, text, code, flags=LIBRARIES)).splitlines()
    status, *numbers = map(float, first.split())
    tenth = np.float32(0.1)
    expected = [
        -7,
        3e9,
        np.float32(1.1),
        2.5,
        np.float16(tenth),
        ml_dtypes.bfloat16(tenth),
        2**40,
        1,
    ]
    assert status == 0
    assert numbers == [float(v) for v in expected]
    assert second == "2 2 2"


MATMUL = """
#include <stdio.h>
#include <stdlib.h>
#include "HEADER"
int main(void) {
  int n = 256, wrong = 0;
  float *a = malloc(4 * n * n), *b = malloc(4 * n * n), *c = malloc(4 * n * n);
  for (int i = 0; i < n * n; i++) a[i] = i % 7 - 3, b[i] = i % 5 - 2;
  int status = SYMBOL(NULL, a, b, c, n, 1);
  for (int i = 0; i < n; i += 17)
    for (int j = 0; j < n; j += 13) {
      float sum = 0;
      for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
      wrong += sum != c[i * n + j];
    }
  printf("%d %d %d\\n", status, wrong, SYMBOL(NULL, a, b, c, n, 2));
}
"""


def test_workspace_and_overlapping_arguments(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = compiled(
        f"{kernels}::matmul", "-s", "*fp32, *fp32, *fp32, i32, i32:1, 64", "-t", "cpu:x86-64-v2",
        "-g", "n / B, n / B", "-o", tmp_path / "mm", "--disjoint", "-on", "mm", capsys=capsys,
    )  # fmt: skip
    header, code = sorted(files)
    text = MATMUL.replace("HEADER", header.name).replace("SYMBOL", symbol_of(files))
    assert output(built(tmp_path, text, code, flags=LIBRARIES)) == "0 0 3\n"


ALLOWED = {"malloc", "free", "memcpy", "memset", "memmove", "fmodf", "floorf"}


@pytest.mark.parametrize("arch", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_object_depends_on_the_c_library_only(
    arch: str, kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also on processors without instructions for fp16: none of a compiler's own libraries."""
    files = compiled(
        f"{kernels}::special", "-s", "*fp32:16, *fp32:16, 1024", "-t", f"cpu:{arch}",
        "-o", tmp_path / "f", capsys=capsys,
    )  # fmt: skip
    code = next(path for path in files if path.suffix == ".o")
    programs.c_compiler()
    listed = subprocess.run(["nm", code], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r" U (\S+)", listed)) <= ALLOWED
    assert re.findall(r" [A-TV-Z] (\S+)", listed) == [code.stem.replace("f.", "special_", 1)]
    wide = subprocess.run(
        ["objdump", "-d", code], capture_output=True, text=True, check=True
    ).stdout
    assert ("zmm" in wide) == (arch == "x86-64-v4")
    assert ("ymm" in wide) == (arch == "x86-64-v3") or arch == "x86-64-v4"


def test_output_is_deterministic(
    kernels: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEWRIGHT_ALWAYS_COMPILE", "1")
    found: list[list[bytes]] = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        copy = tmp_path / folder / kernels.name
        copy.write_text(kernels.read_text())
        files = [
            path
            for target in ("cpu", "cuda:90")
            for path in compiled(
                f"{copy}::add", "-s", "*fp32:16, *fp32:16, *fp32:16, i32, 256", "-t", target,
                "-g", "n", "-o", tmp_path / folder / "out" / "add", capsys=capsys,
            )
        ]  # fmt: skip
        assert len(files) == 4
        found.append([path.read_bytes() for path in files])
    assert found[0] == found[1]


def test_kernel_that_prints_is_rejected(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = rejected("compile", f"{kernels}::tell", "-s", "*fp32", "-t", "cpu", capsys=capsys)
    assert "tell prints or asserts, which on the CPU is done by Python" in message
