"""Writes the products of a computation: by `tl.dot`, or by the sum of elementwise products.

The elements are small whole numbers, so that a sum is exact in any order and type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.forms.computation import Inner, Matrix, Product, sum_type
from tests.fuzz.forms.expressions import written
from tests.fuzz.programs.kinds import tl
from tilewright.ir.types import FP32

if TYPE_CHECKING:
    from tests.fuzz.forms.kernel import Form

MOST_ELEMENTS = 8192  # of a tile of elementwise products


def extent(form: Form, size: int) -> int:
    """The extent of a tile that holds a whole row: a power of two, as GPUs require at least 32."""
    least = 1 << max(size - 1, 31).bit_length()
    return least * form.rng.choice((1, 1, 1, 2))


def start_inner(form: Form, s: Inner) -> None:
    """Before the loop: the row, or the rows, of the left matrix."""
    block = form.extents[s.to] = extent(form, s.left.columns)
    form.emit(f"{s.to}_at = tl.arange(0, {block})")
    at = f"{s.to}_at[None, :]" if form.is_2d else f"{s.to}_at"
    mask = f"(row < M) & ({at} < {s.left.columns})" if form.is_2d else f"{at} < {s.left.columns}"
    left = f"{s.left.name} + row * {s.left.name}_0 + {at} * {s.left.name}_1"
    form.emit(f"{s.to}_left = tl.load({left}, mask={mask}, other=0)")


def add_inner(form: Form, s: Inner) -> None:
    """A tile of products of rows."""
    right, block, acc = f"{s.to}_right", form.extents[s.to], tl(sum_type(s.left.dtype))
    _load(form, right, s.right, f"{s.to}_at[None, :]", s.right.columns)
    left = f"{s.to}_left"
    columns = form.block[1]
    if not form.is_2d:
        if form.rng.random() < 0.6:
            form.emit(f"{s.to} = tl.sum({left}[None, :].to({acc}) * {right}.to({acc}), 1)")
        else:
            rows = f"tl.broadcast_to({left}[None, :], [16, {block}])"
            form.emit(f"{s.to} = tl.max({dot(form, s.left, rows, f'tl.trans({right})')}, 0)")
    elif form.block[0] * columns * block <= MOST_ELEMENTS and form.rng.random() < 0.4:
        product = f"{left}[:, None, :].to({acc}) * {right}[None, :, :].to({acc})"
        form.emit(f"{s.to} = tl.sum({product}, 2)")
    else:
        form.emit(f"{s.to} = {dot(form, s.left, left, f'tl.trans({right})')}")


def start_product(form: Form, s: Product) -> None:
    """Before the loop: an accumulator."""
    block = form.extents[s.to] = extent(form, s.right.columns)
    form.emit(f"{s.to}_at = tl.arange(0, {block})")
    shape = f"[BM, {block}]" if form.is_2d else f"[{block}]"
    form.emit(f"{s.to} = tl.zeros({shape}, {tl(sum_type(s.right.dtype))})")


def add_product(form: Form, s: Product) -> None:
    """The product of a block of columns."""
    x, right, block = form.new("h"), f"{s.to}_right", form.extents[s.to]
    acc = tl(sum_type(s.right.dtype))
    form.emit(f"{x} = tl.broadcast_to({form.text(s.value)}, {form.tile})")
    _load(form, right, s.right, f"{s.to}_at[None, :]", s.right.columns)
    if not form.is_2d:
        if form.rng.random() < 0.6:
            form.emit(f"{s.to} += tl.sum({x}[:, None].to({acc}) * {right}.to({acc}), 0)")
        else:
            rows = f"tl.broadcast_to({x}[None, :], [16, BN])"
            form.emit(f"{s.to} += tl.max({dot(form, s.right, rows, right)}, 0)")
        return
    is_small = form.block[0] * form.block[1] * block <= MOST_ELEMENTS
    match form.rng.choice(("acc", "acc", "add", "turned", *["sum"] * is_small)):
        case "acc":
            form.emit(f"{s.to} = {dot(form, s.right, x, right, s.to)}")
        case "add":
            form.emit(f"{s.to} += {dot(form, s.right, x, right)}")
        case "turned":
            product = dot(form, s.right, f"tl.trans({right})", f"tl.trans({x})")
            form.emit(f"{s.to} += tl.trans({product})")
        case _:
            product = f"{x}[:, :, None].to({acc}) * {right}[None, :, :].to({acc})"
            form.emit(f"{s.to} += tl.sum({product}, 1)")


def finish_product(form: Form, s: Product) -> None:
    """After the loop: what is computed from the product is stored."""
    at = f"{s.to}_at[None, :]" if form.is_2d else f"{s.to}_at"
    value = written(s.result, lambda text, _: text)  # detours are of tiles of other extents
    mask = f"({at} < {s.into.columns})" + (" & (row < M)" if form.is_2d else "")
    place = f"{s.into.name} + row * {s.into.name}_0 + {at} * {s.into.name}_1"
    form.emit(f"tl.store({place}, {value}, mask={mask})")


def dot(form: Form, operand: Matrix, left: str, right: str, acc: str = "") -> str:
    precision = ""
    if operand.dtype is FP32:
        precision = form.rng.choice(
            ("", ', input_precision="ieee"', ', input_precision="tf32x3"', ", allow_tf32=True")
        )
    return f"tl.dot({left}, {right}{', ' + acc if acc else ''}{precision})"


def _load(form: Form, to: str, matrix: Matrix, at: str, columns: int) -> None:
    """Rows of a matrix, one for each column of the block."""
    rows = f"({form.start} + tl.arange(0, BN)[:, None])"
    place = f"{matrix.name} + {rows} * {matrix.name}_0 + {at} * {matrix.name}_1"
    mask = f"({rows} < N) & ({at} < {columns})"
    form.emit(f"{to} = tl.load({place}, mask={mask}, other=0)")
