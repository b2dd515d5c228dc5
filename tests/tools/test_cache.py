"""`python -m tilewright cache`: on a cache with a kernel that was compiled and one that was not."""

import json
import os
import re
import time
from pathlib import Path

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import knobs
from tilewright.compiler import ASTSource
from tilewright.runtime.cache import DiskCache, digest
from tilewright.tools import cli
from tilewright.tools.cache import size_text


@tw.jit
def scale(x, FACTOR: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(x + i, tl.load(x + i) * FACTOR)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache's folder with two variants of a kernel and a tuning result."""
    root = tmp_path / "cache"
    sources = [ASTSource(scale, {"x": "*fp32"}, {"FACTOR": factor}) for factor in (1, 2, 3)]
    tw.compile(sources[0])  # facts of the machine, which are cached too, go to the session's cache
    with knobs.cache.scope():
        knobs.cache.dir = str(root)
        for source in sources[1:]:
            tw.compile(source)
        result = {"autotune.json": b'{"kernel": "tuned", "timings": []}'}
        DiskCache(root).put(digest("tuned"), result)
    return root


def run(folder: Path, *words: str) -> int:
    return cli.main(["cache", words[0], "--dir", str(folder), *words[1:]])


def test_list_names_the_kernels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    kernels = [line for line in lines if line.endswith("scale")]
    assert len(kernels) == 2
    assert re.fullmatch(r"[0-9a-f]{12}  kernel  cpu +[0-9.]+ KiB +now  scale", kernels[0])
    assert any(line.endswith("tuned") and " tuning " in line for line in lines)
    assert lines[-1].startswith("3 entries, ")
    assert lines[-1].endswith(f"of 2.0 GiB, in {folder}")


def test_list_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "list", "--json", "scale") == 0
    output = json.loads(capsys.readouterr().out)
    assert output["folder"] == str(folder)
    assert output["bound"] == 2 << 30
    assert [(e["kind"], e["name"], e["target"]) for e in output["entries"]] == [
        ("kernel", "scale", "cpu")
    ] * 2
    assert all(e["size"] > 100 and time.time() - e["used"] < 600 for e in output["entries"])


def test_a_key_may_be_shortened(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "list", digest("tuned")[:8]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 entry, ")
    assert run(folder, "list", "nothing") == 2
    assert "prefix 'nothing'" in capsys.readouterr().err


def test_verify_reports_and_removes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "verify") == 0
    assert "3 entries, 0 invalid" in capsys.readouterr().out
    path = DiskCache(folder).path(digest("tuned"))
    assert path is not None
    Path(path).write_bytes(Path(path).read_bytes().replace(b"tuned", b"tamed"))
    assert run(folder, "verify") == 1
    output = capsys.readouterr().out
    assert f"{path}: its contents do not match its digest" in output
    assert "3 entries, 1 invalid" in output
    assert run(folder, "list") == 0
    assert " invalid " in capsys.readouterr().out
    assert run(folder, "verify", "--remove") == 0
    assert "1 entry removed" in capsys.readouterr().out
    assert run(folder, "verify") == 0


def test_clear_removes_the_selection(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = DiskCache(folder).path(digest("tuned"))
    assert path is not None
    os.utime(path, (0, time.time() - 40 * 86400))
    assert run(folder, "clear", "scale", "--unused", "30") == 0
    assert "0 entries removed" in capsys.readouterr().out
    assert run(folder, "clear", "--unused", "30") == 0
    assert "1 entry removed" in capsys.readouterr().out
    assert run(folder, "clear", "scale") == 0
    assert "2 entries removed" in capsys.readouterr().out
    assert run(folder, "clear") == 0


def test_a_pack_avoids_compilation(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "pack", str(tmp_path / "kernels"), "scale") == 0
    assert "2 entries, " in capsys.readouterr().out
    elsewhere = tmp_path / "elsewhere"
    assert run(elsewhere, "unpack", str(tmp_path / "kernels")) == 0
    assert "2 entries imported into" in capsys.readouterr().out
    received: list[bool] = []
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(elsewhere)
        knobs.compilation.listener = lambda **output: received.append(output["cache_hit"])
        tw.compile(ASTSource(scale, {"x": "*fp32"}, {"FACTOR": 2}))
        tw.compile(ASTSource(scale, {"x": "*fp32"}, {"FACTOR": 4}))
    assert received == [True, False]


def test_other_files_than_packs_are_rejected(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("words")
    assert run(folder, "unpack", str(tmp_path / "file")) == 2
    assert "not a pack of compiled kernels" in capsys.readouterr().err
    assert run(folder, "unpack", str(tmp_path / "absent")) == 2
    assert "absent" in capsys.readouterr().err


def test_a_missing_folder_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("list", "verify", "clear"):
        assert run(tmp_path / "absent", action) == 0
        assert "0 entries" in capsys.readouterr().out
    assert not (tmp_path / "absent").exists()


def test_settings_select_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with knobs.cache.scope():
        knobs.cache.dir = str(folder)
        assert cli.main(["cache", "list"]) == 0
    assert str(folder) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_sizes_are_human_readable(size: int, text: str) -> None:
    assert size_text(size) == text
