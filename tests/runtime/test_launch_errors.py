"""Wrong calls: words as Python has them for functions, the same before and after launches run."""

import ast
import inspect
import traceback
from typing import Any

import numpy as np
import pytest
import torch

import tilewright.language as tl
from tests.runtime.native_cases import outcome
from tilewright.base.diagnostics import CompilationError, UnsupportedLanguageConstruct
from tilewright.runtime.autotuner import autotune
from tilewright.runtime.config import Config
from tilewright.runtime.heuristics import heuristics
from tilewright.runtime.jit import JITFunction, constexpr_function, jit
from tilewright.tools.tensor_descriptor import TensorDescriptor

Array = np.ndarray[Any, Any]


def fill(out, value, BLOCK: tl.constexpr, other=2):
    tl.store(out, value)


OUT = np.zeros(8, np.int32)


@pytest.fixture(scope="module", params=["cold", "warm", "warm from Python"])
def kernel(request: pytest.FixtureRequest) -> JITFunction:
    """A kernel that has never run, that native code launches, and that Python launches."""
    made = jit(fill)
    for _ in range(3 if request.param == "warm" else 0):
        made[(1,)](OUT, 3, BLOCK=4)
    if request.param == "warm from Python":
        made.run(OUT, 3, BLOCK=4, grid=(1,))
    return made


# -- which arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((OUT,), {}),
        ((OUT, 3), {}),
        ((OUT,), {"BLOCK": 4}),
        ((OUT, 3, 4, 5, 6), {}),
        ((OUT, 3, 4), {"out": OUT}),
        ((OUT, 3, 4), {"BLOCK": 4}),
    ],
)
def test_wrong_arguments_have_the_error_messages_of_python(
    kernel: JITFunction, args: Any, kwargs: Any
) -> None:
    expected = outcome(fill, *args, **kwargs)
    assert expected[0] is TypeError
    for _ in range(2):
        assert outcome(kernel[(1,)], *args, **kwargs) == expected


def test_wrong_keyword(kernel: JITFunction) -> None:
    text = "Keyword argument valeu was specified but unrecognised"
    for _ in range(2):
        with pytest.raises(KeyError, match=text):
            kernel[(1,)](OUT, 3, BLOCK=4, valeu=5)


@pytest.mark.parametrize(
    ("option", "error", "text"),
    [
        ({"num_warps": "four"}, TypeError, "the compile option num_warps is an int, not 'four'"),
        ({"num_warps": 1.5}, TypeError, "the compile option num_warps is an int, not 1.5"),
        ({"num_stages": [2]}, TypeError, r"the compile option num_stages is an int, not \[2\]"),
        ({"num_warps": 3}, AssertionError, "num_warps must be a power of 2"),
        ({"num_warps": -4}, AssertionError, "num_warps must be a power of 2"),
        ({"stream": 0}, AssertionError, "stream option is deprecated"),
        ({"device": 0}, AssertionError, "device option is deprecated"),
    ],
)
def test_wrong_options(kernel: JITFunction, option: Any, error: Any, text: str) -> None:
    for _ in range(2):
        with pytest.raises(error, match=text):
            kernel[(1,)](OUT, 3, BLOCK=4, **option)


# -- grids ----------------------------------------------------------------------------------------

NO_GRID = "a grid is a tuple of one to three ints, or a function that returns one, not "
GRIDS: list[tuple[Any, Any, str]] = [
    *((g, TypeError, NO_GRID) for g in (None, 1.5, 4, "1", b"1", {1: 2}, {1}, 10**30, object())),
    *((g, TypeError, NO_GRID) for g in (np.array(3), torch.tensor([1]), float("nan"), Ellipsis)),
    ((), ValueError, "a grid has one to three axes, not 0"),
    ([], ValueError, "a grid has one to three axes, not 0"),
    ((1, 1, 1, 2), ValueError, "a grid has one to three axes, not 4"),
    (range(10**12), ValueError, "a grid has one to three axes, not 1000000000000"),
    ((-1,), ValueError, "axis x of the grid is -1, which is negative"),
    ((1, 1, -(10**30)), ValueError, "axis z of the grid is -1000000000000000000000000000000,"),
    ((1, 2.0), TypeError, "axis y of the grid is 2.0, a float, not an int"),
    ((1, None), TypeError, "axis y of the grid is None, a NoneType, not an int"),
    (("1",), TypeError, "axis x of the grid is '1', a str, not an int"),
    ((np.float32(1),), TypeError, r"axis x of the grid is np.float32\(1.0\), a float32"),
    (((1,),), TypeError, r"axis x of the grid is \(1,\), a tuple, not an int"),
    ((2**31,), ValueError, "above"),
    ((10**30,), ValueError, "above"),
    (lambda: (1,), TypeError, "takes 0 positional arguments but 1 was given"),
    (lambda meta: meta["SIZE"], KeyError, "SIZE"),
]


@pytest.mark.parametrize("from_function", [False, True])
@pytest.mark.parametrize(("grid", "error", "text"), GRIDS, ids=lambda value: str(value)[:20])
def test_wrong_grids(
    kernel: JITFunction, grid: Any, error: Any, text: str, from_function: bool
) -> None:
    if from_function and callable(grid):
        error, text = TypeError, NO_GRID
    given = (lambda meta: grid) if from_function else grid
    for _ in range(2):
        with pytest.raises(error, match=text):
            kernel[given](OUT, 3, BLOCK=4)


# -- arguments of a kind that no kernel takes -----------------------------------------------------

NO_KIND = r"failed to specialize argument of type: {}: argument `value` of fill\. "
WRONG: list[tuple[Any, Any, str]] = [
    *(
        (value, TypeError, NO_KIND.format(type(value).__name__))
        for value in (object(), "text", b"x", [1], {}, {1}, 1j, print, np, Ellipsis, range(3))
    ),
    *((v, TypeError, NO_KIND.format(type(v).__name__)) for v in (np.int64(1), np.float32(1))),
    ((1, "a"), TypeError, NO_KIND.format("str")),
    ((1, (2, [3])), TypeError, NO_KIND.format("list")),
    *(
        (value, TypeError, r"kernels have no element type for .*: argument `value` of fill")
        for value in (np.zeros(2, object), np.zeros(2, ">i4"), np.zeros(2, np.complex64))
    ),
    (torch.zeros(2, dtype=torch.complex64), TypeError, "no element type for torch.complex64: arg"),
    (torch.zeros(2, device="meta"), ValueError, "argument `value` is a torch.Tensor .* 'meta'"),
    *(
        (value, OverflowError, "too large to represent: argument `value` of fill")
        for value in (2**64, -(2**63) - 1, 10**40, (1, 2**70))
    ),
]


@pytest.mark.parametrize(("value", "error", "text"), WRONG, ids=lambda value: str(value)[:20])
def test_wrong_kinds(kernel: JITFunction, value: Any, error: Any, text: str) -> None:
    for _ in range(2):
        with pytest.raises(error, match=text):
            kernel[(1,)](OUT, value, BLOCK=4)
        with pytest.raises(error, match=text):
            kernel[(1,)](OUT, BLOCK=4, value=value)


def test_descriptor_modified_into_an_invalid_one() -> None:
    kernel = jit(fill)
    for field, value, text in (
        ("strides", [2], "a descriptor's strides must be multiples of 16 bytes, the last one 1"),
        ("shape", [-1], "a descriptor's extents must fit into int32"),
        ("shape", [8, 8], "must have the same length, not 2, 1 and 1"),
    ):
        descriptor = TensorDescriptor.from_tensor(OUT, [4])
        setattr(descriptor, field, value)
        with pytest.raises(ValueError, match=text):
            kernel[(1,)](OUT, descriptor, BLOCK=4)


def test_descriptor_in_place_of_a_number() -> None:
    def scale(out, factor: tl.float32):  # pyright: ignore[reportInvalidTypeForm]
        tl.store(out, factor)

    with pytest.raises(TypeError, match="'factor' is annotated as fp32, which a TensorDescriptor"):
        jit(scale)[(1,)](OUT, TensorDescriptor.from_tensor(OUT, [4]))


# -- wrappers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", ["tuned", "computed"])
def test_wrapped_kernels_have_the_same_errors(wrapper: str) -> None:
    made: Any = jit(fill)
    if wrapper == "tuned":
        made = autotune([Config({"BLOCK": 4})], key=["value"])(made)
    else:
        made = heuristics({"BLOCK": lambda args: 4})(made)
    for _ in range(4):
        made[(1,)](OUT, 3)
        for args, grid, error, text in (
            ((), (1,), TypeError, "missing 2 required positional arguments: 'out' and 'value'"),
            ((OUT, object()), (1,), TypeError, "argument `value` of fill"),
            ((OUT, 3), None, TypeError, NO_GRID),
            ((OUT, 3), (1, -1), ValueError, "axis y of the grid is -1"),
            ((OUT, 3), lambda meta: 1.5, TypeError, NO_GRID),
        ):
            with pytest.raises(error, match=text):
                made[grid](*args)
        with pytest.raises(KeyError, match="valeu was specified but unrecognised"):
            made[(1,)](OUT, 3, valeu=4)


def test_a_kernel_cannot_be_called() -> None:
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        jit(fill)(OUT, 3, 4)
    assert list(inspect.signature(fill).parameters) == jit(fill).arg_names


# -- errors of kernels ----------------------------------------------------------------------------


def frames_of(error: BaseException | None) -> list[str]:
    return [] if error is None else [f.name for f in traceback.extract_tb(error.__traceback__)]


def test_traceback_of_an_error_of_a_kernel_has_no_frames_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @jit
    def of_run_time(out, n):
        tl.store(out + tl.arange(0, n), 1)

    with pytest.raises(CompilationError) as raised:
        of_run_time[(1,)](OUT, 8)
    assert frames_of(raised.value)[-1] == "run"
    assert isinstance(raised.value.__cause__, ValueError)
    assert frames_of(raised.value.__cause__) == []
    monkeypatch.setenv("TRITON_FRONT_END_DEBUGGING", "1")
    with pytest.raises(Exception, match="arange") as complete:
        of_run_time[(1,)](OUT, 8)
    assert frames_of(complete.value)[-1] == "arange"


def test_traceback_of_an_error_of_a_kernel_has_the_frames_of_functions_that_it_calls() -> None:
    @constexpr_function
    def half(n):
        return n // 0

    @jit
    def calling(out, n: tl.constexpr):
        tl.store(out, half(n))

    with pytest.raises(CompilationError) as raised:
        calling[(1,)](OUT, 8)
    assert frames_of(raised.value.__cause__) == ["half"]


def test_traceback_of_an_error_of_a_kernel_has_the_frames_of_functions_that_raise_it() -> None:
    def name(specialization):
        raise UnsupportedLanguageConstruct(None, ast.Pass(), "no name")

    @jit(repr=name)
    def unnamed(out):
        tl.store(out, 1)

    with pytest.raises(UnsupportedLanguageConstruct, match="no name") as raised:
        unnamed[(1,)](OUT)
    assert frames_of(raised.value)[-1] == "name"
