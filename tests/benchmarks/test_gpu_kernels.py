"""The kernels of the GPU benchmarks are right: on the CPU, with small and uneven sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilewright as tw
from benchmarks.gpu import compile_time, dialect, work
from benchmarks.gpu.case import SCALES, Setting
from benchmarks.gpu.measure import Bench
from benchmarks.gpu.results import Row
from tilewright.runtime import driver

SMALL = Setting("cpu", "check")
CHECKED = {key: family for key, family in work.FAMILIES.items() if family.check}


def _ignore(who: str) -> None:
    pass


@pytest.mark.parametrize("key", CHECKED)
def test_kernels_agree_with_torch_in_higher_precision(key: str) -> None:
    torch.manual_seed(0)
    family = CHECKED[key]
    for name, planned in family.plan(SMALL).items():
        row = Row(family.title, name)
        planned(Bench(SMALL, ("tilewright",), None, _ignore), row)
        outcome = row.outcomes["tilewright"]
        assert not outcome.failures, f"{name}: {outcome.failures}"
        assert outcome.error is not None


@pytest.mark.parametrize("scale", SCALES)
def test_every_family_has_cases_of_every_scale(scale: str) -> None:
    for key, family in work.FAMILIES.items():
        assert family.plan(Setting("cpu", scale)), key


def test_titles_distinguish_families() -> None:
    titles = [family.title for family in work.FAMILIES.values()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("only", "keys"),
    [
        ("", list(work.FAMILIES)),
        ("softmax-row", ["softmax-row", "softmax-rows"]),
        ("giou, copy", ["copy", "giou"]),
        ("nothing of the kind", []),
    ],
)
def test_selection_matches_parts_of_names(only: str, keys: list[str]) -> None:
    assert list(work.chosen(only)) == keys


@pytest.mark.parametrize("name", compile_time.KERNELS)
def test_kernel_of_the_compile_times_fits_its_types(name: str) -> None:
    kernel = compile_time.KERNELS[name]
    source = compile_time.source("tilewright", kernel)
    target = driver.active.get_current_target()
    assert "llir" in tw.compile(source, target=target, options=kernel.options).asm


def test_file_is_loaded_for_the_requested_module(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module whose `jit` only records functions has the same kernels, under the same names."""
    (tmp_path / "stand_in").mkdir()
    (tmp_path / "stand_in" / "__init__.py").write_text("jitted = []\njit = jitted.append\n")
    (tmp_path / "stand_in" / "language.py").write_text("constexpr = int\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert dialect.missing("stand_in") == ""
    loaded = dialect.load("elementwise", "stand_in")
    names = [fn.__name__ for fn in loaded.triton.jitted]
    assert names == ["add_kernel", "copy_kernel"]
    assert loaded.tl.__name__ == "stand_in.language"
    ours = dialect.load("elementwise", "tilewright")
    assert ours.triton is tw
    assert ours.tl is tw.language


def test_kernel_text_is_that_of_the_file() -> None:
    kernels = dialect.load("elementwise", "tilewright")
    text = (dialect.FOLDER / "elementwise.py").read_text("utf-8")
    assert kernels.copy_kernel.src in text
    assert text.splitlines()[kernels.copy_kernel.def_line - 1].startswith("def copy_kernel(")


def test_missing_module_is_named() -> None:
    assert "no_such_module" in dialect.missing("no_such_module")
