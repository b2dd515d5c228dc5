"""How native code is written: references on every way out, types of fields, names of routines."""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tilewright.lowering.emit import I1, I64, PTR, const
from tilewright.runtime.devices.code import LoadedCode
from tilewright.runtime.devices.llvm import assemble
from tilewright.runtime.native.layout import FIELDS
from tilewright.runtime.native.routine import Object, Ref, Routine, Word, routine, text_of
from tilewright.runtime.native.runtime import Runtime, runtime


def compiled(entry: Any) -> Callable[..., int]:
    """An entry of (runtime, object, number)."""
    code = LoadedCode(assemble(text_of("test", [entry]), 1), [entry.__name__])
    kinds = (ctypes.c_void_p, ctypes.py_object, ctypes.c_int64)
    function = ctypes.PYFUNCTYPE(ctypes.c_int64, *kinds)(code[entry.__name__])
    vars(function)["code"] = code
    return function


def begin(r: Routine, rt: Any) -> None:
    nothing = const(PTR, 0)
    r.rt = r.ref("Runtime", rt)
    r.state, r.frame = r.ref("State", nothing), r.ref("Frame", nothing)


@routine(I1, failure=0)
def is_small(r: Routine, number: Word) -> None:
    r.require(r.icmp("slt", number, 3))


@routine(I64, failure=-1, entry=True)
def with_references(r: Routine, rt: Object, object: Object, number: Word) -> None:
    """Leaves at each step by the number, with none, one or two references taken."""
    begin(r, rt)
    r.require(r.ne(number, 0))
    with r.owned(r.retain(object)):
        r.require(r.ne(number, 1), -2)
        with r.owned(r.retain(object)):
            r.require(is_small(r, number), -3)
            with r.when(r.eq(number, 2)):
                r.ret(22)
    r.ret(33)


@routine(I64, failure=-1, entry=True)
def unless_left(r: Routine, rt: Object, object: Object, number: Word) -> None:
    """Takes a reference for good, but for number 0."""
    begin(r, rt)
    with r.owned(r.retain(object), unless_left=True):
        r.require(r.ne(number, 0))
        with r.when(r.eq(number, 1)):
            r.ret(1)
    r.ret(2)


def native() -> Runtime:
    found = runtime()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("entry", "number", "gives", "kept"),
    [
        (with_references, 0, -1, 0),
        (with_references, 1, -2, 0),
        (with_references, 2, 22, 0),
        (with_references, 3, -3, 0),
        (with_references, -7, 33, 0),
        (unless_left, 0, -1, 0),
        (unless_left, 1, 1, 1),
        (unless_left, 2, 2, 1),
    ],
)
def test_references_are_released_on_every_exit_path(
    entry: Any, number: int, gives: int, kept: int
) -> None:
    function, owner = compiled(entry), [object()]
    before = sys.getrefcount(owner[0])
    address = native().address
    given = {function(address, owner[0], number) for _ in range(10)}
    after = sys.getrefcount(owner[0])
    assert given == {gives}
    assert after == before + 10 * kept


@routine(I64, entry=True)
def count_down(r: Routine, rt: Object, object: Object, number: Word) -> None:
    """The sum of the numbers down to 1."""
    with r.repeated(number, const(I64, 0)) as loop:
        n, total = loop.carried
        loop.stop_if(r.icmp("sle", n, 0))
        loop.following = [r.sub(n, 1), r.add(total, n)]
    sign = r.choose(r.icmp("slt", number, 0), lambda: const(I64, -1), lambda: const(I64, 1))
    r.ret(r.mul(total, sign))


@pytest.mark.parametrize("n", [-2, 0, 1, 10])
def test_repeated(n: int) -> None:
    assert compiled(count_down)(0, None, n) == sum(range(1, n + 1))


def test_fields_have_types() -> None:
    @routine(I64, entry=True)
    def wrong(r: Routine, number: Word) -> None:
        Ref(r, "State", const(PTR, 0))["params"] = number

    with pytest.raises(TypeError, match="a field of type ptr cannot hold i64"):
        text_of("test", [wrong])


def test_two_routines_of_one_name_are_rejected() -> None:
    def named() -> Any:
        @routine(I1)
        def same(r: Routine) -> None: ...

        return same

    first, second = named(), named()

    @routine(I64, entry=True)
    def both(r: Routine, number: Word) -> None:
        begin(r, const(PTR, 0))
        first(r)
        second(r)

    with pytest.raises(ValueError, match="two routines are named same"):
        text_of("test", [both])


def test_fields_do_not_overlap() -> None:
    for struct in ("Runtime", "State", "Record", "Frame", "Param", "Bound"):
        offsets = [field.offset for field in FIELDS[struct].values()]
        assert offsets == sorted(set(offsets)), struct
