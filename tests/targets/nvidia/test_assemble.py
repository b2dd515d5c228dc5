"""PTX → cubin: resources, reproducibility, errors, and the choice of the assembler."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.targets.nvidia.modules import many_values, scaled_add, wgmma
from tilewright.base import knobs
from tilewright.targets.nvidia import assemble, emit
from tilewright.targets.nvidia.assemble import (
    Assembler,
    NvJitLink,
    Ptxas,
    PTXASError,
    Request,
    find_assembler,
)
from tilewright.targets.nvidia.best_cubin import with_ctas
from tilewright.targets.nvidia.cubin import _Elf, resources

HOPPER = Request("sm_90a")
ATTRIBUTES = emit.kernel_attributes(128)


def ptx_of(text: str) -> str:
    return emit.compile_text(text, "sm_90a", 81)[1]


def cubin_of(assembler: Assembler, ptx: str, request: Request) -> bytes:
    return assembler.assemble(ptx, request).content


@cache
def assembler_called(name: str) -> Assembler:
    with knobs.nvidia.scope():
        knobs.nvidia.assembler = name
        try:
            found = find_assembler()
        except FileNotFoundError as error:
            pytest.skip(str(error))
    assert found is not None
    return found


@pytest.fixture(params=["ptxas", "nvjitlink"])
def assembler(request: pytest.FixtureRequest) -> Assembler:
    return assembler_called(request.param)


@pytest.fixture(autouse=True)
def kept_ptx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where rejected PTX is written, out of the user's folders."""
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


# -- results --------------------------------------------------------------------------------------


def test_matrix_instruction_of_a_warp_group_is_assembled(assembler: Assembler) -> None:
    cubin = cubin_of(assembler, ptx_of(wgmma(ATTRIBUTES)), HOPPER)
    used = resources(cubin, "wgmma")
    assert 4 < used.registers <= 64
    assert used.local_bytes == used.spilled_registers == 0


def test_spills_are_seen(assembler: Assembler) -> None:
    """48 values do not fit in 32 registers, but do in as many as a thread may have."""
    few = emit.kernel_attributes(128, maxnreg=32)
    used = resources(cubin_of(assembler, ptx_of(many_values(few, 48)), HOPPER), "many_values")
    assert used.registers == 32
    assert used.spilled_registers >= 48 - 32
    assert used.local_bytes == 4 * used.spilled_registers
    used = resources(
        cubin_of(assembler, ptx_of(many_values(ATTRIBUTES, 48)), HOPPER), "many_values"
    )
    assert used.registers >= 48
    assert used.local_bytes == 0


def test_registers_per_thread_for_resident_ctas(assembler: Assembler) -> None:
    ptx = ptx_of(many_values(emit.kernel_attributes(512), 80))
    alone = resources(cubin_of(assembler, ptx, HOPPER), "many_values")
    assert 80 <= alone.registers <= 128
    two = resources(cubin_of(assembler, with_ctas(ptx, 2), HOPPER), "many_values")
    assert two.registers == 65536 // (2 * 512)


def test_memory_of_a_kernel_is_reported(assembler: Assembler) -> None:
    text = f"""
        @buffer = internal addrspace(3) global [1000 x i32] undef, align 16
        define ptx_kernel void @shared(ptr addrspace(1) %x, i32 %i) #0 {{
          %p = getelementptr i32, ptr addrspace(3) @buffer, i32 %i
          store volatile i32 %i, ptr addrspace(3) %p
          %v = load volatile i32, ptr addrspace(3) %p
          store i32 %v, ptr addrspace(1) %x
          ret void
        }}
        attributes #0 = {{ {ATTRIBUTES} }}"""
    used = resources(cubin_of(assembler, ptx_of(text), HOPPER), "shared")
    # Hopper keeps the first KiB of shared memory for itself.
    assert used.shared_bytes - 4000 in (0, 1024)


def test_each_kernel_has_its_own_resources(assembler: Assembler) -> None:
    first = many_values(emit.kernel_attributes(128, maxnreg=32), 40)
    second = many_values(ATTRIBUTES, 40).replace("@many_values", "@roomy").replace("#0", "#1")
    cubin = cubin_of(assembler, ptx_of(first + second), HOPPER)
    narrow, roomy = resources(cubin, "many_values"), resources(cubin, "roomy")
    assert (narrow.registers, narrow.local_bytes > 0) == (32, True)
    assert (roomy.registers > 40, roomy.local_bytes) == (True, 0)


def test_resources_of_something_else() -> None:
    with pytest.raises(ValueError, match="not a cubin"):
        resources(b"something else", "kernel")
    cubin = cubin_of(assembler_called("ptxas"), ptx_of(wgmma(ATTRIBUTES)), HOPPER)
    with pytest.raises(KeyError, match="other"):
        resources(cubin, "other")


# -- the same bytes each time ---------------------------------------------------------------------


@pytest.mark.parametrize("age", [0, 1, 1_000_000_000, 2_000_000_000])
def test_source_file_does_not_change_the_cubin(
    assembler: Assembler, tmp_path: Path, age: int
) -> None:
    """Neither when it was changed, nor its length, nor that it is there."""
    source = tmp_path / "kernel.py"
    text = scaled_add(ATTRIBUTES, lines="DebugDirectivesOnly").replace("/sources", str(tmp_path))
    ptx = ptx_of(text)
    absent = cubin_of(assembler, ptx, HOPPER)
    source.write_text("#" * (age % 1000 + 1))
    os.utime(source, (age, age))
    assert cubin_of(assembler, ptx, HOPPER) == absent
    assert str(source.parent).encode() in absent


# -- options --------------------------------------------------------------------------------------


def open_rounding(ptx: str) -> str:
    """PTX whose products and sums the assembler may fuse."""
    return re.sub(r"(mul|add)\.rn\.f32", r"\1.f32", ptx)


def test_fusion_follows_the_request(assembler: Assembler) -> None:
    ptx = open_rounding(ptx_of(scaled_add(ATTRIBUTES)))
    fused = cubin_of(assembler, ptx, HOPPER)
    apart = cubin_of(assembler, ptx, Request("sm_90a", fp_fusion=False))
    assert fused != apart
    # The rounding modifiers have the same effect without the request.
    strict = ptx_of(scaled_add(ATTRIBUTES))
    code = cubin_of(assembler, strict, Request("sm_90a", fp_fusion=False))
    assert text_of(code) == text_of(cubin_of(assembler, strict, HOPPER)) == text_of(apart)


def text_of(cubin: bytes) -> bytes:
    """The machine code of `scaled_add`."""
    return _Elf(cubin).content(".text.scaled_add")


def test_level_and_more_options_reach_the_assembler(assembler: Assembler) -> None:
    ptx = ptx_of(many_values(ATTRIBUTES, 8))
    plain = cubin_of(assembler, ptx, HOPPER)
    assert cubin_of(assembler, ptx, Request("sm_90a", opt_level=0)) != plain
    # Accepted only where it arrives as an option of ptxas:
    cubin_of(assembler, ptx, Request("sm_90a", extra=("--warn-on-spills",)))
    with pytest.raises(PTXASError):
        cubin_of(assembler, ptx, Request("sm_90a", extra=("--no-such-option",)))


# -- errors ---------------------------------------------------------------------------------------


def test_error_names_the_line_of_ptx_and_of_the_kernel(
    assembler: Assembler, kept_ptx: Path
) -> None:
    ptx = ptx_of(scaled_add(ATTRIBUTES, lines="DebugDirectivesOnly"))
    broken = ptx.replace("mul.rn.f32", "mull.rn.f32", 1)
    line = broken[: broken.index("mull")].count("\n") + 1
    with pytest.raises(PTXASError) as caught:
        cubin_of(assembler, broken, HOPPER)
    text = str(caught.value)
    assert text.startswith("PTXAS error: ")
    assert f"/sources/kernel.py:6: line {line} of the PTX: Not a name of any known" in text
    assert re.search(r"\n    mull\.rn\.f32\s+%r\d+, %r\d+, %r\d+;\n", text)
    (kept,) = kept_ptx.iterdir()
    assert kept.read_text() == broken
    assert caught.value.path == str(kept)
    assert "sm_90a" in text.split("assembled as: ")[1]


def test_error_of_ptxas_includes_a_command_that_repeats_it() -> None:
    ptx = ptx_of(scaled_add(ATTRIBUTES)).replace("add.rn.f32", "plus.rn.f32")
    with pytest.raises(PTXASError) as caught:
        cubin_of(assembler_called("ptxas"), ptx, HOPPER)
    command = re.search(r"^assembled as: (.*)$", str(caught.value), re.MULTILINE)
    assert command is not None
    again = subprocess.run(shlex.split(command[1]), capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert again.stderr.count("'plus'") == 4


def test_error_without_lines_includes_the_log(assembler: Assembler) -> None:
    with pytest.raises(PTXASError) as caught:
        cubin_of(assembler, "nothing", HOPPER)
    assert any(line in str(caught.value) for line in caught.value.log.split("\n") if line)


def test_error_when_the_ptx_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path / "file"))
    with pytest.raises(PTXASError, match="the PTX could not be kept") as caught:
        cubin_of(assembler_called("ptxas"), "nothing", HOPPER)
    assert caught.value.path is None


# -- choice of the assembler ----------------------------------------------------------------------


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "find_program", lambda name, given: given)
    monkeypatch.setattr(assemble, "find_library", lambda name, given: given)
    for name in ("TILEWRIGHT_PTXAS_PATH", "TRITON_PTXAS_PATH", "TILEWRIGHT_NVJITLINK_PATH"):
        monkeypatch.delenv(name, raising=False)


def test_ptxas_is_preferred_to_nvjitlink(
    nothing_installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(assemble.ctypes, "CDLL", loaded.append)
    with knobs.nvidia.scope():
        knobs.nvidia.nvjitlink_path = "/library"
        assert isinstance(find_assembler(), NvJitLink)
        assert loaded == ["/library"]
        knobs.nvidia.ptxas_path = "/program"
        assert find_assembler() == Ptxas("/program")
        assert loaded == ["/library"]
        knobs.nvidia.assembler = "nvjitlink"
        assert isinstance(find_assembler(), NvJitLink)
        knobs.nvidia.assembler = "driver"
        assert find_assembler() is None


def test_missing_assembler_is_none_unless_one_is_requested(nothing_installed: None) -> None:
    assert find_assembler() is None
    for name in ("ptxas", "nvjitlink"):
        with knobs.nvidia.scope():
            knobs.nvidia.assembler = name
            with pytest.raises(FileNotFoundError, match=f"{name} was not found"):
                find_assembler()


def test_assembler_of_another_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="expected one of ptxas, nvjitlink, driver"):
        knobs.nvidia.assembler = "gas"


def test_version_is_the_release(assembler: Assembler) -> None:
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", assembler.version())
