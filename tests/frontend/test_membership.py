"""`in` and `not in`: of compile-time values, and of scalars in tuples."""

import numpy as np
import pytest

from tests.frontend.kernels import kernel_from, launch


@pytest.mark.parametrize(
    ("condition", "members"),
    [
        ("x in (1, 3)", [1, 3]),
        ("x not in (1, 3)", [0, 2]),
        ("x in (x + N, 2, x + 1)", [2]),
        ("x in (3, x)", [0, 1, 2, 3]),
        ("N in (x + 1, 5)", [3]),
        ("N in (x + 1, 4)", [0, 1, 2, 3]),
        ("x in ()", []),
        ("0 < x in (0, 2, 3) and N not in (2, 3)", [2, 3]),
        ("x == 1 if MODE in ('one', 'two') else x == 2", [1]),
        ("'n' in MODE and out.dtype.element_ty in [tl.int8, tl.int32]", [0, 1, 2, 3]),
        ("MODE not in 'one'", []),
    ],
)
def test_membership(condition: str, members: list[int]) -> None:
    text = f"""
    def kernel(out, N: tl.constexpr, MODE: tl.constexpr):
        x = tl.program_id(0)
        if {condition}:
            tl.store(out + x, x)
    """
    expected = [x if x in members else -1 for x in range(4)]
    out = np.full(4, -1, np.int32)
    launch(kernel_from(text), out, grid=4, N=4, MODE="one")
    assert out.tolist() == expected
