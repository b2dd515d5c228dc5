"""Arguments and options of launches that programs written for Triton pass."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tilewright.language as tl
from tilewright.base import knobs
from tilewright.runtime.jit import JITFunction, jit

pytestmark = pytest.mark.usefixtures("launcher")


def fill(out, value):
    tl.store(out + tl.program_id(0), value)


@pytest.fixture(params=["cpu", "interpreter"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., JITFunction]]:
    """Decorates a function for one of the targets."""
    with knobs.runtime.scope():
        knobs.runtime.interpret = request.param == "interpreter"
        yield jit


def test_extents_of_a_grid_may_be_anything_with_an_index(make: Callable[..., JITFunction]) -> None:
    kernel = make(fill)
    grids: list[Any] = [
        (np.int64(4),), (torch.tensor(4),), [torch.tensor([4])], (np.array(4), np.uint8(1)),
        lambda meta: (torch.tensor(4), 1),
    ]  # fmt: skip
    for grid in grids:
        out = np.zeros(4, np.int32)
        kernel[grid](out, 3)
        assert out.tolist() == [3] * 4
    for wrong in (4.0, torch.tensor(4.0), torch.tensor([4, 4]), "4"):
        with pytest.raises(TypeError, match=r"axis x of the grid is .*, not an int"):
            kernel[(wrong,)](np.zeros(4, np.int32), 3)


class Pointer:
    """An object with an address and an element type alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.dtype = tensor, tensor.dtype

    def data_ptr(self) -> int:
        return self.tensor.data_ptr()


class PointerWithStorage(Pointer):
    def untyped_storage(self) -> object:
        return object()


@pytest.mark.parametrize("kind", [Pointer, PointerWithStorage])
def test_object_with_an_address_and_a_dtype_is_a_pointer(kind: type[Pointer]) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    kernel = jit(fill)
    for value in (3, 4, 5):
        kernel[(4,)](kind(out), value)
        assert out.tolist() == [value] * 4


def test_setting_debug_overrides_an_option_that_is_off() -> None:
    kernel, out = jit(debug=True)(fill), np.zeros(1, np.int32)
    assert kernel[(1,)](out, 1).metadata.debug
    assert not kernel[(1,)](out, 1, debug=False).metadata.debug
    with knobs.runtime.scope():
        knobs.runtime.debug = True
        assert kernel[(1,)](out, 1, debug=False).metadata.debug


def test_warmup_takes_an_element_type_of_the_language_as_a_compile_time_value() -> None:
    @jit
    def cast(x, out, element: tl.constexpr):
        tl.static_assert(element == tl.int8)
        tl.store(out, tl.load(x).to(element).to(tl.int32))

    assert cast.warmup(torch.float32, torch.int32, tl.int8, grid=(1,)).name == "cast"
