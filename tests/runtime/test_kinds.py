"""The table of kinds of arguments: a new row works in launches by Python and in native ones."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.runtime.native_cases import Twin, outcome
from tilewright.runtime import kinds
from tilewright.runtime.kinds import DIVISIBLE, FLOAT, INT, KINDS, Kind, register
from tilewright.runtime.native import generate
from tilewright.runtime.native.code import load
from tilewright.runtime.native.read import reader_of
from tilewright.runtime.native.runtime import Runtime
from tilewright.runtime.tensors import read


class Ticks:
    """A number of something."""

    def __init__(self, count: Any) -> None:
        self.count = count


class Seconds:
    def __init__(self, value: Any) -> None:
        self.value = value


TICKS = INT._replace(
    name="ticks", types=(Ticks,), attribute="count", matches=None, facts=(DIVISIBLE,)
)
SECONDS = FLOAT._replace(name="seconds", types=(Seconds,), attribute="value", matches=None)


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """Native code for the table with two rows more."""
    before = list(KINDS), dict(kinds.BY_TYPE)
    register(TICKS)
    register(SECONDS)
    yield Runtime(load())
    KINDS[:] = before[0]
    kinds.BY_TYPE.clear()
    kinds.BY_TYPE.update(before[1])


def plain(a, b, c): ...
def annotated(a: "i8", b: "fp32", c): ...  # noqa: F821  # pyright: ignore


VALUES = [0, 1, 7, 8, -24, 16, -16, 100, 2**31, -(2**63), 2**63]


@pytest.mark.parametrize("function", [plain, annotated])
@pytest.mark.parametrize("count", VALUES)
def test_rows_are_launched_natively(rows: Runtime, function: Any, count: int) -> None:
    twin = Twin(function, runtime=rows)
    args = Ticks(count), Seconds(2.5), np.zeros(4, np.float32)
    expected = outcome(twin.bind, *args)
    if expected[0] is OverflowError:
        assert outcome(twin.launch, *args) == expected
        return
    first = twin.launch(*args)
    assert not twin.natively
    assert twin.launch(*args) == first
    assert twin.natively


@pytest.mark.parametrize("slot", [0, 1])
def test_variants_of_rows(rows: Runtime, slot: int) -> None:
    """A variant for each of: a multiple of 16, another number, an int 1; not for each number."""
    twin = Twin(plain, runtime=rows)
    numbers: list[Any] = [Ticks(5), Ticks(1), Ticks(6), Ticks(16), Ticks(32), 1, 5]
    natively: list[bool] = []
    for number in (*numbers, *numbers):
        args: list[Any] = [3, 4, 5]
        args[slot] = number
        twin.launch(*args)
        natively.append(twin.natively)
    assert len(twin.variants) == 3
    assert not natively[0]
    assert all(natively[len(numbers) :])


@pytest.mark.parametrize("count", ["many", None, 2**64])
def test_wrong_values_are_rejected_by_python(rows: Runtime, count: Any) -> None:
    twin = Twin(plain, runtime=rows)
    twin.launch(Ticks(1), 2, 3)
    twin.launch(Ticks(1), 2, 3)
    assert twin.natively
    expected = outcome(twin.bind, Ticks(count), 2, 3)
    assert outcome(twin.launch, Ticks(count), 2, 3) == expected
    assert issubclass(expected[0], (TypeError, ValueError, OverflowError))


def test_rows_that_come_later_are_launched_by_python(rows: Runtime) -> None:
    class Later(Ticks):
        pass

    register(TICKS._replace(name="later", types=(Later,)))
    twin = Twin(plain, runtime=rows)
    for _ in range(3):
        twin.launch(Later(3), 2, 3)
        assert not twin.natively


def test_rows_that_exceed_the_slots_are_rejected(rows: Runtime) -> None:
    with pytest.raises(ValueError, match="no room for many"):
        register(TICKS._replace(name="many", types=tuple(type(f"T{i}", (), {}) for i in range(24))))
    assert KINDS[-1] is SECONDS


class Offered(tuple[Any, ...]):
    """A tuple that is a tensor too."""

    dtype = "float32"

    def data_ptr(self) -> int:
        return 0x1000


def test_tuple_that_offers_memory_is_a_tuple(rows: Runtime) -> None:
    value = Offered((1, 2.0))
    assert read(value)[0] == 0x1000
    twin = Twin(plain, runtime=rows)
    for _ in range(3):
        twin.launch(value, 5, 6)
    assert twin.natively


def test_every_row_is_native() -> None:
    """Each names what writes its code, and is recognised by exact type, class or what was met."""
    generate.generate()
    kind: Kind
    for kind in KINDS:
        assert callable(reader_of(kind))
        assert kind.types or kind.base or kind.met is not None


def test_row_without_native_code_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"kind 'ticks' are read natively by 'tick', which is not"):
        reader_of(INT._replace(name="ticks", read="tick"))
