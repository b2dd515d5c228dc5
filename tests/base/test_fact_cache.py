"""Cached facts are recomputed exactly when an input changes or the entry cannot be read."""

import os
from pathlib import Path

import pytest

from tests.memory import Memory
from tilewright.base import fact_cache as module
from tilewright.base.fact_cache import cached_fact, file_state, install_fact_store


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Memory:
    store = Memory()
    monkeypatch.setattr(module, "_store_of", None)
    install_fact_store(lambda: store)
    return store


def compute(calls: list[int], answer: str = "yes") -> str:
    calls.append(1)
    return answer


def test_computed_once_while_no_input_changes(store: Memory) -> None:
    calls: list[int] = []
    for _ in range(3):
        assert cached_fact("sky", ("blue", 1), lambda: compute(calls)) == "yes"
    assert len(calls) == 1
    assert cached_fact("sky", ("blue", 2), lambda: compute(calls, "no")) == "no"
    assert cached_fact("sea", ("blue", 1), lambda: compute(calls, "deep")) == "deep"
    assert len(calls) == 3


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'["sky"]', b'["sky", 1]'])
def test_unreadable_entry_is_recomputed(store: Memory, content: bytes) -> None:
    calls: list[int] = []
    cached_fact("sky", (), lambda: compute(calls))
    (key,) = store.kept
    store.kept[key] = {"fact.json": content}
    assert cached_fact("sky", (), lambda: compute(calls)) == "yes"
    assert cached_fact("sky", (), lambda: compute(calls)) == "yes"
    assert len(calls) == 2


def test_without_a_store_each_call_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_store_of", None)
    calls: list[int] = []
    for _ in range(2):
        cached_fact("sky", (), lambda: compute(calls))
    assert len(calls) == 2


def test_replaced_file_has_another_state(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"one")
    os.utime(path, (1, 1))
    before = file_state(str(path))
    assert file_state(str(path)) == before
    assert file_state(str(path)) == before
    (tmp_path / "new").write_bytes(b"two")
    os.utime(tmp_path / "new", (1, 1))
    os.replace(tmp_path / "new", path)
    assert file_state(str(path)) != before, "though its size and its time are the same"
