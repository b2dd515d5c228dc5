"""Facts that are kept between processes hold as long as what tells them."""

import os
from pathlib import Path

import pytest

from tests.memory import Memory
from tilewright.base import remembered as module
from tilewright.base.remembered import file_state, install_memory, remembered


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    made = Memory()
    monkeypatch.setattr(module, "_memory_of", None)
    install_memory(lambda: made)
    return made


def ask(asked: list[int], answer: str = "yes") -> str:
    asked.append(1)
    return answer


def test_asked_once_while_nothing_changes(memory: Memory) -> None:
    asked: list[int] = []
    for _ in range(3):
        assert remembered("sky", ("blue", 1), lambda: ask(asked)) == "yes"
    assert len(asked) == 1
    assert remembered("sky", ("blue", 2), lambda: ask(asked, "no")) == "no"
    assert remembered("sea", ("blue", 1), lambda: ask(asked, "deep")) == "deep"
    assert len(asked) == 3


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'["sky"]', b'["sky", 1]'])
def test_what_cannot_be_read_is_asked_again(memory: Memory, content: bytes) -> None:
    asked: list[int] = []
    remembered("sky", (), lambda: ask(asked))
    (key,) = memory.kept
    memory.kept[key] = {"fact.json": content}
    assert remembered("sky", (), lambda: ask(asked)) == "yes"
    assert remembered("sky", (), lambda: ask(asked)) == "yes"
    assert len(asked) == 2


def test_without_a_memory_it_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_memory_of", None)
    asked: list[int] = []
    for _ in range(2):
        remembered("sky", (), lambda: ask(asked))
    assert len(asked) == 2


def test_a_file_that_is_replaced_has_another_state(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"one")
    os.utime(path, (1, 1))
    before = file_state(str(path))
    assert file_state(str(path)) == before
    (tmp_path / "new").write_bytes(b"two")
    os.utime(tmp_path / "new", (1, 1))
    os.replace(tmp_path / "new", path)
    assert file_state(str(path)) != before, "though its size and its time are the same"
