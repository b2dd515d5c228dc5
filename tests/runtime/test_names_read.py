"""Analysis of the arguments that a grid function reads, and the dict that it receives."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.runtime.native_cases import outcome
from tilewright.runtime.jit import JITFunction, jit
from tilewright.runtime.native.layout import GRID_NAMES, GRIDS
from tilewright.runtime.native.names_read import names_read

Grid = Callable[..., Any]

SIZE = 3


def cdiv(x: int, y: int) -> int:
    return -(-x // y)


def of_a_local(meta: dict[str, Any], n: int = 3) -> Any:
    wide = n * 2
    return (wide // meta["BLOCK"], n + meta["n"])


def of_two_dictionaries(meta: dict[str, Any]) -> Any:
    other = {"BLOCK": 2}
    return ((other if SIZE else meta)["n"],)


def within_itself(meta: dict[str, Any]) -> Any:
    return (meta[meta["key"]],)


def of_a_function_within(meta: dict[str, Any]) -> Any:
    return (lambda: meta["n"])()


def changed(meta: dict[str, Any]) -> Any:
    meta["n"] = 3
    return (meta["n"],)


def increased(meta: dict[str, Any]) -> Any:
    meta["n"] += 1
    return (1,)


def emptied(meta: dict[str, Any]) -> Any:
    del meta["n"]
    return (1,)


def replaced(meta: dict[str, Any]) -> Any:
    meta = {"n": 1, **meta}
    return (meta["n"],)


def stored_and_read(meta: dict[str, Any]) -> Any:
    return ((meta := {"n": 2})["n"], meta["n"])


def told_by_locals(meta: dict[str, Any]) -> Any:
    return (len(locals()["meta"]) + meta["n"],)


def told_by_the_frame(meta: dict[str, Any]) -> Any:
    return (len(sys._getframe().f_locals["meta"]) + meta["n"],)


READ = [
    (lambda meta: (4,), []),
    (lambda meta: (cdiv(meta["n"], meta["BLOCK"]),), ["n", "BLOCK"]),
    (lambda m: (m["n"] if m["BLOCK"] > 1 else m["k"], m["n"]), ["BLOCK", "n", "k"]),
    (lambda meta: (meta["x"].size * SIZE,), ["x"]),
    (of_a_local, ["BLOCK", "n"]),
    (of_two_dictionaries, ["n"]),
    (within_itself, None),
    (of_a_function_within, None),
    (changed, None),
    (increased, None),
    (emptied, None),
    (replaced, None),
    (told_by_locals, None),
    (told_by_the_frame, None),
    (lambda meta: (len(meta),), None),
    (lambda meta: (meta.get("n", 1),), None),
    (lambda meta: ("n" in meta,), None),
    (lambda meta: (meta[0],), None),
    (lambda meta: meta, None),
    (lambda meta: {**meta}, None),
    (lambda meta: (meta["n"], meta), None),
    (stored_and_read, None),
    (lambda *meta: meta, None),
    (lambda **meta: (meta["n"],), None),
    (lambda: (1,), None),
]


@pytest.mark.parametrize("number", range(len(READ)))
def test_names_read_by_bytecode(number: int) -> None:
    function, names = READ[number]
    assert names_read(function.__code__) == names


# -- what they are given --------------------------------------------------------------------------


def fill(out, a, b, c, d, e, f, n, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id(0), a + n)


ARGUMENTS = dict(zip("abcdefn", range(7), strict=True))


@pytest.fixture
def kernel() -> JITFunction:
    """A kernel whose next launches are native."""
    made = jit(fill)
    for _ in range(2):
        made[(1,)](np.zeros(8, np.int32), **ARGUMENTS, BLOCK=4)
    return made


def filled(kernel: JITFunction, grid: Grid, **changes: Any) -> list[int]:
    """What a launch writes: as many elements as there are programs."""
    out = np.full(8, -1, np.int32)
    kernel[grid](out, **{**ARGUMENTS, "BLOCK": 4, **changes})
    return out.tolist()


def written(count: int, value: int) -> list[int]:
    return [value] * count + [-1] * (8 - count)


def test_each_launch_uses_its_own_arguments(kernel: JITFunction) -> None:
    def grid(meta: dict[str, Any]) -> Any:
        return (meta["n"] // meta["BLOCK"], len(meta["out"]) // 8)

    for n in (4, 8, 30, 4, 5):
        assert filled(kernel, grid, n=n) == written(n // 4, n)
        assert filled(kernel, grid, n=n, a=3) == written(n // 4, n + 3)


def test_more_functions_than_the_cache_holds(kernel: JITFunction) -> None:
    """Their code is inspected again, and none receives the names of another."""
    grids: list[Grid] = [
        lambda meta: (meta["a"] + 1,),
        lambda meta: (meta["b"],),
        lambda meta: (meta["c"],),
        lambda meta: (meta["d"],),
        lambda meta: (meta["e"],),
        lambda meta: (len(meta) - 3,),
        lambda meta: (meta["n"],),
    ]
    assert len(grids) > GRIDS
    counts = [1, 1, 2, 3, 4, 6, 6]
    for _ in range(3):
        for grid, count in zip(grids, counts, strict=True):
            assert filled(kernel, grid) == written(count, 6)


def test_functions_created_for_each_launch(kernel: JITFunction) -> None:
    """Code whose memory another function's code takes over is not taken for it."""
    for i in range(200):
        names = "abcdefn"
        scope: dict[str, Any] = {}
        exec(f"grid = lambda meta: (meta[{names[i % 7]!r}] + 1,)", scope)
        assert filled(kernel, scope["grid"]) == written(i % 7 + 1, 6)


@pytest.mark.parametrize("count", [GRID_NAMES - 1, GRID_NAMES, GRID_NAMES + 1])
def test_functions_of_many_arguments(kernel: JITFunction, count: int) -> None:
    names = [*"nabcdef"][:count]
    scope: dict[str, Any] = {}
    exec(f"grid = lambda meta: ({' + '.join(f'meta[{name!r}]' for name in names)},)", scope)
    for n in (6, 1):
        given = dict.fromkeys(ARGUMENTS, 0) | {"n": n, names[-1]: 1}
        assert filled(kernel, scope["grid"], **given) == written(n + 1, n)


def test_a_name_of_no_parameter(kernel: JITFunction) -> None:
    out = np.zeros(8, np.int32)

    def grid(meta: dict[str, Any]) -> Any:
        return (meta["num_warps"],)

    got = outcome(kernel[grid], out, **ARGUMENTS, BLOCK=4)
    assert got == outcome(kernel.run, out, **ARGUMENTS, BLOCK=4, grid=grid)
    assert got[0] is KeyError


def test_arguments_are_not_kept(kernel: JITFunction) -> None:
    out = np.zeros(8, np.int32)

    def grid(meta: dict[str, Any]) -> Any:
        return (meta["out"].size // 8,)

    before = sys.getrefcount(out)
    for _ in range(3):
        kernel[grid](out, **ARGUMENTS, BLOCK=4)
    assert sys.getrefcount(out) == before
