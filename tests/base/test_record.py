"""Records behave as dataclasses do, and compile nothing until the first is constructed."""

from __future__ import annotations

import pickle
from typing import ClassVar

import pytest

from tilewright.base import record as module
from tilewright.base.record import field, record, replace


@record
class Place:
    KINDS: ClassVar[int] = 3

    line: int
    column: int = 1
    names: list[str] = field(default_factory=list[str], compare=False)

    def __post_init__(self) -> None:
        self.names.append(f"{self.line}:{self.column}")


@record
class Named(Place):
    name: str = ""


@record(eq=False, frozen=False)
class State:
    count: int = 0


@record(frozen=False)
class Counted:
    count: int = 0


@record(kw_only=True)
class Options:
    first: int = 0
    second: int


def test_fields_and_defaults() -> None:
    place = Place(3)
    assert (place.line, place.column, place.names) == (3, 1, ["3:1"])
    assert Place(3).names is not place.names
    assert Place(column=2, line=1).column == 2
    assert repr(Place(1, 2, [])) == "Place(line=1, column=2, names=['1:2'])"
    with pytest.raises(TypeError, match=r"Place\.__init__\(\) missing 1 required"):
        Place()  # pyright: ignore[reportCallIssue]


def test_records_are_compared_by_fields() -> None:
    assert Place(1, 2) == Place(1, 2, ["other"])
    assert hash(Place(1, 2)) == hash(Place(1, 2, ["other"]))
    assert Place(1, 2) != Place(1, 3)
    assert Place(1, 2) != Named(1, 2)
    assert Place(1, 2) != (1, 2)
    match Place(4, 5):
        case Place(line, column):
            assert (line, column) == (4, 5)


def test_a_class_adds_fields_to_its_base() -> None:
    assert repr(Named(1, name="x")) == "Named(line=1, column=1, names=['1:1'], name='x')"
    assert Named(1, name="x") != Named(1, name="y")
    assert Place(1).column == 1


def test_fields_are_not_assigned() -> None:
    place = Place(1)
    with pytest.raises(AttributeError, match="cannot assign to field 'line' of Place"):
        place.line = 2  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match="'other' of Named"):
        Named(1).other = 2  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match="'line' of Place"):
        del place.line  # pyright: ignore[reportAttributeAccessIssue]
    assert place.line == 1


def test_mutable_records() -> None:
    state = State()
    state.count += 1
    assert state.count == 1
    assert state != State(1)
    assert hash(state) == object.__hash__(state)
    assert Counted(1) == Counted(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counted(1))


def test_replace_and_pickle() -> None:
    assert replace(Place(1, 2), column=5) == Place(1, 5)
    assert pickle.loads(pickle.dumps(Named(1, name="x"))) == Named(1, name="x")
    assert replace(Options(second=2), first=1) == Options(first=1, second=2)
    with pytest.raises(TypeError, match="positional"):
        Options(1, 2)  # pyright: ignore[reportCallIssue]


def test_a_constructor_is_compiled_when_it_is_first_called() -> None:
    @record
    class Once:
        value: int

    assert Once.__init__ is module._first_init
    assert Once(1) == Once(1)
    assert Once.__init__.__qualname__.endswith("Once.__init__")
    assert Once.__init__ is not module._first_init
