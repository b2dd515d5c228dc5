"""Creation and shape functions, against NumPy, and what they reject."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, evaluate, fails, kernel_from, launch, result_type
from tilewright.base import knobs
from tilewright.base.diagnostics import CompileTimeAssertionFailure
from tilewright.ir.types import FP16, FP32, I32, Tile

A = np.arange(8, dtype=np.int32).reshape(2, 4)
B = (A + 100).astype(np.int32)
LINE = np.arange(4, dtype=np.int32)

SHAPES: list[tuple[str, list[Any], Any]] = [
    ("a.T", [A], A.T),
    ("tl.trans(a)", [A], A.T),
    ("a.trans(1, 0)", [A], A.T),
    ("tl.permute(a, (1, 0))", [A], A.T),
    ("tl.permute(a, -1, 0)", [A], A.T),
    ("tl.reshape(a, (4, 2))", [A], A.reshape(4, 2)),
    ("a.reshape(8)", [A], A.reshape(8)),
    ("a.reshape([2, 2, 2])", [A], A.reshape(2, 2, 2)),
    ("tl.ravel(a)", [A], A.ravel()),
    ("a[None]", [A], A[None]),
    ("a[:, None]", [LINE], LINE[:, None]),
    ("a[None, :, None]", [LINE], LINE[None, :, None]),
    ("a[:]", [LINE], LINE),
    ("tl.expand_dims(a, -1)", [LINE], LINE[:, None]),
    ("tl.expand_dims(a, (0, 2))", [LINE], LINE[None, :, None]),
    ("a.expand_dims([0, -1])", [LINE], LINE[None, :, None]),
    ("tl.unsqueeze(a, 0)", [LINE], LINE[None]),
    ("tl.squeeze(tl.unsqueeze(a, 0), 0)", [LINE], LINE),
    ("tl.broadcast_to(a[:, None], 4, 2)", [LINE], np.broadcast_to(LINE[:, None], (4, 2))),
    ("tl.broadcast_to(a[:, None], (4, 2))", [LINE], np.broadcast_to(LINE[:, None], (4, 2))),
    ("tl.broadcast_to(7, (2, 2))", [], np.full((2, 2), 7, np.int32)),
    ("tl.broadcast(a[:, None], b)[0]", [LINE[:2], A], np.broadcast_to(LINE[:2, None], (2, 4))),
    ("a + b", [A, LINE], A + LINE),
    ("tl.cat(a, b)", [LINE, LINE], np.concatenate([LINE, LINE])),
    ("tl.cat(a, b, dim=-1)", [A, B], np.concatenate([A, B], -1)),
    ("tl.join(a, b)", [A, B], np.stack([A, B], -1)),
    ("tl.join(1, 2)", [], np.array([1, 2], np.int32)),
    ("tl.interleave(a, b)", [A, B], np.stack([A, B], -1).reshape(2, 8)),
    ("tl.interleave(1, 2)", [], np.array([1, 2], np.int32)),
    ("tl.split(a)[1]", [A.reshape(2, 2, 2)], A.reshape(2, 2, 2)[..., 1]),
    ("a.split()[0]", [LINE[:2]], LINE[0]),
    ("tl.flip(a)", [A], A[:, ::-1]),
    ("a.flip(0)", [A], A[::-1]),
    ("tl.flip(a, -2)", [A], A[::-1]),
    ("tl.gather(a, b, 1)", [A, A % 4], np.take_along_axis(A, (A % 4).astype(np.int64), 1)),
    ("a.gather(b, -2)", [A, A % 2], np.take_along_axis(A, (A % 2).astype(np.int64), 0)),
    ("a[None].item()", [np.int32(5)], np.int32(5)),
    ("tl.arange(3, 7)", [], np.arange(3, 7, dtype=np.int32)),
    ("tl.full((2, 2), 1.5, tl.float16)", [], np.full((2, 2), 1.5, np.float16)),
    ("tl.full([4], a, tl.int64)", [np.int32(3)], np.full(4, 3, np.int64)),
    ("tl.full((), 2, tl.float32)", [], np.float32(2)),
    ("tl.full((2,), False, tl.int32)", [], np.zeros(2, np.int32)),
    ("tl.full((2,), 0.0, tl.int32)", [], np.zeros(2, np.int32)),
    ("tl.zeros([2, 4], tl.bfloat16).to(tl.float32)", [], np.zeros((2, 4), np.float32)),
    ("tl.zeros(shape=(2,), dtype=tl.int8)", [], np.zeros(2, np.int8)),
    ("tl.zeros_like(a)", [A], np.zeros_like(A)),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "inputs", "expected"), SHAPES, ids=lambda x: str(x)[:40])
def test_shape_function_equals_numpy(expression: str, inputs: list[Any], expected: Any) -> None:
    found = evaluate(expression, *inputs)
    assert found.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(found, expected)


REJECTED = [
    ("tl.arange(4, 4)", "arange's end argument must be greater than the start argument"),
    ("tl.arange(0, n)", "arange's arguments must be of type tl.constexpr"),
    ("tl.arange(2147483647, 2147483649)", "arange must fit in int32"),
    ("tl.full((4, 0), 0, tl.int64)", "Shape element 1 must be 1 or more, not 0"),
    ("tl.full((4, n), 0, tl.int64)",
     "Shape element 1 must have type `constexpr[int]`, got `int32`"),
    ("tl.full((2.0,), 0, tl.int64)", "Shape element 0 must have type `constexpr[int]`"),
    ("tl.full((1024, 2048), 0, tl.int8)",
     "numel (2097152) exceeds triton maximum tensor numel (1048576)"),
    ("tl.full((2,), 1, None)", "dtype must be specified when value is not a tensor"),
    ("tl.full((2,), x, tl.int32)", "only accepts size-1 tensor"),
    ("tl.full((2,), 1.5, tl.int32)", "a tensor of int32 can't be filled with the float 1.5"),
    ("tl.expand_dims(x, 2)", "invalid axis 2. Expected -2 <= axis < 2"),
    ("tl.expand_dims(x, -3)", "invalid axis -3. Expected -2 <= axis < 2"),
    ("tl.expand_dims(x, (0, 0))",
     "expand_dims received duplicate axes, normalized axes = [0, 0]"),
    ("tl.reshape(x, (8,))", "reshape() cannot change total number of elements in tensor"),
    ("tl.permute(x, 0, 1)", "permute dims must have the same length as input shape, got 2 and 1"),
    ("tl.permute(m, 0, 0)",
     "permute dims must be a permutation of 0, 1, ..., n-1, but were [0, 0]"),
    ("tl.trans(x)", "tl.trans invoked with a 0- or 1-dimensional tensor"),
    ("tl.broadcast_to(x, 4, 4)", "Cannot broadcast, rank mismatch: [4], [4, 4]"),
    ("tl.broadcast_to(x, 8)",
     "Cannot broadcast, the expanded size of the tensor (8) must match the existing size (4) at "
     "non-singleton dimension (0): [4], [8]"),
    ("tl.cat(x, m)", "tensors must have the same rank, got 1 and 2"),
    ("tl.cat(m, tl.zeros((2, 8), tl.int32), dim=1)",
     "tl.cat requires tensors of the same shape, got [1, 4] and [2, 8]"),
    ("tl.split(x)", "expected last dimension to be 2 for split, got 4"),
    ("tl.gather(x, x.to(tl.float32), 0)", "index must be an integer tensor"),
    ("tl.gather(x, m, 0)", "source and index tensors must have the same rank"),
    ("tl.gather(x, x, 1)", "gather axis 1 must be < source rank (1)"),
    ("tl.gather(m, tl.zeros((4, 4), tl.int32), 1)",
     "index dim 0 must match the corresponding source dim"),
    ("x.item()", "item() takes a tensor of one element, got 4"),
    ("tl.program_id(20)", "program_id axis must be 0, 1, or 2 but got 20"),
    ("tl.num_programs(-1)", "num_programs axis must be 0, 1, or 2 but got -1"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "message"), REJECTED)
def test_function_rejects(expression: str, message: str) -> None:
    text = f"def k(n):\n    x = tl.arange(0, 4)\n    m = x[None, :]\n    {expression}\n"
    error = fails(text, 5)
    assert str(error.__cause__).startswith(message)
    assert str(error).startswith("at 4:4:")


REJECTED_BY_TRITON = [
    ("tl.arange(2, 7)", "arange's range must be a power of 2"),
    ("tl.full((33,), 0, tl.int64)", "Shape element 0 must be a power of 2"),
    ("tl.zeros((4, 6), tl.int64)", "Shape element 1 must be a power of 2"),
    (
        "tl.make_tensor_descriptor(n.to(tl.pointer_type(tl.int32)), [n], [1], [6])",
        "Shape element 0 must be a power of 2",
    ),
    ("tl.broadcast_to(m, 3, 4)", "Shape element 0 must be a power of 2"),
    ("tl.cat(x, tl.arange(0, 8))", "tl.cat requires tensors of the same shape, got [4] and [8]"),
]


@pytest.mark.parametrize(("expression", "message"), REJECTED_BY_TRITON)
def test_strict_setting_rejects_what_triton_does(expression: str, message: str) -> None:
    text = f"def k(n):\n    x = tl.arange(0, 4)\n    m = x[None, :]\n    {expression}\n"
    build(kernel_from(text), {"n": "i32"})
    with knobs.language.scope():
        knobs.language.strict_triton = True
        assert str(fails(text, 5).__cause__) == message


U, V = np.arange(15, dtype=np.int32).reshape(3, 5) * 7 % 11, np.arange(9, dtype=np.float32) - 4
UNEVEN: list[tuple[str, list[Any], Any]] = [
    ("tl.arange(-2, 10)", [], np.arange(-2, 10, dtype=np.int32)),
    ("tl.full((3, 40), 7, tl.int16)", [], np.full((3, 40), 7, np.int16)),
    ("a.T + 1", [U], U.T + 1),
    ("a.reshape(5, 3)", [U], U.reshape(5, 3)),
    ("tl.ravel(a)", [U], U.ravel()),
    ("a[:, None, :] * tl.arange(0, 6)[None, :, None]", [U],
     U[:, None] * np.arange(6, dtype=np.int32)[:, None]),
    ("tl.broadcast_to(a[None], 7, 3, 5)", [U], np.broadcast_to(U, (7, 3, 5))),
    ("tl.join(a, a + 1)", [U], np.stack([U, U + 1], -1)),
    ("tl.interleave(a, -a)", [V], np.stack([V, -V], -1).ravel()),
    ("tl.split(a.reshape(5, 3, 2))[1]", [np.arange(30)], np.arange(30).reshape(5, 3, 2)[..., 1]),
    ("tl.cat(a, tl.arange(0, 4).to(tl.float32))", [V], np.r_[V, np.arange(4, dtype=np.float32)]),
    ("tl.cat(a, a, dim=1)", [U], np.concatenate([U, U], 1)),
    ("tl.flip(a, 0)", [U], U[::-1]),
    ("tl.gather(a, tl.arange(0, 3)[:, None] + 1, 1)", [U],
     np.array([[U[i, i + 1]] for i in range(3)])),
    ("tl.sum(a, 1)", [U], U.sum(1, dtype=np.int32)),
    ("tl.sum(a)", [U], U.sum(dtype=np.int32)),
    ("tl.max(a, 0)", [U], U.max(0)),
    ("tl.argmin(a, 1)", [U], U.argmin(1).astype(np.int32)),
    ("tl.cumsum(a, 1, reverse=True)", [U], U[:, ::-1].cumsum(1, dtype=np.int32)[:, ::-1]),
    ("tl.sort(a, descending=True)", [V], V[::-1]),
    ("tl.sort(a)", [U], np.sort(U)),
    ("tl.topk(a, 4)", [V], V[:-5:-1]),
    ("tl.topk(a, 2, descending=False)", [U], np.sort(U)[:, :2]),
    ("tl.bitonic_merge(tl.abs(a))", [V], np.sort(abs(V))),
    ("tl.histogram(tl.ravel(a), 11)", [U], np.bincount(U.ravel(), minlength=11).astype(np.int32)),
    ("tl.dot(a, a.T)", [U.astype(np.float16)], (U @ U.T).astype(np.float32)),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "inputs", "expected"), UNEVEN, ids=lambda x: str(x)[:40])
def test_extents_other_than_powers_of_two(
    expression: str, inputs: list[Any], expected: Any
) -> None:
    found = evaluate(expression, *inputs)
    assert found.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(found, expected)


SUBSCRIPTS = [
    ("x[0, :]", "too many indices for tensor of rank 1"),
    ("x + tl.arange(0, 8)", "Cannot make_shape_compatible: incompatible dimensions at index 0: 4"),
]


@pytest.mark.parametrize(("expression", "message"), SUBSCRIPTS)
def test_operator_rejects(expression: str, message: str) -> None:
    error = fails(f"def k(n):\n    x = tl.arange(0, 4)\n    {expression}\n", 5)
    assert message in str(error)
    assert str(error).startswith("at 3:4:")
    assert error.__cause__ is None


def test_static_assertion_of_a_function_is_one_at_the_call() -> None:
    error = fails("def k():\n    tl.flip(tl.arange(0, 4), 1)\n")
    assert isinstance(error, CompileTimeAssertionFailure)
    assert "flip: dim must be None or in [-rank, rank)" in str(error)
    assert str(error).startswith("at 2:4:")


def test_swizzle_goes_down_groups_of_rows() -> None:
    text = """
    def kernel(out):
        i = tl.program_id(0)
        j = tl.program_id(1)
        new_i, new_j = tl.swizzle2d(i, j, 4, 4, 2)
        tl.store(out + new_i * 4 + new_j, i * 4 + j)
    """
    out = np.zeros((4, 4), np.int32)
    launch(kernel_from(text), out, grid=(4, 4))
    expected = [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    np.testing.assert_array_equal(out, expected)


def test_attributes_of_tensors() -> None:
    text = """
    def kernel(p):
        x = tl.load(p + tl.arange(0, 8)).reshape(2, 4)
        tl.static_assert(x.shape == (2, 4))
        tl.static_assert(x.shape[1] == 4 and len(x.shape) == 2)
        tl.static_assert(x.numel == 8)
        tl.static_assert(x.dtype == tl.float16)
        tl.static_assert(x.dtype.primitive_bitwidth == 16)
        tl.static_assert(x.type.is_block() and x.type.element_ty == tl.float16)
        tl.static_assert(p.dtype.is_ptr() and p.dtype.element_ty == tl.float16)
        tl.static_assert(p.shape == ())
        n: tl.constexpr = x.shape[0] * 2
        tl.arange(0, n)
    """
    build(kernel_from(text), {"p": "*fp16"})


def test_shapes_from_constexprs() -> None:
    text = """
    def kernel(N: tl.constexpr, SHAPE: tl.constexpr):
        tl.static_assert(tl.zeros((N, 2 * N), tl.int8).shape == SHAPE)
        tl.static_assert(tl.zeros(SHAPE, tl.int8).shape == (N, N * 2))
    """
    build(kernel_from(text), {}, {"N": 4, "SHAPE": (4, 8)})


@pytest.mark.parametrize(
    "expression",
    ["tl.zeros([True, 4], tl.float32)", "tl.full((True, 4), 1, tl.float32)",
     "tl.arange(False, 4).to(tl.float32).reshape(True, 4)"],
)  # fmt: skip
def test_sizes_may_be_bools(expression: str) -> None:
    assert str(result_type(expression)) == "<['1', '4'], fp32>"


def test_scalars_become_tiles_of_ones() -> None:
    assert result_type("tl.expand_dims(3.0, 0)") == Tile((1,), FP32)
    assert result_type("tl.reshape(a, (1, 1))", np.float16(3)) == Tile((1, 1), FP16)
    assert result_type("tl.reshape(tl.zeros((1, 1), tl.int32), ())") is I32


def test_hints_preserve_the_value() -> None:
    found = evaluate("tl.max_contiguous(tl.multiple_of(a, 4), [4])", LINE)
    np.testing.assert_array_equal(found, LINE)
    module = build(kernel_from("def k(n):\n    tl.multiple_of(n, 16) + 1\n"), {"n": "i32"})
    hint = next(op for op in module.walk() if op.name == "arith.hint")
    given = {name: fact for name, fact in hint.attributes.items() if fact not in (None, (0,))}
    assert given == {"divisibility": (16,)}


def test_hint_in_a_statement_evaluates_its_function_once() -> None:
    evaluated: list[str] = []

    class Module(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name == "multiple_of":
                evaluated.append(name)
            return getattr(tl, name)

    kernel = kernel_from("def k(n):\n    hints.multiple_of(n, 16)\n", hints=Module("hints"))
    module = build(kernel, {"n": "i32"})
    assert evaluated == ["multiple_of"]
    assert [op.name for op in module.entry.walk()].count("arith.hint") == 1


@pytest.mark.parametrize(
    "hint", ["tl.multiple_of(i, 16)", "tl.max_constancy(tl.multiple_of(i, 16), 1)"]
)
def test_hint_as_a_statement_applies_to_its_name(hint: str) -> None:
    text = f"""
    def kernel(p, n):
        for i in range(0, n, 16):
            {hint}
            tl.store(p + i, 0)
    """
    module = build(kernel_from(text), {"p": "*fp32", "n": "i32"})
    *_, last = (op for op in module.walk() if op.name == "arith.hint")
    assert [user.name for user in last.result.users] == ["mem.addptr"]


HINTS = [
    ("tl.multiple_of(x, n)", "values element 0 must have type `constexpr`"),
    ("tl.multiple_of(x, [1.5])", "values element 0 must have type `constexpr[int]`, got `1.5`"),
    ("tl.max_constancy(x, (4, 4))",
     "Shape of input to max_constancy does not match the length of values"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "message"), HINTS)
def test_hint_rejects(expression: str, message: str) -> None:
    error = fails(f"def k(n):\n    x = tl.arange(0, 4)\n    {expression}\n", 5)
    assert str(error.__cause__) == message


@pytest.mark.parametrize(("expression", "expected"), [
    ("a.view(8, 1)", A.reshape(8, 1)), ("tl.view(a, (4, 2))", A.reshape(4, 2)),
    ("tl.reshape(a, 2, 4, can_reorder=True)", A.reshape(2, 4)),
    ("tl.ravel(a, can_reorder=True)", A.ravel()),
    ("tl.cat(a, a, can_reorder=True)", np.concatenate([A, A])),
])  # fmt: skip
def test_can_reorder_warns_and_keeps_the_order(expression: str, expected: Any) -> None:
    with pytest.warns(UserWarning, match="is deprecated, because it permits any order"):
        found = evaluate(expression, A)
    np.testing.assert_array_equal(found, expected)
