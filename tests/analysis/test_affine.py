"""The affine form of tiles, against the elements that the interpreter computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.analysis.recording import Array, elements, kernel_ir, moments
from tilewright.analysis.affine import Affine, AffineForms
from tilewright.analysis.polynomial import Atom, Iteration, Polynomial
from tilewright.ir.core import Module, Value
from tilewright.ir.types import is_pointer
from tilewright.ops.arith import Add, Constant, Mul
from tilewright.ops.control import ProgramId
from tilewright.ops.memory import AddPtr, Load, pointee_of
from tilewright.ops.shape import Arange, Splat

BASE = 1 << 40
NUMBERS = [(3, 5, 64), (-7, 1, 0), (1000, -3, 17), (2**30, 2**29, 2**31 - 1)]


def of_index(index: str) -> Module:
    """A kernel that loads from `x` at an index of `s`, `t`, `n` (i32) and `wide` (i64)."""
    return kernel_ir(
        f"""
        def kernel(x, s, t, n, wide):
            pid = tl.program_id(0)
            row = tl.arange(0, 8)
            column = tl.arange(0, 16)
            tile = row[:, None] * 0 + column[None, :]
            tl.load(x + ({index}), volatile=True)
        """,
        "*fp32, i32, i32, i32, i64",
    )


INDICES = {
    "arange": "column",
    "shifted": "pid * 16 + column",
    "rows": "row[:, None] * s + column",
    "rows of 64 bits": "(row.to(tl.int64) * wide)[:, None] + column",
    "both strides": "(pid * 8 + row)[:, None] * s + (column + t)[None, :] * t",
    "negative": "n - 1 - column",
    "a stride of zero": "row[:, None] * 0 + column * 0 + n",
    "shift left": "(row << 4)[:, None] + (column << 1)",
    "negated": "-(row[:, None] * s) + -column",
    "turned": "(row[None, :] * s + column[:, None]).T",
    "merged": "(row[:, None] * 16 + column).reshape(128)",
    "split": "tl.arange(0, 128).reshape(8, 16) * s",
    "split and merged": "tl.arange(0, 128).reshape(8, 4, 4).reshape(32, 4).reshape(8, 16)",
    "not to be merged": "(row[:, None] * s + column).reshape(128)",
    "a unit axis more": "row.reshape(1, 8, 1) * s + column.reshape(1, 1, 16)",
    "flipped": "tl.flip(column * s + n)",
    "remainder": "((pid * 8 + row) % n)[:, None] * s + column",
    "remainder of columns": "row[:, None] * s + (pid * 16 + column) % t",
    "quotient": "(tile // 3) * s + tile % 3",
    "remainder turned": "((pid * 8 + row) % n)[None, :].permute(1, 0) + row[:, None]",
    "product of both": "row[:, None] * column",
    "chosen": "tl.where(column < n, column, 0) + row[:, None] * s",
    "cancelled": "row[:, None] * s + column - row[:, None] * s",
    "unsigned": "column.to(tl.uint32) * 3 + s.to(tl.uint32) + row.to(tl.uint32)[:, None]",
    "bytes": "(row.to(tl.int8) * 64).to(tl.int64)[:, None] + column",
    "narrowed": "((row.to(tl.int64) * wide).to(tl.int32) + s)[:, None] + column",
    "in 16 bits": "(column.to(tl.int16) * 3).to(tl.int32)",
    "two scalars": "row[:, None] * s + row[:, None] * t + column",
    "many scalars": "((row[:, None] + s) * t + column + n) * t + s * n",
}  # fmt: skip


def congruent(form: Affine, value: Value, array: Array, values: Mapping[Atom, Array]) -> bool:
    """Whether the elements equal the form, modulo their width."""
    found = elements(form, value, values)
    numbers = array.astype(object)
    bits = array.dtype.itemsize * 8
    if is_pointer(value.type):
        if form.base is None:
            return True
        size = pointee_of(value.type).nbytes_in_memory
        numbers = (numbers - int(values[form.base])) // size
        bits -= 2
    return not np.any((numbers - found) % 2**bits)


def wraps(form: Affine, forms: AffineForms, values: Mapping[Atom, Array]) -> bool:
    """Whether something wraps that the form assumes not to."""
    return any(
        np.any(values[v].astype(object) != elements(forms.of(v), v, values)) for v in form.assumed
    )


@pytest.mark.parametrize("through_scalars", [False, True])
@pytest.mark.parametrize("name", INDICES)
def test_elements_equal_the_affine_form(name: str, through_scalars: bool) -> None:
    module = of_index(INDICES[name])
    forms = AffineForms(through_scalars=through_scalars)
    checked = 0
    for s, t, n in NUMBERS:
        for wide in (s, s % 1000 * 2**33):
            for moment in moments(module, (3,), [BASE, s, t, n, wide]):
                for value, array in moment.values.items():
                    if isinstance(value, Iteration) or array.dtype.kind not in "iu":
                        continue
                    form = forms.of(value)
                    if wraps(form, forms, moment.values):
                        continue
                    checked += array.ndim > 0
                    assert congruent(form, value, array, moment.values), (value, form)
    assert checked


def form_of(index: str) -> tuple[AffineForms, Affine, Value]:
    module = of_index(index)
    load = next(op for op in module.walk() if isinstance(op, Load))
    forms = AffineForms()
    return forms, forms.of(load.ptr), load.ptr


def names(module_value: Value) -> Any:
    """Names of arguments, and of program ids."""

    def name(atom: Atom) -> str:
        if isinstance(atom, Iteration):
            return "turn"
        if isinstance(atom.op, ProgramId):
            return "pid"
        return "xstnw"[atom.index] if atom.op is None else "computed"

    return name


@pytest.mark.parametrize(
    ("name", "strides"),
    [
        ("arange", ["1"]),
        ("rows", ["s", "1"]),
        ("rows of 64 bits", ["w", "1"]),
        ("both strides", ["s", "t"]),
        ("negative", ["-1"]),
        ("a stride of zero", ["0", "0"]),
        ("shift left", ["16", "2"]),
        ("turned", ["s", "1"]),
        ("merged", ["1"]),
        ("split", ["16*s", "s"]),
        ("split and merged", ["16", "1"]),
        ("not to be merged", None),
        ("flipped", ["-s"]),
        ("cancelled", ["0", "1"]),
        ("two scalars", ["s + t", "1"]),
        ("remainder", [None, "1"]),
        ("remainder of columns", ["s", None]),
        ("chosen", ["s", None]),
        ("product of both", [None, None]),
    ],
)
def test_strides(name: str, strides: list[str | None] | None) -> None:
    forms, form, pointer = form_of(INDICES[name])
    found = [form.stride(axis) for axis in range(len(form.strides))]
    texts = [s and s.text(names(pointer)) if s is None or s else "0" for s in found]
    assert texts == (strides or [None] * len(found))
    constants = [None if s is None else s.constant for s in found]
    assert list(forms.constant_strides(pointer)) == constants


def test_remainder_records_its_dividend() -> None:
    _, form, pointer = form_of(INDICES["remainder"])
    ((coefficient, piece),) = form.pieces
    assert coefficient.text(names(pointer)) == "s"
    assert piece.is_remainder
    assert piece.axes == (0,)
    assert piece.divisor is not None
    assert piece.index is not None
    assert piece.divisor.text(names(pointer)) == "n"
    assert [s.constant for s in piece.index.strides] == [1]


def test_ranges_prove_that_narrow_integers_do_not_wrap() -> None:
    for index, assumed in [
        ("column.to(tl.int64) * wide", 0),
        ("(column * 1000).to(tl.int64)", 0),
        ("(column.to(tl.int8) * 8).to(tl.int64)", 0),  # up to 120
        ("column * s", 1),
        ("(column + pid).to(tl.int64)", 1),
        ("(column + (pid & 255)).to(tl.int64)", 0),
    ]:
        _, form, _ = form_of(index)
        assert len(form.assumed) == assumed, index


def test_bytes_that_may_wrap_have_no_form() -> None:
    _, form, _ = form_of("(column.to(tl.int8) * 9).to(tl.int64)")  # up to 135
    assert not form.assumed
    assert form.pieces


LOOPS = {
    "a tile that a loop moves": """
        def kernel(x, s, n):
            at = tl.arange(0, 8) * s
            for i in range(0, n):
                tl.load(x + at, volatile=True)
                at += tl.arange(0, 8) * 2 + s
        """,
    "twice": """
        def kernel(x, s, n):
            at = tl.arange(0, 8)
            for i in range(3, n, 2):
                for j in range(0, 3):
                    tl.load(x + at, volatile=True)
                    at = at + s - tl.arange(0, 8)
        """,
    "by what changes": """
        def kernel(x, s, n):
            at = tl.arange(0, 8) * s
            for i in range(0, n):
                tl.load(x + at, volatile=True)
                at += i
        """,
    "restarted": """
        def kernel(x, s, n):
            at = tl.arange(0, 8) * s
            for i in range(0, n):
                tl.load(x + at, volatile=True)
                at = tl.arange(0, 8) + i
        """,
    "pointers": """
        def kernel(x, s, n):
            p = x + tl.arange(0, 8) * s
            for i in range(0, n):
                tl.load(p, volatile=True)
                p += s * 8
        """,
}


@pytest.mark.parametrize("through_scalars", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str, through_scalars: bool) -> None:
    module = kernel_ir(LOOPS[name], "*fp32, i32, i32")
    forms = AffineForms(through_scalars=through_scalars)
    loads = [op for op in module.walk() if isinstance(op, Load)]
    for s in (1, -5, 2**29):
        for moment in moments(module, (1,), [BASE, s, 9]):
            for value, array in moment.values.items():
                if isinstance(value, Iteration) or array.dtype.kind not in "iu":
                    continue
                # A value that an inner loop carries differs after the loop.
                form = forms.of(value)
                if not wraps(form, forms, moment.values) and value is loads[0].ptr:
                    assert congruent(form, value, array, moment.values), (value, form)
    known = all(forms.of(load.ptr).stride(0) is not None for load in loads)
    assert known == (name not in ("by what changes", "restarted", "twice"))


def test_long_chains_take_linear_time() -> None:
    """Neither recursion nor growth: both kinds of chain are bounded."""
    sums: Value = Arange(0, 8).result
    for _ in range(5000):
        sums = Add(sums, sums).result
    assert AffineForms().constant_strides(sums) == (None,)  # 2^5000
    scalars = [ProgramId(0).result for _ in range(40)]
    powers = Add(Arange(0, 8).result, Splat(scalars[0], (8,)).result).result
    for scalar in scalars:
        powers = Mul(powers, Add(powers, Splat(scalar, (8,)).result).result).result
        powers = Add(powers, Splat(scalar, (8,)).result).result
    assert AffineForms().of(powers).pieces


def test_offsets_of_any_width_are_extended() -> None:
    pointer = kernel_ir("def kernel(x, n):\n    tl.store(x + n, 0.0)", "*fp32, i32").entry.args[0]
    tile = Splat(pointer, (8,)).result
    small = Mul(Arange(0, 8).result, Constant(2**28, Arange(0, 8).result.type).result).result
    form = AffineForms().of(AddPtr(tile, small).result)
    assert form.base is pointer
    assert form.strides == (Polynomial.of(2**28),)
    assert not form.assumed  # 7 * 2^28 fits
    large = Mul(Arange(0, 9).result, Constant(2**28, Arange(0, 9).result.type).result).result
    form = AffineForms().of(AddPtr(Splat(pointer, (9,)).result, large).result)
    assert form.assumed == (large,)
