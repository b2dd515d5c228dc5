"""Where values pass from the layout of a matrix instruction to that of memory, or between those of
accesses along two axes."""

from __future__ import annotations

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.harness import laid_out
from tilewright.analysis.axis_info import axis_info
from tilewright.ir.core import Value
from tilewright.ir.types import dtype_of, element_of, is_pointer, shape_of
from tilewright.ops.control import For
from tilewright.ops.gpu import ConvertLayout
from tilewright.ops.memory import Load, Store
from tilewright.targets.nvidia.steps import STEPS
from tilewright.targets.nvidia.target import NvidiaTarget

FEATURES = NvidiaTarget(90).features()


def moved(epilogue: str, stored: str = "bf16") -> list[Value]:
    """What is converted in a kernel that computes with an accumulator `acc` and loaded `x`, `y`."""
    kernel = kernel_from(f"""
        def kernel(a, b, x_ptr, y_ptr, out, n, BF: tl.constexpr = tl.bfloat16):
            x_ptr, y_ptr = tl.multiple_of(x_ptr, 16), tl.multiple_of(y_ptr, 16)
            out = tl.multiple_of(out, 16)
            at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
            acc = tl.zeros((64, 64), tl.float32)
            for i in range(n):
                acc = tl.dot(tl.load(a + at), tl.load(b + at), acc)
            x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
            {epilogue}
    """)
    pointers = dict.fromkeys(("a", "b", "x_ptr", "y_ptr"), "*bf16")
    signature = {**pointers, "out": f"*{stored}", "n": "i32"}
    ready = laid_out(
        build(kernel, signature), warps=4, lanes=32, features=FEATURES, layout_steps=STEPS
    )
    return [op.operands[0] for op in ready.entry.walk() if isinstance(op, ConvertLayout)]


@pytest.mark.parametrize(
    ("epilogue", "stored", "types"),
    [
        pytest.param("tl.store(out + at, acc)", "fp32", ["fp32"], id="to whole lines"),
        pytest.param("tl.store(out + at, acc.to(BF))", "bf16", ["bf16"], id="after the cast"),
        pytest.param(
            "tl.store(out + at, acc * tl.exp(-x.to(tl.float32)) + x)",
            "fp32",
            ["fp32"],
            id="to whole lines, in which the others are loaded",
        ),
        pytest.param(
            "tl.store(out + at, (acc + x).to(BF))",
            "bf16",
            ["bf16", "bf16"],
            id="as before where it is all the same",
        ),
        pytest.param(
            "tl.store(out + at, (acc * x + y).to(BF))",
            "bf16",
            ["fp32"],
            id="the accumulator instead of three",
        ),
        pytest.param(
            "tl.store(out + at, (acc * x).to(BF)); tl.store(out + 4096 + at, (acc * y).to(BF))",
            "bf16",
            ["fp32"],
            id="the accumulator instead of four",
        ),
        pytest.param(
            "tl.store(out + at, ((acc - tl.max(acc, 1)[:, None]) * x + y).to(BF))",
            "bf16",
            ["fp32"],
            id="a reduction stays where it was",
        ),
    ],
)
def test_element_types_of_moved_values(epilogue: str, stored: str, types: list[str]) -> None:
    found = moved(epilogue, stored)
    large = [v for v in found if len(v.type.shape) == 2 and v.type.shape[1] > 1]
    assert [dtype_of(v.type).short for v in large] == types


def test_an_operand_that_several_warps_hold_is_computed_once() -> None:
    """Converting the words that it is unpacked from would take fewer bytes, and twice the work."""
    kernel = kernel_from("""
        def kernel(a, w, out, n):
            w = tl.multiple_of(w, 16)
            m, words = tl.arange(0, 32), tl.arange(0, 4)
            shifts = (tl.arange(0, 32) % 8) * 4
            acc = tl.zeros((32, 32), tl.float32)
            for i in range(n):
                b = tl.load(w + m[:, None] * 4 + words[None, :])
                for _ in tl.static_range(3):
                    b = tl.interleave(b, b)
                b = ((b >> shifts[None, :]) & 15) * i
                acc = tl.dot(tl.load(a + m[:, None] * 32 + m[None, :]), b.to(tl.float16), acc)
            tl.store(out + m[:, None] * 32 + m[None, :], acc)
    """)
    signature = {"a": "*fp16", "w": "*i32", "out": "*fp32", "n": "i32"}
    ready = laid_out(
        build(kernel, signature), warps=4, lanes=32, features=FEATURES, layout_steps=STEPS
    )
    loop = next(op for op in ready.entry.walk() if isinstance(op, For))
    moved = [op.operands[0] for op in loop.body.walk() if isinstance(op, ConvertLayout)]
    assert [(dtype_of(v.type).short, shape_of(v.type)) for v in moved] == [("fp16", (32, 32))]


def test_rows_of_results_stay_with_the_threads_that_have_them() -> None:
    """Four threads have each row of scores; warps do not exchange the running maxima."""
    kernel = kernel_from("""
        def kernel(a, b, out, most, n):
            m, k = tl.arange(0, 64), tl.arange(0, 32)
            x = tl.load(a + m[:, None] * 32 + k[None, :])
            acc = tl.zeros((64, 32), tl.float32)
            greatest = tl.full((64,), -float("inf"), tl.float32)
            for i in range(n):
                y = tl.load(b + i * 1024 + k[:, None] * 32 + k[None, :])
                score = tl.dot(x, y)
                before = greatest
                greatest = tl.maximum(before, tl.max(score, 1) * 0.5)
                weight = tl.exp2(score * 0.5 - greatest[:, None])
                acc = acc * tl.exp2(before - greatest)[:, None]
                acc = tl.dot(weight.to(tl.float16), y, acc)
            tl.store(out + m[:, None] * 32 + k[None, :], acc)
            tl.store(most + m, greatest)
    """)
    signature = {"a": "*fp16", "b": "*fp16", "out": "*fp32", "most": "*fp32", "n": "i32"}
    ready = laid_out(
        build(kernel, signature), warps=4, lanes=32, features=FEATURES, layout_steps=STEPS
    )
    loop = next(op for op in ready.entry.walk() if isinstance(op, For))
    moved = [op.operands[0] for op in loop.body.walk() if isinstance(op, ConvertLayout)]
    assert not [v for v in moved if len(shape_of(v.type)) == 1]


@pytest.mark.parametrize(
    ("body", "types"),
    [
        pytest.param("tl.store(out + at, x)", ["bf16"], id="transposed"),
        pytest.param("tl.store(out + at, x + y)", ["bf16"], id="before the sum"),
        pytest.param("tl.store(out + turned, x + y)", ["bf16"], id="the other one"),
        pytest.param(
            "tl.store(out + at, x.to(tl.float32) + y.to(tl.float32))",
            ["bf16"],
            id="before the cast",
        ),
        pytest.param(
            "both = x + y; tl.store(out + at, both); tl.store(out + 4096 + turned, both)",
            ["bf16", "bf16"],
            id="stored along both",
        ),
        pytest.param(
            "tl.store(out + at, (x.to(tl.float32) * y).to(tl.float8e5))",
            ["bf16"],
            id="from where there are fewer bytes",
        ),
        pytest.param("tl.store(out + at, x.to(tl.float8e5))", ["fp8e5"], id="the smaller result"),
    ],
)
def test_accesses_along_two_axes(body: str, types: list[str]) -> None:
    """Each access is of vectors along its axis, and each tile crosses over at most once."""
    kernel = kernel_from(f"""
        def kernel(x_ptr, y_ptr, out):
            x_ptr, y_ptr = tl.multiple_of(x_ptr, 16), tl.multiple_of(y_ptr, 16)
            out = tl.multiple_of(out, 16)
            at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
            turned = tl.arange(0, 64)[:, None] + tl.arange(0, 64)[None, :] * 64
            x, y = tl.load(x_ptr + turned), tl.load(y_ptr + at)
            {body}
    """)
    stored = "fp8e5" if "float8" in body else "fp32" if "float32" in body else "bf16"
    signature = {"x_ptr": "*bf16", "y_ptr": "*bf16", "out": f"*{stored}"}
    ready = laid_out(
        build(kernel, signature), warps=4, lanes=32, features=FEATURES, layout_steps=STEPS
    )
    found = [op.operands[0] for op in ready.entry.walk() if isinstance(op, ConvertLayout)]
    assert [dtype_of(v.type).short for v in found] == types
    infos = axis_info(ready.entry)
    for op in ready.entry.walk():
        if isinstance(op, Load | Store):
            layout = op.ptr.layout
            assert layout is not None
            assert layout.num_consecutive((infos[op.ptr].order[0],)) >= 4, op.loc


@pytest.mark.parametrize("warps", [1, 4])
def test_what_is_converted_was_not_converted_before(warps: int) -> None:
    """A value that is needed in a third layout comes from the first, as loaded."""
    kernel = kernel_from("""
        def kernel(q, v, state, n):
            q, v, state = tl.multiple_of(q, 16), tl.multiple_of(v, 16), tl.multiple_of(state, 16)
            row, column = tl.arange(0, 128), tl.arange(0, 8)
            at = row[:, None] * 128 + column[None, :]
            h = tl.load(state + at)
            for t in range(n):
                x = tl.load(q + t * 128 + row).to(tl.float32)
                x = x / tl.sqrt(tl.sum(x * x))
                y = tl.load(v + column).to(tl.float32) - tl.sum(h * x[:, None], 0)
                h += x[:, None] * y[None, :]
            tl.store(state + at, h)
    """)
    signature = {"q": "*bf16", "v": "*bf16", "state": "*fp32", "n": "i32"}
    ready = laid_out(
        build(kernel, signature), warps=warps, lanes=32, features=FEATURES, layout_steps=STEPS
    )
    converted = [op.src for op in ready.entry.walk() if isinstance(op, ConvertLayout)]
    assert converted
    assert not any(isinstance(value.op, ConvertLayout) for value in converted)


def test_addresses_of_rows_by_a_table_are_computed_where_they_are_used() -> None:
    """The numbers of rows are exchanged, or loaded again, instead of all addresses of a tile."""
    kernel = kernel_from("""
        def kernel(x, w, table, out, n):
            x, w = tl.multiple_of(x, 16), tl.multiple_of(w, 16)
            m, k, c = tl.arange(0, 128), tl.arange(0, 32), tl.arange(0, 64)
            acc = tl.zeros((128, 64), tl.float32)
            for i in range(n):
                rows = tl.load(table + m * 27 + i)
                known = (rows >= 0)[:, None]
                a = tl.load(x + rows[:, None] * 64 + k[None, :], mask=known, other=0.0)
                acc = tl.dot(a, tl.load(w + (i * 32 + k)[:, None] * 64 + c[None, :]), acc)
            tl.store(out + m[:, None] * 64 + c[None, :], acc)
    """)
    pointers = {"x": "*fp16", "w": "*fp16", "table": "*i32", "out": "*fp32"}
    module = build(kernel, {**pointers, "n": "i32"})
    ready = laid_out(module, warps=4, lanes=32, features=FEATURES, layout_steps=STEPS)
    found = [op.operands[0].type for op in ready.entry.walk() if isinstance(op, ConvertLayout)]
    assert [shape_of(type) for type in found if is_pointer(element_of(type))] == []


@pytest.mark.parametrize(("columns", "out", "exchanged"), [(128, 2, 0), (512, 2, 1), (128, 1, 1)])
def test_weights_of_several_rows_are_loaded_by_each_thread(
    columns: int, out: int, exchanged: int
) -> None:
    """A thread loads its 8 columns at once, and widens them itself, unless there are more columns
    than threads, or another thread may have stored to them."""
    kernel = kernel_from(f"""
        def kernel(x, w, out):
            x, w = tl.multiple_of(x, 16), tl.multiple_of(w, 16)
            row, column = tl.arange(0, 16), tl.arange(0, {columns})
            at = row[:, None] * {columns} + column[None, :]
            y = tl.load(x + at).to(tl.float32)
            y = y / tl.sqrt(tl.sum(y * y, 1))[:, None]
            tl.store(out + at, y * tl.load(w + column).to(tl.float32)[None, :])
    """)
    module = build(kernel, {"x": "*bf16", "w": "*bf16", "out": "*fp32"})
    for attrs, alias in zip(module.entry.arg_attrs, (0, 1, out), strict=True):
        attrs["alias"] = alias
    ready = laid_out(module, warps=8, lanes=32, features=FEATURES, layout_steps=STEPS)
    found = [op for op in ready.entry.walk() if isinstance(op, ConvertLayout)]
    assert len(found) == exchanged
