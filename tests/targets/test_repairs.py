"""What repairs for LLVM's back ends write is IR for any processor, so that this one shows whether
it is equivalent to what they replace."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.ir_values import same_bits
from tests.targets.random_expressions import (
    FLOATS,
    GIVEN,
    INTEGERS,
    PLACE,
    PLACES,
    RESULTS,
    WRITTEN,
    module_text,
)
from tests.targets.repaired import AARCH64
from tilewright.base.llvm_library import parsed
from tilewright.base.locks import LLVM
from tilewright.lowering.selected_zeros import with_selected_zeros
from tilewright.runtime.devices.cpu import LoadedCode
from tilewright.targets.amd import repairs as amd
from tilewright.targets.amd.features import PROCESSORS
from tilewright.targets.cpu import repairs as cpu
from tilewright.targets.cpu.host import host_machine
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.gpu.emit import clean_up
from tilewright.targets.nvidia.shift_repairs import with_repaired_shifts

COUNT = 200

_SAME = re.compile(
    r"call (?:i32 @llvm\.amdgcn\.perm\(i32 (?P<byte>[^,]+), i32 (?P=byte), i32 50462976\)"
    r"|(?P<float>[^@]+) @llvm\.canonicalize\.\w+\((?P=float) (?P<rounded>[^)]+)\)"
    r'|(?P<int>[^@"]+) asm "", "=[rlx],0"\((?P=int) (?P<copied>[^)]+)\))'
)
"""How repairs hide a number: instructions that select its bytes 0, 1, 2 and 3, or that round it to
its type, or none."""


def _hidden(found: re.Match[str]) -> str:
    type = found["float"] or found["int"] or "i32"
    return f"freeze {type} {found['rounded'] or found['copied'] or found['byte']}"


AVX512 = Machine("x86_64-unknown-linux-gnu", "", frozenset({"avx512f"}))
REPAIRS: dict[str, Callable[[str], str]] = {
    "x86-64": lambda text: cpu.repair(text, AVX512),
    "AArch64": lambda text: cpu.repair(text, AARCH64),
    "AMD": lambda text: amd.repair(text, PROCESSORS["gfx942"]),
    "NVIDIA": lambda text: with_repaired_shifts(with_selected_zeros(text)),
}


@cache
def _code_generator() -> llvm.TargetMachine:
    """For this processor, without optimisations that could be at fault."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # of assembly in repairs
    host = host_machine()
    features = ",".join(f for f in host.feature_text.split(",") if "avx512" not in f)
    return llvm.Target.from_triple(host.triple).create_target_machine(
        cpu="", features=features, opt=0, reloc="pic", jit=True
    )


def _optimised(text: str) -> str:
    machine = _code_generator()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    with LLVM, parsed(text) as module:
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        module.verify()
        clean_up(module, builder, numbered=True)
        return str(module)


def _loaded(text: str) -> Any:
    with LLVM, parsed(text) as module:
        module.verify()
        code = _code_generator().emit_object(module)
    return LoadedCode(code, [f"f{k}" for k in range(COUNT)])


def _kind(element: str) -> str:
    return f"{'f' if element in FLOATS else 'i'}{PLACES.get(element, 8) // 8}"


def _given(rng: np.random.Generator) -> np.ndarray:
    """Bytes that functions read: small and special numbers, and any others."""
    given = rng.integers(0, 256, GIVEN, np.uint8)
    for place, element in enumerate(PLACES):
        part = given[place * PLACE : (place + 1) * PLACE].view(_kind(element))
        special = [0.0, -0.0, 1.0, -2.0, 0.5, np.nan, np.inf, -np.inf]
        if element in INTEGERS:
            special = [0, 1, -1, 7, 8, INTEGERS[element] - 1, INTEGERS[element], -128]
        chosen = rng.random(part.size) < 0.7
        part[chosen] = rng.choice(np.array(special, part.dtype), part.size)[chosen]
    return given


def _results(code: Any, name: str, given: np.ndarray) -> list[np.ndarray]:
    """What a function writes, by type."""
    written = np.zeros(WRITTEN, np.uint8)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code[name])
    call(given.ctypes.data, written.ctypes.data)
    parts = np.split(written, len(RESULTS))
    return [part.view(_kind(element)) for element, part in zip(RESULTS, parts, strict=True)]


@cache
def _original() -> tuple[str, Any]:
    text = _optimised(module_text(seed=0, count=COUNT))
    return text, _loaded(text)


@pytest.mark.parametrize("name", REPAIRS)
def test_repairs_keep_the_meaning(name: str) -> None:
    text, before = _original()
    repaired = REPAIRS[name](text)
    assert repaired != text
    after = _loaded(_SAME.sub(_hidden, repaired))
    for seed in range(8):
        given = _given(np.random.default_rng(seed))
        for k in range(COUNT):
            expected, found = (_results(code, f"f{k}", given) for code in (before, after))
            for x, y in zip(found, expected, strict=True):
                assert same_bits(x, y), f"f{k}: {x} not {y}"
