"""Native launches against the reference: tuples, descriptors, tensors of any library, none."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright.language as tl
from tests.runtime.native_cases import Twin, outcome
from tilewright.runtime import driver
from tilewright.runtime.descriptors import DESCRIPTORS
from tilewright.runtime.native.layout import MAX_PARAMS, MAX_SLOTS
from tilewright.runtime.wrappers import TensorWrapper
from tilewright.tools.tensor_descriptor import TensorDescriptor

Array = np.ndarray[Any, Any]

THREE: Any = 3


def plain(a, b=5, K: tl.constexpr = THREE): ...
def no_alignment(a, b=5, K: tl.constexpr = THREE): ...
def annotated(
    a: tl.float32,  # pyright: ignore[reportInvalidTypeForm]
    b: "*fp32",  # noqa: F722  # pyright: ignore
    K: tl.constexpr = THREE,
): ...


MAKERS = {
    "plain": lambda: Twin(plain),
    "alignment unspecialised": lambda: Twin(no_alignment, do_not_specialize_on_alignment=["a"]),
    "values unspecialised": lambda: Twin(no_alignment, do_not_specialize=["a"]),
    "annotated": lambda: Twin(annotated),
}

BASE = np.zeros(1024, np.float32)
FIXED = np.zeros(64, np.float32)
FIXED.flags.writeable = False


class Point(NamedTuple):
    x: Any
    y: Any


class Other(NamedTuple):
    x: Any
    y: Any


class Pair(tuple[Any, ...]):
    """A tuple of a class of its own, without names."""


class ByInterface:
    """What offers its memory as NumPy has it, and no more."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


class ByDlpack:
    """What offers its memory by DLPack only."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Duck:
    """What has an address and an element type."""

    def __init__(self, address: int, dtype: Any, device: Any = None) -> None:
        self.address, self.dtype = address, dtype
        if device is not None:
            self.device = device

    def data_ptr(self) -> int:
        return self.address


class Special(torch.Tensor):
    """A tensor of a class of its own."""


def descriptor(array: Any, *block: int, **options: Any) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(array, list(block), **options)


MATRIX = np.zeros((16, 20), np.float32)
FOREIGN: list[Any] = [
    *(ByInterface(BASE), ByInterface(BASE[1:]), ByInterface(FIXED)),
    *(ByDlpack(BASE[:64]), ByDlpack(BASE[64:]), ByInterface(np.zeros(3, np.complex64))),
    *(Duck(4096, "fp16"), Duck(2**63 + 16, tl.int8), Duck(4096, "fp16", "mps"), Duck(0, "u8", "")),
    *(TensorWrapper(torch.zeros(8, dtype=torch.int8), tl.float8e5), TensorWrapper(BASE, tl.int32)),
    *(torch.zeros(4).as_subclass(Special), torch.zeros(0).as_subclass(Special)),
    np.zeros(4, np.float32).view(np.recarray),
]
DESCRIBED: list[Any] = [
    *(descriptor(BASE, 16), descriptor(BASE, 32), descriptor(BASE[:512], 16)),
    *(descriptor(MATRIX, 4, 8), descriptor(MATRIX[4:12], 4, 8), descriptor(MATRIX, 8, 4)),
    *(descriptor(BASE, 16, padding="nan"), descriptor(BASE, 16, round_f32_to_tf32=True)),
    descriptor(torch.zeros(32, 16), 16, 16),
    descriptor(torch.zeros(4, 4, 4, 4, 8, dtype=torch.bfloat16), 1, 1, 2, 2, 8),
    descriptor(np.zeros((4, 16), ml_dtypes.bfloat16), 4, 8),
    TensorDescriptor(BASE, np.array([8]), [1], [8]),  # pyright: ignore[reportArgumentType]
    TensorDescriptor(BASE, (1024,), (1,), (8,), "".join(["ze", "ro"])),
]
SCALARS: list[Any] = [
    *(0, 1, 16, -7, 2**31, 2**63, 2**64, 2.5, np.float64(2.5), np.float32(2.5), np.int64(3)),
    *(None, True, False, "text", tl.float32, tl.constexpr(4), BASE, BASE[16:], torch.zeros(4)),
]


def broken() -> list[Any]:
    """Descriptors that are no longer what kernels expect."""
    found: list[Any] = []
    for field, value in (
        ("shape", [1024, 1]),
        ("shape", [-1]),
        ("shape", [1 << 31]),
        ("strides", [2]),
        ("strides", ["1"]),
        ("block_shape", []),
        ("base", 5),
        ("base", BASE[1:]),
        ("padding", "inf"),
    ):
        made = descriptor(BASE, 16)
        setattr(made, field, value)
        found.append(made)
    skewed = descriptor(MATRIX, 4, 8)
    skewed.strides = [21, 1]
    return [*found, skewed]


LEAVES = st.sampled_from([*SCALARS, *FOREIGN, *DESCRIBED])
TUPLES = st.recursive(
    st.lists(LEAVES, max_size=4).map(tuple),
    lambda inner: st.one_of(
        st.tuples(LEAVES, inner),
        st.builds(Point, inner, LEAVES),
        st.builds(Other, LEAVES, inner),
        st.builds(lambda a, b: Pair((a, b)), LEAVES, inner),
    ),
    max_leaves=6,
)
ARGUMENTS = st.one_of(TUPLES, LEAVES)


def compared(twin: Twin, *args: Any, **kwargs: Any) -> bool:
    """Launch, and compare with the reference; False if the reference rejects the launch."""
    expected = outcome(twin.binder, *args, **kwargs)
    if isinstance(expected[0], type):
        assert outcome(twin.launcher.bind((1,)), *args, **kwargs) == expected
        return False
    twin.launch(*args, **kwargs)
    return True


@settings(max_examples=200)
@given(st.sampled_from(sorted(MAKERS)), st.lists(ARGUMENTS, min_size=1, max_size=4))
def test_launches_equal_those_of_the_reference(maker: str, several: list[Any]) -> None:
    twin = MAKERS[maker]()
    for first in [*several, *several]:
        for second in (5, BASE[:16], several[0]):
            compared(twin, first, second)


@pytest.mark.parametrize("maker", ["plain", "alignment unspecialised"])
def test_every_pair_has_the_variant_of_its_key(maker: str) -> None:
    """Keys that native code takes for equal would give the variant of the other."""
    twin = MAKERS[maker]()
    values = [*SCALARS, *FOREIGN, *DESCRIBED, (), (1,), (2,), (2.5,), Pair((2,)), (BASE,)]
    values += [Point(1, 2), Other(1, 2), (1, 2), ((1,), 2), (1, (2,)), Point(2, BASE), (2, BASE)]
    for _ in range(2):
        for first in values:
            for second in (5, BASE[512:], (first,)):
                compared(twin, first, second)


@pytest.mark.parametrize(
    "value",
    [
        (BASE, 5, 2.5),
        ((1, (2, BASE)), None, True),
        Point(BASE, 3),
        Pair((BASE, 3)),
        (),
        np.float64(0.1),
        3,
        *DESCRIBED[:10],
        (DESCRIBED[0], DESCRIBED[3], 7),
        *(FOREIGN[0], FOREIGN[1], FOREIGN[2], FOREIGN[3], FOREIGN[6], FOREIGN[7]),
        *(FOREIGN[10], FOREIGN[11], FOREIGN[12], FOREIGN[14]),
        (FOREIGN[0], FOREIGN[3]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_launches_are_native_after_the_first(value: Any) -> None:
    twin = Twin(plain)
    for _ in range(3):  # the first meets the class, the second the key
        twin.launch(value, 7)
    assert twin.natively


@pytest.mark.parametrize("wrong", broken(), ids=lambda d: f"{d.shape} {d.strides} {d.block_shape}")
def test_invalid_descriptors_fall_back_to_python(wrong: Any) -> None:
    twin = Twin(plain)
    for _ in range(3):
        twin.launch(descriptor(BASE, 16))
    assert twin.natively
    expected = outcome(twin.binder, wrong)
    if isinstance(expected[0], type):
        assert outcome(twin.launcher.bind((1,)), wrong) == expected
    assert not compared(twin, wrong) or not twin.natively


def test_a_descriptor_is_read_on_each_launch() -> None:
    twin, changing = Twin(plain), descriptor(MATRIX, 4, 8)
    for _ in range(3):
        twin.launch(changing)
    sizes: list[bytes] = []
    for shape in ([16, 20], [8, 20], [8, 5]):
        changing.shape = shape
        sizes.append(twin.launch(changing))
    assert len(set(sizes)) == 3
    changing.block_shape = [2, 4]
    twin.launch(changing)
    assert not twin.natively


def test_errors_of_tensor_attributes_equal_those_of_the_reference() -> None:
    class Moody:
        dtype = "fp32"
        address: Any = 64

        def data_ptr(self) -> int:
            if isinstance(self.address, Exception):
                raise self.address
            return self.address

    twin, moody = Twin(plain), Moody()
    for _ in range(3):
        twin.launch(moody)
    assert twin.natively
    for Moody.address in (LookupError("moved"), "text", 2**64 - 16, 64):
        compared(twin, moody)
    assert twin.natively


def test_large_tuples() -> None:
    twin = Twin(plain)
    for count in (MAX_PARAMS, MAX_SLOTS - 4, MAX_SLOTS, 2 * MAX_SLOTS):
        for values in ((2.5,) * count, tuple(range(count)), (BASE,) * count, ((1.5,),) * count):
            for _ in range(3):
                twin.launch(values)
    nested: Any = ()
    for _ in range(100):
        nested = (nested,)
    for _ in range(3):
        twin.launch(nested)


@pytest.mark.parametrize(
    "constant",
    [
        *((), (1, 2), (1, (2.5, "a")), (True, None), (tl.float32, -1)),
        *(tl.constexpr(4), tl.constexpr(2.5), tl.constexpr(True), tl.constexpr(None)),
    ],
    ids=str,
)
def test_compile_time_values_with_parts(constant: Any) -> None:
    twin = Twin(plain)
    for _ in range(2):
        twin.launch(BASE, K=constant)
    assert twin.natively


def test_similar_compile_time_values_are_distinct() -> None:
    twin = Twin(plain)
    for _ in range(3):
        for constant in (
            *(1, 1.0, True, (1,), (1.0,), ((1,),), (1, 1), [1], Pair((1,)), "1", ("1",)),
            *(tl.constexpr(1), tl.constexpr(1.0), (tl.constexpr(1),), tl.constexpr((1,))),
        ):
            twin.launch(BASE, K=constant)


def test_a_changed_constexpr_is_another_value() -> None:
    twin, box = Twin(plain), tl.constexpr(4)
    for _ in range(2):
        twin.launch(BASE, K=box)
    first = twin.bind(BASE, K=box)[2]
    box.value = 5
    twin.launch(BASE, K=box)
    assert twin.bind(BASE, K=box)[2] is not first


def test_classes_of_descriptors_are_registered_on_first_use() -> None:
    class Described:
        base, shape, strides, block_shape = BASE, [16], [1], [8]

    twin = Twin(plain)
    assert Described not in DESCRIPTORS
    twin.launch(Described())
    assert Described in DESCRIPTORS
    twin.launch(Described())  # without `padding`: left to Python
    assert not twin.natively
    del DESCRIPTORS[Described]


def test_the_active_driver_places_launches_without_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin, place = Twin(plain), ["cpu"]
    monkeypatch.setattr(driver, "name_of", lambda active: place[0])
    for name, natively in (("cpu", True), ("mychip:0", False), ("cuda:0", True), ("cpu", True)):
        place[0] = name
        twin.launch(2, 3)
        twin.launch(2, 3)
        assert twin.natively == natively
