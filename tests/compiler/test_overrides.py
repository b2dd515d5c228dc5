"""Stages of kernels are dumped to a folder, and edited files there override them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.base import knobs
from tilewright.compiler.overrides import StageOverrideError
from tilewright.compiler.source import ASTSource


def add_two(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) + 2.0, i < n)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path / "cache")
        knobs.cache.dump_dir = knobs.cache.override_dir = str(tmp_path / "stages")
        yield tmp_path / "stages"


def launched() -> tuple[Any, list[float]]:
    x = np.zeros(8, np.float32)
    compiled = tw.jit(add_two)[(1,)](x, 5, BLOCK=8)
    return compiled, x.tolist()


def for_gpu() -> Any:
    source = ASTSource(tw.jit(add_two), {"x": "*fp32", "n": "i32"}, {"BLOCK": 32})
    return tw.compile(source, "cuda:90")


def dumped(folder: Path, run: Any, stage: str) -> Path:
    """The file of a stage, which is all that is left of what was written for a kernel."""
    with knobs.compilation.scope():
        knobs.compilation.dump = True
        run()
    (of_kernel,) = folder.iterdir()
    for path in of_kernel.iterdir():
        if path.suffix != f".{stage}":
            path.unlink()
    knobs.compilation.override = True
    return of_kernel / f"add_two.{stage}"


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after), "utf-8")


def test_dumped_stage_is_used_as_override(folder: Path) -> None:
    for stage, before, after in (
        ("ttir", "value=2.0", "value=3.0"),
        ("llir", "2.000000e+00", "3.000000e+00"),
    ):
        knobs.compilation.override = False
        path = dumped(folder, launched, stage)
        edit(path, before, after)
        compiled, result = launched()
        assert result == [3.0] * 5 + [0.0] * 3, stage
        assert after in compiled.asm[stage]
        path.unlink()
        path.parent.rmdir()
        assert launched()[1][0] == 2.0  # the edited code was not kept


def test_stages_of_cached_kernels_are_written_too(folder: Path) -> None:
    launched()
    assert dumped(folder, launched, "obj").exists()
    assert launched()[1][0] == 2.0


def test_binary_override_is_used_unchanged(folder: Path) -> None:
    path = dumped(folder, launched, "obj")
    path.write_bytes(path.read_bytes())
    assert launched()[1][0] == 2.0


def test_stages_for_a_gpu(folder: Path) -> None:
    path = dumped(folder, for_gpu, "ptx")
    edit(path, ".visible .entry", "// by hand\n.visible .entry")
    compiled = for_gpu()
    assert "// by hand" in compiled.asm["ptx"]
    path.unlink()
    path.with_suffix(".cubin").write_bytes(b"code")
    assert for_gpu().kernel == b"code"
    path.with_suffix(".cubin").unlink()
    path.with_suffix(".ttgir").write_text(for_gpu().asm["ttgir"].replace("2.0", "4.0"), "utf-8")
    assert "0f40800000" in for_gpu().asm["ptx"]  # 4.0


@pytest.mark.parametrize("stage", ["ttir", "llir"])
def test_faulty_stage_is_named(folder: Path, stage: str) -> None:
    path = dumped(folder, launched, stage)
    path.write_text("nonsense", "utf-8")
    with pytest.raises(StageOverrideError, match=rf"add_two .* replaces \({stage}\)"):
        launched()


def test_unknown_stage_is_named(folder: Path) -> None:
    path = dumped(folder, launched, "llir")
    path.rename(path.with_suffix(".llvm"))
    with pytest.raises(StageOverrideError, match=r"'llvm' of add_two.*ttir, llir, obj"):
        launched()


def test_assembly_is_dumped_for_reference(folder: Path) -> None:
    path = dumped(folder, launched, "llir")
    path.with_suffix(".asm").write_text("whatever", "utf-8")
    path.with_suffix(".source").write_text("def", "utf-8")
    assert launched()[1][0] == 2.0


def test_unset_folder(folder: Path) -> None:
    knobs.cache.override_dir = None
    knobs.compilation.override = True
    with pytest.raises(StageOverrideError, match=r"TILEWRIGHT_OVERRIDE_DIR.*not set"):
        launched()
