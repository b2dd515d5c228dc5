"""The emulator reports what code must not do, and computes as the hardware's manual states."""

from __future__ import annotations

import struct
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.amd_emulator import floats, integers
from tests.amd_emulator.decode import UnknownInstruction
from tests.amd_emulator.elf import read_kernels
from tests.amd_emulator.launch import launch
from tests.amd_emulator.machine import Machine
from tests.amd_emulator.state import Array, EmulatorError
from tests.targets.amd.sources import add, compiled, total

TYPES = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}
ARCHES = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200"]
S_NOP = 0xBF800000


@cache
def add_code(arch: str) -> bytes:
    code = compiled(add, TYPES, arch, BLOCK=256).asm["hsaco"]
    assert isinstance(code, bytes)
    return code


def run_add(arch: str, hsaco: bytes, claimed: int = 1000) -> Array:
    """x + y of 1000 elements, of which the kernel is given another number."""
    machine = Machine(arch)
    x, y = np.arange(1000, dtype=np.float32), np.float32(0.5) + np.zeros(1000, np.float32)
    places = [machine.memory.place(a) for a in (x, y, np.zeros_like(x))]
    arguments = struct.pack("<QQQi", *places, claimed)
    machine.launch(hsaco, (4, 1, 1), arguments, machine.lanes)
    assert np.array_equal(machine.memory.content(places[0]).view(np.float32), x)
    return machine.memory.content(places[2]).view(np.float32)


def without(hsaco: bytes, arch: str, prefix: str) -> bytes:
    """The code object with instructions of these names replaced by s_nop."""
    (kernel,) = read_kernels(hsaco).values()
    start, decoder, at = hsaco.index(kernel.code), Machine(arch).decoder, kernel.entry
    data, names = bytearray(hsaco), list[str]()
    while not names or names[-1] != "s_endpgm":
        made = decoder.decode(kernel.code, at)
        names.append(made.name)
        if made.name.startswith(prefix):
            struct.pack_into("<I", data, start + at, S_NOP)
        at = made.end
    assert any(name.startswith(prefix) for name in names)
    return bytes(data)


@pytest.mark.parametrize("arch", ARCHES)
def test_kernel_runs(arch: str) -> None:
    assert np.array_equal(run_add(arch, add_code(arch)), np.arange(1000) + 0.5)


@pytest.mark.parametrize("arch", ARCHES)
def test_access_out_of_bounds_is_an_error(arch: str) -> None:
    with pytest.raises(EmulatorError, match=r"access of \d+ bytes at .* out of bounds(.|\n)*_load"):
        run_add(arch, add_code(arch), claimed=1001)


@pytest.mark.parametrize("arch", ARCHES)
def test_missing_wait_is_an_error(arch: str) -> None:
    code = without(add_code(arch), arch, "s_wait")
    with pytest.raises(EmulatorError, match="used before the load into it is waited for"):
        run_add(arch, code)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_lds_without_wait_at_a_barrier_is_an_error(arch: str) -> None:
    kernel = compiled(total, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, arch, warps=4, BLOCK=1024)
    code = kernel.asm["hsaco"]
    assert isinstance(code, bytes)
    machine = Machine(arch)
    x = np.arange(1024, dtype=np.float32)
    places = [machine.memory.place(a) for a in (x, np.zeros(1, np.float32))]
    arguments, threads = struct.pack("<QQ", *places), 4 * machine.lanes
    machine.launch(code, (1, 1, 1), arguments, threads)
    assert machine.memory.content(places[1]).view(np.float32) == x.sum()
    # Only the waits for what the scalar unit and memory load stay.
    (found,) = read_kernels(code).values()
    assert found.lds_bytes > 0
    start, at, data = code.index(found.code), found.entry, bytearray(code)
    stores = False
    while True:
        made = machine.decoder.decode(found.code, at)
        stores = stores or made.base.startswith("ds_write")
        if stores and made.name == "s_waitcnt":
            struct.pack_into("<I", data, start + at, S_NOP)
        if made.name == "s_barrier":
            break
        at = made.end
    with pytest.raises(EmulatorError, match="without a wait before the barrier"):
        machine.launch(bytes(data), (1, 1, 1), arguments, threads)


def test_unknown_instruction_is_named_with_its_bytes() -> None:
    code = add_code("gfx942")
    (kernel,) = read_kernels(code).values()
    data = bytearray(code)
    struct.pack_into("<I", data, code.index(kernel.code) + kernel.entry, 0xBFFF1234)
    with pytest.raises(UnknownInstruction, match=r"gfx942.* at 0x0 \(SOPP opcode 127\): bfff1234"):
        run_add("gfx942", bytes(data))


def specials(form: type) -> Array:
    info = np.finfo(form)
    values = [0, -0.0, 1, -1, 1.5, info.max, info.tiny, info.tiny / 4, np.inf, -np.inf, np.nan]
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        wild = rng.standard_normal(300) * np.exp2(rng.integers(-40, 40, 300))
        return np.concatenate([np.array(values), wild]).astype(form)


@pytest.mark.parametrize("form", [np.float16, np.float32])
def test_fma_rounds_once(form: type) -> None:
    rng = np.random.default_rng(5)
    a, b, c = (rng.permutation(np.tile(specials(form), 4)) for _ in range(3))
    with np.errstate(all="ignore"):
        found = floats.fma(a, b, c)
        for x, y, z, r in zip(a, b, c, found, strict=True):
            if not all(np.isfinite(v) for v in (x, y, z)):
                continue
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            if not np.isfinite(r):
                assert abs(exact) >= Fraction(float(np.finfo(form).max))
                continue
            error = abs(Fraction(float(r)) - exact)
            for side in (np.inf, -np.inf):
                other = np.nextafter(r, form(side))
                if np.isfinite(other):
                    assert error <= abs(Fraction(float(other)) - exact), (x, y, z, r)


def test_extrema_prefer_numbers_and_order_zeros() -> None:
    zero, nan = np.zeros(1, np.float32), np.full(1, np.nan, np.float32)
    one = np.ones(1, np.float32)
    assert floats.maximum_number(nan, one) == 1
    assert floats.minimum_number(one, nan) == 1
    assert np.isnan(floats.maximum(nan, one))
    assert not np.signbit(floats.maximum_number(zero, -zero))
    assert np.signbit(floats.minimum_number(zero, -zero))
    signalling = np.array([0x7F800001], np.uint32).view(np.float32)
    assert floats.bits(floats.maximum_number(signalling, one)) == 0x7FC00001


def test_conversions_quiet_signalling_nan() -> None:
    """So that an extremum of the result and a number is the number."""
    signalling = np.array([0x7C01, 0xFD00], np.uint16).view(np.float16)
    found = floats.float_operations()["v_cvt_f32_f16"](signalling)
    assert np.isnan(found).all()
    assert not floats.is_signalling(found).any()


def test_conversion_to_bf16_rounds_to_nearest_even() -> None:
    x = specials(np.float32)
    found = floats.to_bf16(x).astype(np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(found, expected, equal_nan=True)


def test_bits_are_counted_and_permuted() -> None:
    a = np.array([0, 1, 0x80000000, 0x00F0F000, 0xFFFFFFFF], np.uint32)
    for i, x in enumerate(map(int, a)):
        text = f"{x:032b}"
        assert integers.reversed_bits(a)[i] == int(text[::-1], 2)
        assert integers.leading_zeros(a)[i] == (text.index("1") if x else -1)
        assert integers.trailing_zeros(a)[i] == (text[::-1].index("1") if x else -1)
    low, high = np.array([0x33221100], np.uint32), np.array([0x77665544], np.uint32)
    assert integers.permute_bytes(high, low, np.array([0x0C070400], np.uint32)) == 0x00774400


@tw.jit
def product_plus_one(x_ptr, out_ptr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.dot(x, x) + 1)


def test_a_constant_of_64_bits_is_added_to_a_product() -> None:
    """The accumulator of the matrix instruction is the constant, all of whose bits count."""
    types = {"x_ptr": "*fp64", "out_ptr": "*fp64"}
    code = compiled(product_plus_one, types, "gfx942", warps=1).asm["hsaco"]
    assert isinstance(code, bytes)
    x = np.arange(256, dtype=np.float64).reshape(16, 16) % 7
    _, found = launch(code, "gfx942", 1, (1,), [x, np.zeros_like(x)])
    assert np.array_equal(found, x @ x + 1)


@tw.jit
def larger_half(out_ptr, a, b):
    x, y = a.to(tl.float16), b.to(tl.float16)
    tl.store(out_ptr, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 1, tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL))


def test_extrema_of_halves_in_scalar_registers() -> None:
    types = {"out_ptr": "*fp16", "a": "fp32", "b": "fp32"}
    kernel = compiled(larger_half, types, "gfx1200")
    assert "s_maximum_f16" in str(kernel.asm["amdgcn"])
    code = kernel.asm["hsaco"]
    assert isinstance(code, bytes)
    (found,) = launch(code, "gfx1200", 1, (1,), [np.zeros(2, np.float16), 1.5, -2.0])
    np.testing.assert_array_equal(found, [1.5, -2.0])
    (found,) = launch(code, "gfx1200", 1, (1,), [np.zeros(2, np.float16), 1.5, float("nan")])
    assert np.isnan(found).all()
