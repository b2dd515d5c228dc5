"""Variants for integers that are divisible by 8, but not by 16: only where an access is wider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.wrappers import MockTensor
from tilewright.targets.protocol import GPUTarget

HALVES, WORDS = MockTensor(tl.float16), MockTensor(tl.float32)


class Shape(NamedTuple):
    rows: int
    columns: int


class ForHopper(JITFunction):
    """A kernel that is compiled as on a machine with a GPU."""

    def device_of(self, devices: str, values: tuple[Any, ...], more: Sequence[str] = ()) -> str:
        return "cuda:0"

    def target_of(self, device: str) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


class ForBlackwell(ForHopper):
    def target_of(self, device: str) -> GPUTarget:
        return GPUTarget("cuda", 100, 32)


class ForCdna(ForHopper):
    def target_of(self, device: str) -> GPUTarget:
        return GPUTarget("hip", "gfx942", 64)


class Tensor(MockTensor):
    """A tensor of fp32 at an address, in memory of some size."""

    def __init__(self, address: int, size: int = 1 << 20) -> None:
        super().__init__(tl.float32)
        self.address, self.size = address, size

    def data_ptr(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.address

    def nbytes(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.size


def rows(x, y, rows, columns, pitch, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * pitch + i, mask=(i < columns) & (row < rows))
    tl.store(y + row * pitch + i, value, mask=i < columns)


def of_a_tuple(x, y, shape, pitch, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if tl.program_id(0) < shape.rows:
        offsets = tl.program_id(0) * pitch + i
        tl.store(y + offsets, tl.load(x + offsets, mask=i < shape.columns), mask=i < shape.columns)


def stored(x, n):
    tl.store(x, n)


def divisors(kernel: JITFunction) -> list[dict[str, int]]:
    """For each variant that was compiled, the known divisibility of its integers, by name."""
    found: list[dict[str, int]] = []
    for compiled in kernel.device_caches["cuda:0"].kernel_cache.values():
        source = compiled.src
        found.append(
            {
                ".".join([kernel.arg_names[path[0]], *map(str, path[1:])]): value
                for path, facts in source.attrs.items()
                for fact, value in facts
                if fact == "tt.divisibility" and kernel.arg_names[path[0]] not in "xy"
            }
        )
    return found


def vectors(compiled: Any) -> tuple[int, int]:
    """Loads, and loads of 16 bytes."""
    text = compiled.asm["ptx"]
    return text.count("ld.global"), text.count("ld.global.v4.b32")


def test_rows_of_1000_halves_are_loaded_in_vectors() -> None:
    kernel = ForHopper(rows)
    compiled = kernel.warmup(HALVES, HALVES, 7, 1000, 1000, BLOCK=1024, grid=(7,))
    count, wide = vectors(compiled)
    assert count == wide > 0
    assert divisors(kernel) == [{"columns": 8, "pitch": 8}]
    other = kernel.warmup(HALVES, HALVES, 7, 1001, 1001, BLOCK=1024, grid=(7,))
    assert vectors(other)[1] == 0
    assert divisors(kernel)[1] == {}


def test_numbers_that_do_not_limit_accesses_have_no_variants() -> None:
    kernel = ForHopper(rows)
    for number in (8, 24, 1000, 7, 9):
        kernel.warmup(HALVES, HALVES, number, 1000, 1000, BLOCK=1024, grid=(7,))
    assert divisors(kernel) == [{"columns": 8, "pitch": 8}]
    kernel.warmup(HALVES, HALVES, 16, 1000, 1000, BLOCK=1024, grid=(7,))
    assert divisors(kernel)[1] == {"rows": 16, "columns": 8, "pitch": 8}


def test_one_limit_that_remains_keeps_the_variant_without() -> None:
    kernel = ForHopper(rows)
    for pitch in (1000, 1002):
        kernel.warmup(HALVES, HALVES, 7, 1001, pitch, BLOCK=1024, grid=(7,))
    assert divisors(kernel) == [{}]  # the mask varies within every vector


@pytest.mark.parametrize("numbers", [(2, 4, 8, 24)])
def test_numbers_that_are_data(numbers: tuple[int, ...]) -> None:
    kernel = ForHopper(stored)
    for number in (1, *numbers, 16, 32):
        kernel.warmup(WORDS, number, grid=(1,))
    assert len(kernel.device_caches["cuda:0"].kernel_cache) == 3  # 1, any, and multiples of 16


def test_fields_of_tuples() -> None:
    kernel = ForHopper(of_a_tuple)
    kernel.warmup(HALVES, HALVES, Shape(7, 1000), 1000, BLOCK=1024, grid=(7,))
    assert divisors(kernel) == [{"shape.1": 8, "pitch": 8}]
    kernel.warmup(HALVES, HALVES, Shape(7, 1001), 1000, BLOCK=1024, grid=(7,))
    assert divisors(kernel)[1:] == [{}]


def test_compile_time_values_that_look_like_the_fact() -> None:
    def compared(x, n, KIND: tl.constexpr):
        tl.store(x, n if KIND == "8" else 0)

    kernel = ForHopper(compared)
    for kind in ("8", "", "D"):
        kernel.warmup(WORDS, 24, KIND=kind, grid=(1,))
    assert len(kernel.device_caches["cuda:0"].kernel_cache) == 3


def test_cpu_kernels_have_no_such_variants() -> None:
    kernel = tilewright.jit(rows)
    x = np.arange(3000, dtype=np.float32).reshape(3, 1000)
    for columns in (1000, 999, 24):
        y = np.zeros_like(x)
        kernel[(3,)](x, y, 3, columns, 1000, BLOCK=1024)
        np.testing.assert_array_equal(y[:, :columns], x[:, :columns])
        assert not y[:, columns:].any()
    assert len(kernel.device_caches["cpu"].kernel_cache) == 1


def test_the_answer_is_kept_between_processes(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    ForHopper(rows).warmup(HALVES, HALVES, 7, 1000, 1000, BLOCK=1024, grid=(7,))
    monkeypatch.setattr("tilewright.compiler.alignment._that_widen", None)
    again = ForHopper(rows)
    again.warmup(HALVES, HALVES, 7, 1000, 1000, BLOCK=1024, grid=(7,))
    assert divisors(again) == [{"columns": 8, "pitch": 8}]


# -- addresses ------------------------------------------------------------------------------------


def facts_of_arrays(kernel: JITFunction) -> list[dict[str, dict[str, int]]]:
    """For each variant that was compiled, what it knows of its arrays."""
    return [
        {
            kernel.arg_names[path[0]]: {k: v for k, v in facts if k != "tw.alias"}
            for path, facts in compiled.src.attrs.items()
            if kernel.arg_names[path[0]] in "xy"
        }
        for compiled in kernel.device_caches["cuda:0"].kernel_cache.values()
    ]


def moved(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))


def first_of(x, y):
    tl.store(y, tl.load(x))


WIDE, HALF = {"tt.divisibility": 32}, {"tt.divisibility": 16}


def test_addresses_divisible_by_32_where_accesses_get_wider() -> None:
    kernel = ForBlackwell(moved)
    aligned, other = Tensor(64), Tensor(48)
    for x, y in ((aligned, aligned), (aligned, other), (other, other)):
        kernel.warmup(x, y, BLOCK=1024, grid=(1,))
    known = [{"x": WIDE, "y": WIDE}, {"x": WIDE, "y": HALF}, {"x": HALF, "y": HALF}]
    assert facts_of_arrays(kernel) == known
    texts = [k.asm["ptx"] for k in kernel.device_caches["cuda:0"].kernel_cache.values()]
    assert [text.count(".v4.b64") for text in texts] == [2, 1, 0]


@pytest.mark.parametrize("cls", [ForHopper, ForBlackwell])
def test_addresses_where_it_does_not_matter(cls: type[JITFunction]) -> None:
    kernel = cls(first_of)
    for x in (Tensor(64), Tensor(48), Tensor(64, 1 << 40)):
        kernel.warmup(x, x, grid=(1,))
    assert facts_of_arrays(kernel) == [{"x": HALF, "y": HALF}]


def test_sizes_of_memory_for_gpus_with_buffers() -> None:
    """As in Triton: the memory of an argument has less than 2 GiB."""

    def masked(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)

    kernel = ForCdna(masked)
    small, large = Tensor(64, (1 << 31) - 1), Tensor(64, 1 << 31)
    for x in (small, large, Tensor(48)):
        kernel.warmup(x, x, 1000, BLOCK=1024, grid=(1,))
    near = HALF | {"tt.pointer_range": 32}
    assert facts_of_arrays(kernel) == [{"x": near, "y": near}, {"x": HALF, "y": HALF}]
    texts = [k.asm["amdgcn"] for k in kernel.device_caches["cuda:0"].kernel_cache.values()]
    assert ["buffer_load" in text for text in texts] == [True, False]


def test_bound_source_is_that_of_the_launch() -> None:
    for cls, known in ((ForHopper, HALF), (ForCdna, HALF | {"tt.pointer_range": 32})):
        kernel = cls(first_of)
        x = Tensor(64)
        x.device = "cuda:0"
        source, _, _ = kernel.bound(x, x)
        compiled = kernel.warmup(x, x, grid=(1,))
        assert source.attrs == compiled.src.attrs
        assert dict(source.attrs[0,])["tt.divisibility"] == known["tt.divisibility"]
