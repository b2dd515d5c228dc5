"""The compiler's own identity, which is part of every cache key."""

import os
import time
import tomllib
from pathlib import Path

import pytest

from tests.memory import Memory
from tilewright.base import fact_cache
from tilewright.compiler import version
from tilewright.compiler.version import PACKAGE, VERSION, compiler_key, hash_tree

ROOT = Path(__file__).parents[2]


def tree(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return hash_tree(root)


FILES = {"a.py": "x = 1\n", "sub/b.py": "y = 2\n"}


def test_equal_contents_hash_equal_wherever_they_are(tmp_path: Path) -> None:
    assert tree(tmp_path / "one", FILES) == tree(tmp_path / "two", FILES)


def test_hash_depends_on_every_change(tmp_path: Path) -> None:
    hashes = [
        tree(tmp_path / "same", FILES),
        tree(tmp_path / "content", {**FILES, "sub/b.py": "y = 3\n"}),
        tree(tmp_path / "name", {"a.py": "x = 1\n", "sub/c.py": "y = 2\n"}),
        tree(tmp_path / "place", {"a.py": "x = 1\n", "b.py": "y = 2\n"}),
        tree(tmp_path / "more", {**FILES, "c.py": ""}),
        tree(tmp_path / "moved", {"a.py": "x = 1\ny = 2\n", "sub/b.py": ""}),
    ]
    assert len(set(hashes)) == len(hashes)


def test_other_files_are_ignored(tmp_path: Path) -> None:
    alone = tree(tmp_path / "alone", FILES)
    cached = {**FILES, "__pycache__/a.pyc": "code", "notes.txt": "text"}
    assert tree(tmp_path / "more", cached) == alone


def test_files_are_read_when_their_states_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a program sets back the times that it can set."""
    read: list[Path] = []
    now = time.time
    memory = Memory()
    monkeypatch.setattr(fact_cache, "_store_of", lambda: memory)
    monkeypatch.setattr(version, "hash_tree", lambda root: (read.append(root), hash_tree(root))[1])
    expected = tree(tmp_path, FILES)
    assert version.hash_of_tree(tmp_path) == expected
    assert memory.kept == {}  # so new that another change may not show
    monkeypatch.setattr(time, "time", lambda: now() + 10)
    assert [version.hash_of_tree(tmp_path) for _ in range(3)] == [expected] * 3
    assert len(read) == 2
    file = tmp_path / "a.py"
    before = file.stat()
    time.sleep(0.05)  # a step of the clock that the system takes times from
    file.write_text("x = 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    changed = hash_tree(tmp_path)
    assert changed != expected
    assert version.hash_of_tree(tmp_path) == changed
    (tmp_path / "sub" / "c.py").write_text("")
    assert version.hash_of_tree(tmp_path) == hash_tree(tmp_path) != changed


def test_key_is_computed_once() -> None:
    assert compiler_key() is compiler_key()
    begin = time.perf_counter()
    hash_tree(PACKAGE)
    print(f"hashing the package: {(time.perf_counter() - begin) * 1e3:.1f} ms")


def test_version_is_the_one_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["version"] == VERSION
