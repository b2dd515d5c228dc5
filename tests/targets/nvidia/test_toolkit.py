"""Where programs and libraries are found, in which order; running one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tilewright.base import knobs
from tilewright.targets.nvidia import toolkit
from tilewright.targets.nvidia.toolkit import (
    INPUT,
    OUTPUT,
    find_library,
    find_program,
    run_program,
)


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Folders for programs, in the order in which they are tried; nothing else is there."""
    folders = {
        "wheel": tmp_path / "site" / "nvidia" / "cu13" / "bin",
        "older wheel": tmp_path / "site" / "nvidia" / "cuda_nvcc" / "bin",
        "toolkit": tmp_path / "toolkit" / "bin",
        "path": tmp_path / "path",
        "usual": tmp_path / "usual" / "bin",
    }
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), str(tmp_path / "site")])
    monkeypatch.setattr(toolkit, "USUAL_TOOLKIT", tmp_path / "usual")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    monkeypatch.setenv("PATH", str(folders["path"]))
    return folders


def test_program_comes_from_the_first_place_that_has_it(places: dict[str, Path]) -> None:
    assert find_program("ptxas") is None
    for folder in reversed(places.values()):
        expected = program(folder / "ptxas")
        assert find_program("ptxas") == expected
        assert find_program("nvdisasm") is None


def test_program_that_cannot_run_is_skipped(places: dict[str, Path]) -> None:
    Path(program(places["wheel"] / "ptxas")).chmod(0o644)
    expected = program(places["path"] / "ptxas")
    assert find_program("ptxas") == expected


def test_named_program_excludes_others(places: dict[str, Path], tmp_path: Path) -> None:
    program(places["wheel"] / "ptxas")
    mine = program(tmp_path / "mine" / "ptxas-12")
    assert find_program("ptxas", mine) == mine
    with pytest.raises(
        FileNotFoundError, match="missing as ptxas, which is not an executable file"
    ):
        find_program("ptxas", str(tmp_path / "missing"))


def test_library_comes_from_the_first_place_that_has_it(
    places: dict[str, Path], tmp_path: Path
) -> None:
    pattern = "libnvJitLink.so*"
    assert find_library(pattern) is None
    for folder in ("usual/lib", "toolkit/lib64", "site/nvidia/nvjitlink/lib"):
        expected = tmp_path / folder / "libnvJitLink.so.12"
        expected.parent.mkdir(parents=True)
        expected.touch()
        assert find_library(pattern) == str(expected)
    assert find_library(pattern, str(expected)) == str(expected)
    with pytest.raises(FileNotFoundError, match="which is not a file"):
        find_library(pattern, str(tmp_path / "missing"))


def test_newest_library_of_a_folder_is_used(places: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "toolkit" / "lib64"
    folder.mkdir(parents=True)
    for name in ("libnvJitLink.so.13", "libnvJitLink.so.12"):
        (folder / name).touch()
    assert find_library("libnvJitLink.so.*") == str(folder / "libnvJitLink.so.13")


def test_toolkit_folder_may_be_set_in_the_program(places: dict[str, Path], tmp_path: Path) -> None:
    expected = program(tmp_path / "other" / "bin" / "ptxas")
    with knobs.nvidia.scope():
        knobs.nvidia.cuda_home = str(tmp_path / "other")
        assert find_program("ptxas") == expected
    assert find_program("ptxas") is None


COPY = (
    "import sys; data = open(sys.argv[1], 'rb').read(); open(sys.argv[2], 'wb').write(data[::-1])"
)


def test_program_reads_and_writes_files() -> None:
    content = bytes(range(256)) * 1000
    ended = run_program([sys.executable, "-c", COPY, INPUT, OUTPUT], content)
    assert (ended.status, ended.stdout, ended.stderr) == (0, "", "")
    assert ended.output == content[::-1]


def test_error_of_a_program_includes_its_output() -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    ended = run_program([sys.executable, "-c", script], b"")
    assert (ended.status, ended.stdout, ended.stderr, ended.output) == (3, "out\n", "err\n", b"")


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_running_leaks_no_descriptors_and_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    # A program that kills itself in the middle of its work leaves as little.
    for script in (COPY, "import os; os.kill(os.getpid(), 9)"):
        run_program([sys.executable, "-c", script, INPUT, OUTPUT], b"abc")
    with pytest.raises(FileNotFoundError):
        run_program([str(tmp_path / "missing"), INPUT], b"abc")
    assert len(os.listdir("/proc/self/fd")) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [None, "glibc.malloc.hugetlb=0"])
def test_programs_take_memory_in_large_pieces(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """glibc takes the last setting of a name: this process's own take precedence."""
    if given is None:
        monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    else:
        monkeypatch.setenv("GLIBC_TUNABLES", given)
    script = "import os; print(os.environ['GLIBC_TUNABLES'], end='')"
    first, *rest = run_program([sys.executable, "-c", script], b"").stdout.split(":")
    assert first == "glibc.malloc.hugetlb=1"
    assert "glibc.malloc.top_pad=16777216" in rest
    assert given is None or rest[-1] == given


def test_files_are_temporary_where_memory_files_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolkit.sys, "platform", "other")
    monkeypatch.setattr(toolkit.tempfile, "tempdir", str(tmp_path))
    ended = run_program([sys.executable, "-c", COPY, INPUT, OUTPUT], b"abc")
    assert ended.output == b"cba"
    assert not list(tmp_path.iterdir())
