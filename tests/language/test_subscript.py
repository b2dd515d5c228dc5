"""``x[...]`` against NumPy, and what it rejects."""

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, evaluate, fails, kernel_from, launch, result_type
from tilewright.base import knobs
from tilewright.ops.shape import Gather

X = np.arange(8 * 4 * 16, dtype=np.int32).reshape(8, 4, 16) * 3 - 50

STATIC = [
    "[3]",
    "[-1]",
    "[0, 1]",
    "[5, 2, 7]",
    "[:, 0]",
    "[:, :, 0:8]",
    "[2:4]",
    "[1:3, 0:2, 3:5]",
    "[::2]",
    "[1::4, ::-1]",
    "[::-1]",
    "[-4:, :-2]",
    "[7:3:-1]",
    "[:, 3:2:-1]",
    "[..., 0]",
    "[3, ...]",
    "[0, ..., 8:]",
    "[...]",
    "[None, 3]",
    "[3, None]",
    "[:, None, 2, None, 4:8]",
    "[None, ..., 5, None]",
    "[0, None, 1, None, 2, None]",
    "[:, :, :]",
    "[0:8:1]",
    "[0:100]",
    "[2:3, 1]",
]


@pytest.mark.parametrize("index", STATIC)
def test_compile_time_indices_agree_with_numpy(index: str) -> None:
    expected = eval(f"x{index}", {"x": X})
    result = evaluate(f"a{index}", X)
    assert result.shape == np.shape(expected)
    np.testing.assert_array_equal(result, expected)


RUN_TIME = ["[b]", "[:, b]", "[b, 1, b]", "[b, :, c - 1]", "[1:5, b, None]", "[..., b * 2]"]


@pytest.mark.parametrize("index", RUN_TIME)
@pytest.mark.parametrize("b", [0, 2, 3])
def test_run_time_scalars_select_an_element(index: str, b: int) -> None:
    expected = eval(f"x{index}", {"x": X, "b": b, "c": 3})
    np.testing.assert_array_equal(evaluate(f"a{index}", X, b, 3), expected)


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.int16])
def test_indices_of_any_width(kind: Any) -> None:
    assert evaluate("a[2, 3, b]", X, kind(11)) == X[2, 3, 11]


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float64, np.uint8, np.int64])
def test_elements_of_any_type(dtype: Any) -> None:
    x = (np.arange(32).reshape(4, 8) % 3).astype(dtype)
    np.testing.assert_array_equal(evaluate("a[1:3, 5]", x), x[1:3, 5])


def test_pointers() -> None:
    text = """
    def kernel(out, p, i):
        q = p + tl.arange(0, 8) * 2
        tl.store(out, tl.load(q[i]))
        tl.store(out + 1, tl.load(q[-1]))
    """
    x, out = np.arange(16, dtype=np.int32), np.zeros(2, np.int32)
    launch(kernel_from(text), out, x, 3)
    assert out.tolist() == [6, 14]


def test_whole_axes_emit_no_ops() -> None:
    for index in ("[:]", "[0:8]", "[None, :, :, 0:16]", "[...]"):
        text = f"def kernel(a):\n    x = tl.zeros((8, 4, 16), tl.int32)\n    x{index}\n"
        module = build(kernel_from(text), {"a": "i32"})
        assert not any(isinstance(op, Gather) for op in module.walk())


def test_scalar_results_are_scalars() -> None:
    assert result_type("a[0, 1, 2]", X) == tl.int32
    assert result_type("a[0, 1, 2, None]", X) == tl.block_type(tl.int32, [1])


ERRORS = [
    ("x[8]", "index 8 is out of range for axis 0 of a tensor of shape [8, 4]"),
    ("x[0, -5]", "index -5 is out of range for axis 1 of a tensor of shape [8, 4]"),
    ("x[3:3]", "slice(3, 3, None) selects nothing of axis 0"),
    ("x[0:n]", "unsupported tensor index: slice(0, int32[], None); the bounds of a slice are"),
    ("x[::0]", "and its step is not 0"),
    ("x[1.0]", "unsupported tensor index: constexpr[1.0]; an entry is None, a slice, an integer"),
    ("x[True]", "unsupported tensor index: constexpr[True]"),
    ("x[n > 0]", "unsupported tensor index: int1[]; a condition does not select elements"),
    ("x[tl.arange(0, 2)]", "unsupported tensor index: int32[2]; a run-time index must be a scal"),
    ("x[0, 0, 0]", "too many indices for tensor of rank 2"),
    ("x[0, :, :]", "too many indices for tensor of rank 2"),
    ("n[0]", "too many indices for tensor of rank 0"),
    ("x[..., ...]", "an index can only have a single ellipsis"),
]


@pytest.mark.parametrize(("expression", "message"), ERRORS)
def test_wrong_usage_is_rejected(expression: str, message: str) -> None:
    text = f"def kernel(n):\n    x = tl.zeros((8, 4), tl.int32)\n    {expression}\n"
    assert message in str(fails(text, 1))


@pytest.mark.parametrize("index", ["0", "n", "0:2", "...", "::2"])
def test_strict_mode_allows_only_new_and_whole_axes(index: str) -> None:
    text = f"def kernel(n):\n    x = tl.zeros((8, 4), tl.int32)\n    x[:, None]\n    x[{index}]\n"
    build(kernel_from(text), {"n": "i32"})
    with knobs.language.scope():
        knobs.language.strict_triton = True
        error = fails(text, 1)
    assert "unsupported tensor index: " in str(error)
    assert str(error).startswith("at 4:4:")
