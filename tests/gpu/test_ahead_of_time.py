"""Kernels compiled ahead of time, run on a GPU by programs in C without Python.

Needs a C compiler; where there is none, the tests say so and skip. What the sources call of the
driver is tested without a GPU, in tests/ahead.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

from tests.ahead import programs
from tests.ahead.programs import built, compiled, linked, output, symbol_of

kernels = programs.kernels

START = """
#include <stdio.h>
#include <stdlib.h>
#include "HEADER"
#if !defined(CUDA_VERSION)
CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(void **context, int device);
CUresult cuCtxSetCurrent(void *context);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size);
#define cuMemAlloc cuMemAlloc_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#endif

static void must(int line, CUresult status) {
  if (status != CUDA_SUCCESS) {
    printf("line %d: error %d\\n", line, (int)status);
    exit(1);
  }
}
#define MUST(call) must(__LINE__, call)

static CUdeviceptr room(size_t size, const void *content) {
  CUdeviceptr pointer;
  MUST(cuMemAlloc(&pointer, size));
  if (content) MUST(cuMemcpyHtoD(pointer, content, size));
  return pointer;
}

static void begin(void) {
  void *context;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain((void *)&context, 0));
  MUST(cuCtxSetCurrent(context));
}
"""

ADD = """
int main(void) {
  int n = 100000, wrong = 0;
  float *x = malloc(4 * n), *y = malloc(4 * n), *out = malloc(4 * n);
  for (int i = 0; i < n; i++) x[i] = i, y[i] = 2 * i;
  begin();
  CUdeviceptr dx = room(4 * n, x), dy = room(4 * n, y), d = room(4 * n, 0);
  MUST(load_add());
  for (int shift = 0; shift < 2; shift++) {
    int count = n - 16 - shift;
    MUST(add_default(0, dx + 4 * shift, dy + 4 * shift, d + 4 * shift, count));
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH(out, d, 4 * n));
    for (int i = shift; i < count + shift; i++) wrong += out[i] != 3.0f * i;
  }
  MUST(unload_add());
  printf("%d\\n", wrong);
  return 0;
}
"""

MATMUL = """
int main(void) {
  int n = 512, wrong = 0;
  unsigned short *a = malloc(2 * n * n), *b = malloc(2 * n * n);
  float *c = malloc(4 * n * n);
  for (int i = 0; i < n * n; i++) a[i] = i % 3 ? 0x3C00 : 0xC000, b[i] = i % 5 ? 0x3800 : 0;
  begin();
  CUdeviceptr da = room(2 * n * n, a), db = room(2 * n * n, b), dc = room(4 * n * n, 0);
  MUST(SYMBOL(0, da, db, dc, n, 1));
  MUST(cuMemcpyDtoH(c, dc, 4 * n * n));
  for (int i = 0; i < n; i += 17)
    for (int j = 0; j < n; j += 13) {
      float sum = 0;
      for (int k = 0; k < n; k++)
        sum += ((i * n + k) % 3 ? 1 : -2) * ((k * n + j) % 5 ? 0.5f : 0);
      wrong += sum != c[i * n + j];
    }
  printf("%d\\n", wrong);
  return 0;
}
"""

SCALARS = """
int main(void) {
  double out[8];
  begin();
  CUdeviceptr d = room(sizeof out, 0);
  MUST(SYMBOL(0, 1, 1, 1, d, -7, 3000000000u, 1.5f, 2.5, 0.1f, 0.1f, 1L << 40, 1));
  MUST(cuMemcpyDtoH(out, d, sizeof out));
  for (int i = 0; i < 8; i++) printf("%.9g ", out[i]);
  printf("\\n");
  return 0;
}
"""


def target() -> str:
    """What to compile for, to run on the first GPU."""
    major, minor = torch.cuda.get_device_capability(0)
    return f"cuda:{major}{minor}"


def ran(folder: Path, text: str, header: Path, sources: list[Path]) -> str:
    """What a program prints that is linked with the driver's library."""
    program = built(
        folder, START.replace("HEADER", header.name) + text, *sources, *driver_library()
    )
    return output(program)


def driver_library() -> list[str]:
    """The linker's options for the driver's library, which need not be on its search path."""
    found = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    lines = [line.split("=>")[1].strip() for line in found.splitlines() if "libcuda.so.1 " in line]
    return [f"-L{os.path.dirname(lines[0])}"] * bool(lines) + ["-l:libcuda.so.1"]


@pytest.mark.gpu
def test_linked_variants_add(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.c_compiler()
    files = [
        path
        for pointer, n in (("*fp32:16", "i32:16"), ("*fp32", "i32"))
        for path in compiled(
            f"{kernels}::add", "-s", f"{pointer}, {pointer}, {pointer}, {n}, 1024", "-t", target(),
            "-g", "(n + BLOCK - 1) / BLOCK", "-o", tmp_path / "add", capsys=capsys,
        )
    ]  # fmt: skip
    headers = [path for path in files if path.suffix == ".h"]
    dispatch, header = linked(*headers, "-o", tmp_path / "add", capsys=capsys)
    sources = [path for path in files if path.suffix == ".c"]
    assert ran(tmp_path, ADD, header, [dispatch, *sources]) == "0\n"


@pytest.mark.gpu
def test_product_with_much_shared_memory(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.c_compiler()
    source, header = files = compiled(
        f"{kernels}::matmul", "-s", "*fp16:16, *fp16:16, *fp32:16, i32:16, i32:1, 128",
        "-t", target(), "-g", "n / B, n / B", "-w", "8", "-ns", "3", "-on", "mm",
        "-o", tmp_path / "mm", capsys=capsys,
    )  # fmt: skip
    text = MATMUL.replace("SYMBOL", symbol_of(files))
    assert ran(tmp_path, text, header, [source]) == "0\n"


@pytest.mark.gpu
def test_numbers_of_every_type_arrive(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.c_compiler()
    source, header = files = compiled(
        f"{kernels}::scalars", "-s", "*fp64, i8, u32, fp32, fp64, fp16, bf16, i64, i1",
        "-t", target(), "-on", "s", "-o", tmp_path / "s", capsys=capsys,
    )  # fmt: skip
    text = SCALARS.replace("SYMBOL", symbol_of(files))
    expected = "-7 3e+09 1.5 2.5 0.0999755859 0.100097656 1.09951163e+12 1 \n"
    assert ran(tmp_path, text, header, [source]) == expected
