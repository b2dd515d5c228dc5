"""Native launches against the reference: keys, arguments that the kernel receives, wrong calls."""

import _ctypes
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright.language as tl
from tests.runtime.native_cases import Twin, outcome
from tilewright.runtime.native import torch_tensors
from tilewright.runtime.native.layout import (
    BUCKETS,
    MAX_OPTIONS,
    MAX_PARAMS,
    TORCH_OFFSETS,
    bucket_of,
    table_of,
)
from tilewright.runtime.native.torch_tensors import find_torch_tensors

Array = np.ndarray[Any, Any]


THREE: Any = 3


def plain(a, b, c, d=7, *, K: tl.constexpr = THREE): ...
def unspecialised(a, b, c, d=7, *, K: tl.constexpr = THREE): ...
def annotated(
    a: "*fp32",  # noqa: F722  # pyright: ignore
    b: tl.int8,  # pyright: ignore[reportInvalidTypeForm]
    c: tl.float32,  # pyright: ignore[reportInvalidTypeForm]
    d: tl.uint64 = 7,  # pyright: ignore[reportInvalidTypeForm]
    *,
    K: tl.constexpr = THREE,
): ...
def annotated_otherwise(
    a,
    b: tl.int1,  # pyright: ignore[reportInvalidTypeForm]
    c: tl.float64,  # pyright: ignore[reportInvalidTypeForm]
    d: tl.int16 = 7,  # pyright: ignore[reportInvalidTypeForm]
    *,
    K: tl.constexpr = THREE,
): ...


MAKERS: dict[str, Callable[[], Twin]] = {
    "plain": lambda: Twin(plain),
    "values unspecialised": lambda: Twin(unspecialised, do_not_specialize=["a", "b"]),
    "alignment unspecialised": lambda: Twin(plain, do_not_specialize_on_alignment=["a", "c"]),
    "annotated": lambda: Twin(annotated),
    "annotated otherwise": lambda: Twin(annotated_otherwise),
}

# -- arguments of every kind ----------------------------------------------------------------------

BASE = np.zeros(4096, np.uint8)
OTHER = np.zeros(4096, np.uint8)
FIXED = np.zeros(256, np.float32)
FIXED.flags.writeable = False
TORCH_BASE = torch.zeros(512, dtype=torch.uint8)
DTYPES = [
    *(np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2),
    *(np.longlong, np.complex64, ">i4"),
]
TORCH_DTYPES = [
    *(torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn),
    torch.complex64,
    *(getattr(torch, name) for name in ("int1", "int3") if hasattr(torch, name)),
]


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """NumPy arrays: their own memory, views that overlap or not, strided, read-only, empty."""
    kind = draw(st.sampled_from(["own", "view", "fixed", "strided", "fortran", "lent", "memory"]))
    if kind == "own":
        return np.zeros(draw(st.integers(0, 40)), draw(st.sampled_from(DTYPES)))
    if kind == "fixed":
        return FIXED[draw(st.integers(0, 9)) :]
    if kind == "strided":
        return OTHER.view(np.float32)[:: draw(st.sampled_from([1, 2, -1]))]
    if kind == "fortran":
        return np.zeros((4, 5), np.float32, order="F")[:, draw(st.integers(0, 4))]
    if kind == "lent":
        return np.lib.stride_tricks.as_strided(FIXED, (4, 4), (0, 4))
    if kind == "memory":
        return np.frombuffer(bytearray(64), np.float32)
    low = draw(st.sampled_from([0, 8, 16, 64, 1024]))
    high = low + draw(st.sampled_from([0, 8, 16, 1024]))
    base = draw(st.sampled_from([BASE, OTHER, BASE[:2048].view(np.float32)]))
    return base[low:high]


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["own", "view", "shared", "parameter", "neg"]))
    if kind == "view":
        return TORCH_BASE[draw(st.sampled_from([0, 1, 16, 400])) :]
    if kind == "shared":
        return torch.from_numpy(BASE)[16:]
    if kind == "parameter":
        return torch.nn.Parameter(torch.zeros(8))
    if kind == "neg":
        return torch.complex(torch.zeros(8), torch.ones(8)).conj().imag  # negated when it is read
    shape = draw(st.sampled_from([(0,), (3,), (2, 3), ()]))
    return torch.empty(shape, dtype=draw(st.sampled_from(TORCH_DTYPES)))


BIG = 1 << 31
INTS = st.one_of(
    st.sampled_from([0, 1, 2, 16, -16, 127, 128, -128, 255, BIG - 1, BIG, -BIG, -BIG - 1]),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 2**63 + 16]),
    st.integers(-300, 300),
)
FLOATS = st.one_of(
    st.floats(allow_nan=True), st.sampled_from([0.0, -0.0, 1.0, 1e39, -1e39, 3.4028235677973366e38])
)
ODD = st.sampled_from([None, True, False, np.float64(2.5), np.int64(3), "text", (1, 2.0), [1]])
ARGUMENTS = st.one_of(arrays(), tensors(), INTS, FLOATS, ODD)
CONSTANTS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**63 - 1, 2**63, 2**70, True, False, None, "a", "b", 0.0, -0.0, 1.0, 2.5]),
    st.sampled_from([tl.float32, tl.int8, (1, 2), tl.constexpr(4), float("nan"), [1, 2]]),
)
OPTIONS = st.sampled_from([{}, {"num_warps": 8}, {"num_warps": 4}, {"debug": True, "num_warps": 8}])


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position and by name, some missing, doubled or too many."""
    count = draw(st.integers(1, 5))
    args = [draw(ARGUMENTS) for _ in range(draw(st.integers(0, count)))]
    names = ["a", "b", "c", "d"][len(args) : draw(st.integers(3, 4))]
    if draw(st.integers(0, 9)) == 0:
        names.append("a")
    kwargs = {name: draw(ARGUMENTS) for name in names}
    if draw(st.booleans()):
        kwargs["K"] = draw(CONSTANTS)
    return args, {**kwargs, **draw(OPTIONS)}


def reference_error(twin: Twin, args: list[Any], kwargs: dict[str, Any]) -> Any:
    found = outcome(twin.binder, *args, **kwargs)
    return found if isinstance(found[0], type) else None


@settings(max_examples=400)
@given(st.sampled_from(sorted(MAKERS)), st.lists(calls(), min_size=1, max_size=3))
def test_native_launches_equal_those_of_the_reference(
    maker: str, several: list[tuple[list[Any], dict[str, Any]]]
) -> None:
    twin = MAKERS[maker]()
    for args, kwargs in several * 2:
        expected = reference_error(twin, args, kwargs)
        if expected is None:
            twin.launch(*args, **kwargs)
        else:
            assert outcome(twin.launcher.bind((1,)), *args, **kwargs) == expected


# Values that differ in one respect each: as pairs they are every way in which keys differ.
ALIKE: list[Any] = [
    *(
        0,
        1,
        2,
        16,
        -16,
        127,
        128,
        255,
        BIG - 1,
        BIG,
        BIG + 15,
        -BIG - 1,
        2**63 - 16,
        2**63,
        2**64 - 1,
    ),
    *(True, False, None, 1.0, 0.1, -0.0, 1e39),
    *(BASE[:64], BASE[64:128], BASE[1:65], BASE, OTHER[:64], BASE[:64].view(np.int8)),
    *(FIXED[:4], FIXED[4:8], FIXED[1:4], np.zeros(4, np.float32), np.zeros(4, np.int32)),
    *(TORCH_BASE[:64], TORCH_BASE[64:], TORCH_BASE[1:], torch.zeros(4), torch.zeros(0)),
    *(torch.zeros(4, dtype=torch.int8), torch.zeros(4, dtype=torch.bool)),
    *(torch.zeros(4, dtype=getattr(torch, name)) for name in ("int1",) if hasattr(torch, name)),
]
CONSTANTS_ALIKE: list[Any] = [
    *(0, 1, 2, -1, 2**40, 2**63, 0.0, -0.0, 1.0, 2.5, True, False, None, "a", "b"),
    *(tl.float32, tl.int8, tl.constexpr(1), tl.constexpr(1.0), (1,), (1.0,)),
    *(int.from_bytes(np.float64(x).tobytes(), "little") for x in (1.0, 2.5)),
]


@pytest.mark.parametrize("maker", MAKERS)
def test_every_pair_of_values_has_the_variant_of_its_key(maker: str) -> None:
    twin = MAKERS[maker]()
    natively = 0
    for _ in range(2):
        for a, b in product(ALIKE, ALIKE):
            third = 2.5 if "annotated" in maker else FIXED
            if reference_error(twin, [a, b, third], {}) is None:
                twin.launch(a, b, third)
                natively += twin.natively
            else:
                expected = outcome(twin.binder, a, b, third)
                assert outcome(twin.launcher.bind((1,)), a, b, third) == expected
    assert natively > 50


@pytest.mark.parametrize(
    ("maker", "values"),
    [
        ("values unspecialised", [2, 1, 16, 33]),
        ("values unspecialised", [BASE[:64], BASE[1:65], BASE[8:]]),
        ("alignment unspecialised", [2, 16, 33]),
        ("alignment unspecialised", [BASE[:64], BASE[1:65], BASE[8:]]),
        ("plain", [2, 3, -5]),
        ("plain", [BASE[:64], BASE[16:]]),
    ],
)
def test_values_of_one_variant_need_one_launch_by_python(maker: str, values: list[Any]) -> None:
    twin = MAKERS[maker]()
    twin.launch(values[0], FIXED, 5)
    for value in values:
        twin.launch(value, FIXED, 5)
        assert twin.natively


@pytest.mark.parametrize("name", ["K", "num_warps"])
def test_every_constant_has_the_variant_of_its_key(name: str) -> None:
    twin = Twin(plain)
    for _, value in product(range(3), CONSTANTS_ALIKE):
        twin.launch(FIXED, 2, 2, **{name: value})
    assert twin.natively


USUAL = st.one_of(
    st.builds(lambda n: np.zeros(n, np.float32), st.integers(0, 40)),
    st.builds(lambda at: BASE[at : at + 16], st.integers(0, 64)),
    st.builds(lambda n: torch.zeros(n), st.integers(0, 9)),
    st.sampled_from([torch.int8, torch.bool, torch.uint8]).map(lambda d: torch.zeros(4, dtype=d)),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.sampled_from([None, True, False]),
)


@given(st.lists(USUAL, min_size=3, max_size=4), st.sampled_from([3, 2.5, "a", tl.int8, None]))
def test_common_launches_are_native_the_second_time(args: list[Any], constant: Any) -> None:
    twin = Twin(plain)
    if not any(hasattr(value, "dtype") for value in args):
        args[0] = FIXED
    twin.launch(*args, K=constant)
    assert not twin.natively
    twin.launch(*args, K=constant)
    assert twin.natively


SHARED = torch.zeros(512)
CHANGES: dict[str, Callable[[Any], Any]] = {
    "other memory": lambda t: t.set_(torch.zeros(64)),
    "memory of another": lambda t: t.set_(SHARED.untyped_storage(), 16, (32,)),
    "unaligned memory": lambda t: t.set_(SHARED.untyped_storage(), 3, (32,)),
    "more memory": lambda t: t.resize_(100_000),
    "no memory": lambda t: t.set_(torch.zeros(0)),
    "data of another": lambda t: setattr(t, "data", SHARED[1:9]),
    "another type": lambda t: setattr(t, "data", torch.zeros(9, dtype=torch.float64)),
    "a swap": lambda t: torch.utils.swap_tensors(t, torch.zeros(7, dtype=torch.int16)),
    "a gradient": lambda t: t.requires_grad_(),
    "a transposition": lambda t: t.unsqueeze_(0).t_(),
    "a negation": lambda t: setattr(t, "data", torch.complex(SHARED, SHARED).conj().imag),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensor_is_read_on_each_launch(change: str) -> None:
    """Nothing is reused from an earlier launch with the same object."""
    twin, keep = Twin(plain), SHARED[256:]
    for _ in range(2):
        tensor = torch.ones(48)
        for step in (lambda t: None, CHANGES[change], lambda t: None):
            step(tensor)
            twin.launch(tensor, keep, 5)
    assert twin.natively


def test_tensor_at_the_address_of_a_freed_one() -> None:
    twin, seen = Twin(plain), set[int]()
    for i in range(60):
        dtype, offset = (torch.float32, torch.int8, torch.float64)[i % 3], i % 2
        tensor = torch.zeros(64, dtype=dtype)[offset:]
        twin.launch(tensor, 2, 2)
        seen.add(id(tensor))
        del tensor
    assert len(seen) < 60
    assert twin.natively


class Derived(torch.Tensor):
    """Readable like any tensor; its type is unknown to native code."""


UNUSUAL: dict[str, Callable[[], torch.Tensor]] = {
    "derived": lambda: torch.zeros(8).as_subclass(Derived),
    "meta": lambda: torch.zeros(8, device="meta"),
    "empty": lambda: torch.zeros(3, 0),
    "empty view": lambda: SHARED[4:4],
    "sparse": lambda: torch.eye(3).to_sparse(),
    "in a library's own order": lambda: torch.eye(3).to_mkldnn(),
    "copied when written": lambda: getattr(torch, "_lazy_clone")(SHARED)[8:],  # noqa: B009
    "8 bits of a kind that kernels lack": lambda: torch.zeros(8, dtype=torch.float8_e8m0fnu),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_tensors_launch_as_from_python(kind: str) -> None:
    twin, tensor = Twin(plain), UNUSUAL[kind]()
    for _ in range(3):
        expect_as_from_python(twin, tensor)


def test_tensors_that_a_transformation_of_torch_traces() -> None:
    def function(tensor: torch.Tensor) -> torch.Tensor:
        assert type(tensor) is torch.Tensor
        expect_as_from_python(Twin(plain), tensor)
        return tensor

    torch.vmap(function)(torch.zeros(3, 4))


def expect_as_from_python(twin: Twin, tensor: torch.Tensor) -> None:
    expected = outcome(twin.bind, tensor, FIXED, 5)
    got = outcome(twin.launcher.bind((1,)), tensor, FIXED, 5)
    assert got == (expected if isinstance(expected[0], type) else expected[2])


class Elsewhere:
    """A tensor whose object does not hold the fields that it declares."""

    _cdata = 1

    def __getitem__(self, index: Any) -> "Elsewhere":
        return self


def test_unexpected_torch_internals_fall_back_to_python() -> None:
    elsewhere = Elsewhere()
    nn = SimpleNamespace(Parameter=lambda view, **_: view)
    other = SimpleNamespace(_C=torch._C, nn=nn, empty=lambda *_, **__: elsewhere)
    older = SimpleNamespace(_C=SimpleNamespace(__file__=_ctypes.__file__))
    numbers = {torch.float32: 3}
    assert find_torch_tensors(other, numbers) is None
    assert find_torch_tensors(older, numbers) is None
    found = find_torch_tensors(torch, numbers)
    assert found is not None
    assert sorted(found.elements)[-2:] == [0, 3]


class BehindAFlag:
    """An object with the C++ tensor where older releases have it."""

    __slots__ = ("flag", "tensor")

    @property
    def _cdata(self) -> int:
        return id(self.tensor)


class First:
    __slots__ = ("tensor",)

    @property
    def _cdata(self) -> int:
        return id(self.tensor)


def test_offset_of_the_tensor_in_its_object_is_found() -> None:
    behind, first = BehindAFlag(), First()
    behind.flag = behind.tensor = first.tensor = None
    behind.flag = 1
    assert torch_tensors._offset([behind, behind]) == TORCH_OFFSETS[1]
    assert torch_tensors._offset([first]) == TORCH_OFFSETS[0]
    assert torch_tensors._offset([first, behind]) is None


def test_a_call_may_name_its_arguments_with_other_strings() -> None:
    twin, name = Twin(plain), "".join(["b", ""])
    computed = "".join(chr(code) for code in (ord("K"),)) + ""
    twin.launch(FIXED, **{name: 5}, c=1)
    twin.launch(FIXED, c=1, **{("b" * 2)[1:]: 6, computed: 3})
    twin.launch(FIXED, c=1, **{("b" * 2)[1:]: 6, computed: 3})
    assert twin.natively


@pytest.mark.parametrize("keyword", ["grid", "warmup", "self"])
def test_keywords_of_run_are_not_arguments_of_the_kernel(keyword: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def kernel(x, {keyword}): ...", scope)
    twin = Twin(scope["kernel"])
    for _ in range(2):
        twin.natively = True
        twin.launcher.bind((1,))(FIXED, **{keyword: 3})
        assert not twin.natively
    twin.launch(FIXED, 3)
    twin.launch(FIXED, 3)
    assert twin.natively


def test_many_parameters_and_options() -> None:
    scope: dict[str, Any] = {}
    names = [f"p{i}" for i in range(MAX_PARAMS)]
    exec(f"def kernel({', '.join(names)}): ...", scope)
    twin = Twin(scope["kernel"])
    for count, by_native in ((MAX_OPTIONS, True), (MAX_OPTIONS + 1, False)):
        options = {f"option{i}": i for i in range(count)}
        twin.launch(*[BASE[i:] for i in range(MAX_PARAMS)], **options)
        twin.launch(*[BASE[i:] for i in range(MAX_PARAMS)], **options)
        assert twin.natively == by_native


def test_positional_only_parameters() -> None:
    def kernel(x, n, /, m=3): ...

    twin = Twin(kernel)
    twin.launch(FIXED, 2)
    twin.launch(FIXED, 2, m=3)
    twin.launch(FIXED, 2, n=5)  # `n` is an option then
    assert not twin.natively
    twin.launch(FIXED, 2, n=5)
    assert twin.natively


def test_entries_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.runtime.native.launcher.MAX_ENTRIES", 4)
    twin = Twin(plain)
    for i in [*range(20), *range(20)]:
        twin.launch(FIXED, 2, 2, K=i)
        assert len(twin.launcher.entries) <= 4


@given(st.dictionaries(st.integers(1, 2**64 - 1), st.integers(1, 99), max_size=BUCKETS // 2))
def test_table_contains_every_inserted_key(pairs: dict[int, int]) -> None:
    words = table_of(pairs)
    assert dict(zip(words[::2], words[1::2], strict=True)).items() >= pairs.items()
    for key in pairs:
        at = bucket_of(key)
        while words[2 * at] != key:
            assert words[2 * at], "the search for a key ends at an empty bucket"
            at = (at + 1) % BUCKETS


# -- the CPU's workspace --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 64, 4096, 1 << 20])
def test_programs_have_aligned_workspace(size: int) -> None:
    twin = Twin(plain)
    _, _, variant = twin.bind(FIXED, 2, 2)
    variant.scratch_bytes = size
    for _ in range(20):
        twin.launch(FIXED, 2, 2)
        assert not twin.natively or (variant.scratch and variant.scratch % 64 == 0)
    assert twin.natively
