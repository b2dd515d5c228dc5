"""AVX-512 instructions for which LLVM has no generic operation.

See the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: VSCALEF, VRANGE,
VCVTNEPS2BF16, VFPCLASS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.lowering.convert import round_to_bf16
from tilewright.lowering.emit import (
    BF16,
    I1,
    I8,
    I16,
    I32,
    Builder,
    LType,
    V,
    const,
    like,
    poison,
    vector,
    zero,
)
from tilewright.lowering.math_common import if_any
from tilewright.targets.cpu.machine import Machine

_LEAST, _MOST = 128, 512  # bits of a register
_CURRENT = 4  # rounding mode: that of MXCSR, which is to nearest
_LARGER, _SMALLER = 0b0101, 0b0100  # operations of VRANGE that keep the sign of the result
_SUBNORMAL = 1 << 5  # category of VFPCLASS


def has_scale(machine: Machine) -> bool:
    return {"avx512f", "avx512vl"} <= machine.features


def scale(b: Builder, x: V, y: V) -> V:
    """x * 2**floor(y), rounded once; see `Builder.own_scale`."""
    return _by_registers(b, [x, y], lambda *args: _masked(b, "scalef", args, []))


def has_extremum(machine: Machine) -> bool:
    return {"avx512dq", "avx512vl"} <= machine.features


def extremum(b: Builder, x: V, y: V, *, largest: bool) -> V:
    """The maximum or minimum of two floats, with -0.0 < 0.0.

    If one operand is a quiet NaN, the result is the other; if one is a signalling NaN, the result
    is that NaN, quieted.
    """
    which = [const(I32, _LARGER if largest else _SMALLER)]
    return _by_registers(b, [x, y], lambda *args: _masked(b, "range", args, which))


def converts_bf16(machine: Machine) -> bool:
    return {"avx512bf16", "avx512dq", "avx512vl"} <= machine.features


def cast_bf16(b: Builder, x: V, source: str, to: str) -> V | None:
    """fp32 to bf16, for `Builder.own_cast`. The instruction flushes subnormals to zero, so vectors
    that contain any take the common conversion, by a branch."""
    if (source, to) != ("fp32", "bf16") or not x.type.lanes:
        return None
    fast = _by_registers(b, [x], lambda v: _rounded_to_bf16(b, v))
    tiny = _by_registers(b, [x], lambda v: _is_subnormal(b, v))
    return if_any(b, tiny, [fast], lambda: [round_to_bf16(b, x)])[0]


def _rounded_to_bf16(b: Builder, x: V) -> V:
    """By the intrinsic: of `fptrunc`, LLVM 22 folds a register of constants, such as the lanes that
    a constant mask leaves out, to constants of bfloat, and then fails an assertion."""
    lanes = x.type.lanes
    if lanes * x.type.bits < 256:
        wide = _rounded_to_bf16(b, _padded(b, x, 256 // x.type.bits))
        return b.shuffle(wide, None, list(range(lanes)))
    name = f"llvm.x86.avx512bf16.cvtneps2bf16.{lanes * x.type.bits}"
    return b.bitcast(b.intrinsic(name, like(BF16, x.type), [x]), like(I16, x.type))


def _is_subnormal(b: Builder, x: V) -> V:
    name = f"llvm.x86.avx512.fpclass.ps.{x.type.lanes * x.type.bits}"
    return b.intrinsic(name, like(I1, x.type), [x, const(I32, _SUBNORMAL)])


def _by_registers(b: Builder, args: Sequence[V], make: Callable[..., V]) -> V:
    """Apply `make`, which requires full registers, to vectors with any number of lanes.

    Narrower vectors are padded, wider ones split into halves.
    """
    type = args[0].type
    lanes = max(1, type.lanes)
    full = max(_LEAST // type.bits, 1 << (lanes - 1).bit_length())
    if full != lanes:
        wide = _by_registers(b, [_padded(b, x, full) for x in args], make)
        return b.shuffle(wide, None, list(range(lanes))) if type.lanes else b.extract(wide, 0)
    if lanes * type.bits <= _MOST:
        return make(*args)
    halves = [list(range(lanes // 2)), list(range(lanes // 2, lanes))]
    made = [_by_registers(b, [b.shuffle(x, None, h) for x in args], make) for h in halves]
    return b.shuffle(made[0], made[1], list(range(lanes)))


def _padded(b: Builder, x: V, lanes: int) -> V:
    if not x.type.lanes:
        return b.insert(poison(vector(x.type, lanes)), x, 0)
    return b.shuffle(x, None, [k if k < x.type.lanes else -1 for k in range(lanes)])


def _masked(b: Builder, name: str, args: Sequence[V], immediate: Sequence[V]) -> V:
    """An intrinsic with a mask operand, applied to all lanes of full registers."""
    type: LType = args[0].type
    size = type.lanes * type.bits
    kind = "ps" if type.bits == 32 else "pd"
    mask = const(I16 if type.lanes == 16 else I8, -1)
    rounding = [const(I32, _CURRENT)] if size == _MOST else []
    return b.intrinsic(
        f"llvm.x86.avx512.mask.{name}.{kind}.{size}",
        type,
        [*args, *immediate, zero(type), mask, *rounding],
    )
