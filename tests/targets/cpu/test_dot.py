"""`tile.dot`: every scheme, element type, order of the operands and ragged extent."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.covering import covering
from tests.targets.cpu.amx_emulation import emulated
from tests.targets.cpu.dot_cases import KINDS, LAYOUTS, Extents, arrays, dot_module, dot_of
from tests.targets.cpu.harness import PLAIN_AVX2, assert_same, both, host, slots
from tilewright.base.amx import amx_permitted
from tilewright.base.host import Host
from tilewright.base.record import replace
from tilewright.ir.interpret import interpret
from tilewright.runtime.devices import cpu as device
from tilewright.targets.cpu import emit
from tilewright.targets.cpu import host as cpu_host
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.dot.schemes import SCHEMES, scheme_of
from tilewright.targets.cpu.machine import Machine

ONE = (1, 1, 1)
AMX = {"amx-tile", "amx-bf16", "amx-int8"}


def _machines() -> dict[str, Machine]:
    """This machine, and lesser ones whose code it runs."""
    found = {"host": host()}
    if "avx512bw" in host().features:
        features = host().features - AMX - {"avx512bf16", "avx512vnni"}
        found["AVX-512"] = replace(host(), cpu="x86-64", features=features)
    if "avx2" in host().features:
        found["AVX2"] = host(PLAIN_AVX2)
        found["128 bits"] = host("sse,sse2,fxsr,64bit,cx8,f16c")
    return found


MACHINES = _machines()

SAPPHIRE_RAPIDS = Machine(
    "x86_64-unknown-linux-gnu",
    "sapphirerapids",
    frozenset(
        AMX
        | {"avx", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16"}
        | {"fma", "f16c"}
    ),
)

EXTENTS: list[Extents] = [
    (1, 1, 1), (2, 3, 5), (17, 33, 19), (16, 16, 16), (32, 64, 64), (24, 80, 34),
]  # fmt: skip


# -- every way to multiply -------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("layout", "kind", "machine", "extents"),
    covering(LAYOUTS, KINDS, MACHINES, EXTENTS, strength=3),
)
def test_product(layout: str, kind: str, machine: str, extents: Extents) -> None:
    module = dot_module(kind, layout, extents)
    assert_same(module, ONE, arrays(kind, extents), machine=MACHINES[machine])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("layout", "kind", "machine", "cut", "extents"),
    covering(
        LAYOUTS,
        ["i8", "bf16", "fp32"],
        MACHINES,
        [0, 1, 16, 40],
        [(32, 64, 32), (17, 20, 9)],
        strength=3,
    ),
)
def test_product_of_masked_operands(
    layout: str, kind: str, machine: str, cut: int, extents: Extents
) -> None:
    module = dot_module(kind, layout, extents, cut=cut)
    assert_same(module, ONE, arrays(kind, extents), machine=MACHINES[machine])


@pytest.mark.parametrize(
    ("layout", "kind", "extents"), covering(LAYOUTS, KINDS, [(16, 32, 16), (3, 5, 7)])
)
def test_products_of_a_batch(layout: str, kind: str, extents: Extents) -> None:
    module = dot_module(kind, layout, extents, batch=3)
    assert_same(module, ONE, arrays(kind, extents, batch=3))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", ["bf16", "fp16", "fp32", "fp64"])
def test_rounding_of_sums(kind: str, machine: str) -> None:
    """As exact as K roundings to the type of the sums allow."""
    m, n, k = extents = 16, 32, 256
    rng = np.random.default_rng(1)
    args = [rng.standard_normal(a.size).astype(a.dtype) for a in arrays(kind, extents)]
    ours, theirs = both(dot_module(kind, "NN", extents), ONE, args, machine=MACHINES[machine])
    a, b = (np.abs(x.astype(np.float64)) for x in args[:2])
    size = a.reshape(m, k) @ b.reshape(k, n) + np.abs(args[2].reshape(m, n))
    error = np.abs(ours[2].astype(np.float64) - theirs[2]).reshape(m, n)
    assert (error <= (k + 1) * np.finfo(args[2].dtype).eps * size / 2).all()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", ["bf16", "fp32"])
def test_infinities_and_nan(kind: str, machine: str) -> None:
    """What padding multiplies must not spread: only the rows and columns of these change."""
    extents = 3, 5, 7
    args = arrays(kind, extents)
    args[0][[1, 9]] = np.inf, np.nan  # in rows 0 and 1 of 7
    args[1][[3, 8]] = -np.inf, np.nan  # in columns 3 and 3 of 5
    assert_same(dot_module(kind, "NN", extents), ONE, args, machine=MACHINES[machine])


# -- the table -------------------------------------------------------------------------------------

ARM = {"neon", "dotprod", "i8mm", "bf16", "fp16fml"}

CHOICES: list[tuple[str, Extents, set[str], str]] = [
    ("bf16", (16, 16, 16), AMX | {"avx512bf16"}, "amx-bf16"),
    ("fp8", (32, 16, 8), AMX, "amx-bf16"),
    ("bf16", (8, 16, 16), AMX | {"avx512bf16"}, "pair-bf16"),
    ("bf16", (16, 24, 16), AMX, "fma-fp32"),
    ("bf16", (16, 16, 16), {"avx512f"}, "fma-fp32"),
    ("i8", (16, 16, 64), AMX, "amx-int8"),
    ("u8", (16, 16, 64), AMX, "amx-uint8"),
    ("i8", (16, 8, 64), AMX | {"avx512vnni"}, "quad-int8"),
    ("u8", (16, 16, 64), {"avx512vnni", "avx512bw", "avx2"}, "quad-uint8"),
    ("u8", (16, 16, 64), {"avx512bw", "avx2"}, "pair-int8-512"),
    ("i8", (16, 16, 64), {"avx2"}, "pair-int8-256"),
    ("i8", (16, 16, 64), set(), "multiply-int8"),
    ("fp16", (16, 16, 16), AMX | {"avx512bf16"}, "fma-fp32"),
    ("fp32", (16, 16, 16), AMX | {"avx512bf16"}, "fma-fp32"),
    ("fp64", (16, 16, 16), AMX, "fma-fp64"),
    ("bf16", (16, 16, 16), ARM, "mmla-bf16"),
    ("fp8", (2, 4, 16), ARM, "mmla-bf16"),
    ("bf16", (1, 16, 16), ARM, "dot-bf16"),
    ("bf16", (16, 3, 16), ARM, "dot-bf16"),
    ("bf16", (16, 16, 16), ARM - {"bf16"}, "fma-fp32"),
    ("fp8", (16, 16, 16), ARM - {"bf16"}, "widening-fp16"),
    ("fp16", (16, 16, 16), ARM, "widening-fp16"),
    ("half", (16, 16, 16), ARM, "widening-fp16"),
    ("fp16", (16, 16, 16), ARM - {"fp16fml"}, "fma-fp32"),
    ("i8", (16, 16, 64), ARM, "mmla-int8"),
    ("u8", (16, 16, 64), ARM, "mmla-uint8"),
    ("i8", (1, 16, 64), ARM, "dot-int8"),
    ("u8", (16, 16, 64), ARM - {"i8mm"}, "dot-uint8"),
    ("i8", (16, 16, 64), {"neon"}, "multiply-int8"),
    ("fp32", (16, 16, 16), ARM, "fma-fp32"),
]


@pytest.mark.parametrize(("kind", "extents", "features", "expected"), CHOICES)
def test_choice_of_scheme(kind: str, extents: Extents, features: set[str], expected: str) -> None:
    op = dot_of(dot_module(kind, "NN", extents))
    assert scheme_of(op, Machine("x86_64", "x86-64", frozenset(features))).name == expected


def test_every_scheme_is_chosen_by_a_test() -> None:
    assert {name for *_, name in CHOICES} == {s.name for s in SCHEMES}


# -- code ------------------------------------------------------------------------------------------


def _assembly(module: Any, machine: Machine) -> str:
    text, _ = generate(module, machine)
    return emit.assembly(emit.compile_text(text, machine)[0], machine)


INSTRUCTIONS: list[tuple[str, set[str], str]] = [
    ("bf16", AMX, "tdpbf16ps"),
    ("i8", AMX, "tdpbssd"),
    ("u8", AMX, "tdpbuud"),
    ("bf16", set(), "vdpbf16ps"),
    ("i8", set(), "vpdpbusd"),
    ("fp32", AMX, "vfmadd231ps"),
]


@pytest.mark.parametrize(("kind", "features", "expected"), INSTRUCTIONS)
def test_instruction(kind: str, features: set[str], expected: str) -> None:
    kept = SAPPHIRE_RAPIDS.features - (AMX - features)
    machine = replace(SAPPHIRE_RAPIDS, cpu="x86-64", features=kept)
    code = _assembly(dot_module(kind, "NT", (64, 64, 64)), machine)
    assert expected in code
    assert code.count("ldtilecfg") == (expected[0] == "t")


SIZED = {"host": host(), "AMX": SAPPHIRE_RAPIDS}


@pytest.mark.parametrize(
    ("layout", "kind", "machine"), covering(LAYOUTS, ["i8", "bf16", "fp32"], SIZED)
)
def test_size_of_code_does_not_grow_with_the_tile(layout: str, kind: str, machine: str) -> None:
    small, large = (
        _assembly(dot_module(kind, layout, (n, n, n)), SIZED[machine]).count("\n")
        for n in (128, 512)
    )
    assert large <= small * 1.1


# -- AMX -------------------------------------------------------------------------------------------

AMX_EXTENTS: list[Extents] = [
    (16, 16, 16), (32, 32, 64), (16, 64, 10), (48, 32, 130), (64, 80, 64),
]  # fmt: skip
AMX_CASES = covering(LAYOUTS, ["i8", "u8", "bf16", "fp8"], AMX_EXTENTS)


@pytest.mark.skipif("avx512f" not in host().features, reason="emulated in AVX-512 vectors")
@pytest.mark.parametrize(("layout", "kind", "extents"), AMX_CASES)
def test_amx_emulated(layout: str, kind: str, extents: Extents) -> None:
    module = dot_module(kind, layout, extents)
    text, scratch = generate(module, SAPPHIRE_RAPIDS)
    _, code = emit.compile_text(emulated(text), host())
    ours, theirs = arrays(kind, extents), arrays(kind, extents)
    loaded, packed = device.LoadedCode(code, ["k"]), slots(ours)
    device.launch(loaded["k"], ctypes.addressof(packed), ONE, scratch, 1)
    interpret(module, ONE, theirs)
    np.testing.assert_array_equal(ours[2], theirs[2])


@pytest.mark.skipif(not amx_permitted(), reason="this machine has no AMX, or does not permit it")
@pytest.mark.parametrize(("layout", "kind", "extents"), AMX_CASES)
def test_amx(layout: str, kind: str, extents: Extents) -> None:
    module = dot_module(kind, layout, extents)
    assert scheme_of(dot_of(module), host()).name.startswith("amx")
    assert_same(module, ONE, arrays(kind, extents))


@pytest.mark.parametrize("permitted", [False, True])
def test_amx_is_a_feature_only_with_permission(
    permitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Host("x86_64-unknown-linux-gnu", "sapphirerapids", frozenset([*AMX, "avx2"]))
    monkeypatch.setattr(cpu_host, "host", lambda: found)
    monkeypatch.setattr(cpu_host, "amx_permitted", lambda: permitted)
    assert cpu_host.host_machine().features == (AMX if permitted else set()) | {"avx2"}


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="reads /proc/cpuinfo")
def test_permission_requires_amx() -> None:
    assert not amx_permitted() or "amx_tile" in Path("/proc/cpuinfo").read_text("utf-8")
