"""Each condition that keeps a gradient right is dropped once, and a witness must notice.

A witness passes as the code is. With one condition replaced by nothing it must fail: otherwise a
change that loses the condition would lose it silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.autodiff import kernels
from tests.autodiff.harness import (
    Arrays,
    check_gradients,
    forward_module,
    regrid_vjp,
    run_forward,
    vjp,
)
from tilewright.autodiff import (
    coarsen,
    coordinates,
    distinct,
    equivariance,
    regrid,
    reloads,
    replay,
    reverse,
    running_maxima,
)
from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.reverse import reverse_mode
from tilewright.base.diagnostics import (
    CompilationError,
    InterpreterError,
    IRError,
)


def agree(text: str, grid: Any = 4, number: int = 10) -> None:
    """The gradient of y with respect to x is that of the kernel."""
    rng = np.random.default_rng(0)
    args = {"x_ptr": rng.uniform(0.5, 1, 64), "y_ptr": np.zeros(64), "n": number}
    check_gradients(text, grid, args, ("x_ptr",), ("y_ptr",))


def program(address: str, then: str = "x * x") -> str:
    return f"""
def kernel(x_ptr, y_ptr, n):
    p = tl.program_id(0)
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + {address})
    tl.store(y_ptr + p * 8 + i, {then})
"""


def rejects(body: str) -> None:
    """There is an error rather than a gradient."""
    args = {"x_ptr": np.ones(64), "y_ptr": np.ones(64), "n": 10}
    text = program("p * 8 + i").rsplit("    tl.store", 1)[0] + body
    with pytest.raises(CompilationError):
        reverse_mode(forward_module(text, args, {}), ("x_ptr",), ("y_ptr",))


def strides_that_meet() -> None:
    agree(program("p * 4 + i * 3"))


def programs_that_meet() -> None:
    agree(program("p // 2 * 8 + i"))


def tiles_that_overlap_in_part() -> None:
    agree(program("p * 5 + i"))


def by_flags(first: str, second: str) -> None:
    """Loads in branches whose conditions are loaded."""
    text = f"""
def kernel(x_ptr, y_ptr, f_ptr):
    p, j = tl.program_id(0), tl.arange(0, 8)
    half = p // 2
    a, b, f = tl.zeros([8], tl.float64), tl.zeros([8], tl.float64), tl.load(f_ptr + p)
    if f > 0:
        {first}
    {second}
    tl.store(y_ptr + p * 8 + j, a * a + tl.sin(b))
"""
    args: Arrays = {"x_ptr": np.random.default_rng(0).uniform(0.5, 1, 32), "y_ptr": np.zeros(64)}
    args["f_ptr"] = np.array([1, 0, 1, 0], np.int32)
    check_gradients(text, 4, args, ("x_ptr",), ("y_ptr",))


def branches_that_are_both_taken() -> None:
    load = "{} = tl.load(x_ptr + p * 8 + j)"
    by_flags(load.format("a"), "if f < 2:\n        " + load.format("b"))


def branches_of_different_programs() -> None:
    load = "{} = tl.load(x_ptr + half * 8 + j)"
    stored = "tl.store(y_ptr + 32 + p * 8 + j, a)"
    by_flags(
        f"if p % 2 == 0:\n            {load.format('a')}\n            {stored}",
        f"else:\n        {load.format('b')}",
    )


def lanes_that_meet() -> None:
    agree(program("p * 8 + i * (n - 10)"))


def an_index_that_wraps_around() -> None:
    agree(program("p * n * n + i"), number=65536)


def lanes_of_a_tile_that_meet() -> None:
    """Workers add up x in a row of their own, in memory."""
    text = """
def kernel(x_ptr, y_ptr, n):
    p = tl.program_id(0)
    i, j = tl.arange(0, 4), tl.arange(0, 8)
    x = tl.load(x_ptr + p + i[:, None] * 3 + j[None, :])
    tl.store(y_ptr + p * 32 + i[:, None] * 8 + j[None, :], x * x)
"""
    agree(text, 2)


def a_multiple_of_a_remainder_that_wraps_around() -> None:
    agree(program("(p * 8 + i) % 64 * n * n"), number=65536)


def an_index_modulo_a_number() -> None:
    agree(program("p * 8 + (p * 8 + i) % 16 - p * 8"))


def an_index_that_is_replaced() -> None:
    agree(program("tl.where(p * 8 + i < 20, p * 8 + i, 0)"))


def infinities_behind_a_mask() -> None:
    text = """
def kernel(x_ptr, y_ptr, n):
    p = tl.program_id(0)
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + p)
    z = tl.where(i < 5, 1.0 + i, 0.0).to(tl.float64)
    tl.store(y_ptr + p * 8 + i, x * (1.0 / z) + tl.log(z) * x, mask=i < 5)
"""
    agree(text)


def infinities(inside: str, region: str) -> None:
    text = f"""
def kernel(x_ptr, y_ptr, n):
    i = tl.arange(0, 8)
    w = tl.load(x_ptr) + tl.zeros([8], tl.float64)
    z = 1.0 / tl.where(i < 5, 1.0 + i, 0.0).to(tl.float64)
    w *= {inside}
    {region}
        tl.store(y_ptr + i, w * z * z, mask=i < 5)
"""
    agree(text, 1)


def infinities_in_a_loop() -> None:
    infinities("2.0", "for k in range(n - 9):")


def infinities_in_a_branch() -> None:
    infinities("2.0", "if n > 3:")


def infinities_before_a_loop() -> None:
    infinities("z", "for k in range(n - 9):")


def infinities_before_a_branch() -> None:
    infinities("z", "if n > 3:")


def stores_in_a_branch() -> None:
    rng = np.random.default_rng(7)
    args = {"x_ptr": rng.uniform(0, 1, 39), "y_ptr": np.zeros(39), "n": 39, "stop": 3}
    check_gradients(kernels.EARLY_RETURN, 5, args, ("x_ptr",), ("y_ptr",), {"BLOCK": 8})


def an_array_in_place() -> None:
    rejects("""    tl.store(x_ptr + p * 8 + i, tl.zeros([8], tl.float64))
    tl.debug_barrier()
    tl.store(y_ptr + p * 8 + i, tl.load(x_ptr + p * 8 + i) * 2)
""")


def a_factor_that_is_overwritten() -> None:
    text = """
def kernel(x_ptr, z_ptr, y_ptr):
    i = tl.arange(0, 8)
    x, z = tl.load(x_ptr + i), tl.load(z_ptr + i)
    tl.store(y_ptr + i, x * z)
    tl.store(z_ptr + i, z + 1)
"""
    args = {name: np.ones(8) for name in ("x_ptr", "z_ptr", "y_ptr")}
    module = forward_module(text, args, {})
    with pytest.raises(CompilationError):
        reverse_mode(module, ("x_ptr",), ("y_ptr",))


def a_result_stored_twice() -> None:
    """The second store wins, and the first one has no gradient."""
    text = """
def kernel(x_ptr, y_ptr, n):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, x * x)
    tl.debug_barrier()
    tl.store(y_ptr + i, x)
"""
    args = {"x_ptr": np.full(8, 3.0), "y_ptr": np.zeros(8), "n": 1}
    module = forward_module(text, args, {})
    run_forward(module, 1, args)
    with pytest.raises(AssertionError, match="same elements"):
        vjp(module, 1, args, {"y_ptr": np.ones(8)}, ("x_ptr",))


def running_maximum(
    before: str = "", start: str = "tl.full([], -float('inf'), tl.float64)",
    factor: str = "tl.exp(m - largest)", after: str = "m + tl.log(total)",
) -> str:  # fmt: skip
    return f"""
def kernel(x_ptr, y_ptr, n):
    p = tl.program_id(0)
    i = tl.arange(0, 8)
    m = {start}
    total = tl.full([], 0.0, tl.float64)
    for k in range(3):
        x = tl.load(x_ptr + p * 32 + k * 8 + i)
        largest = tl.maximum(m, tl.max(x, 0))
        total = total * {factor} + tl.sum(tl.exp(x - largest), 0)
        m = largest
    {before}
    for k in range(3, 3 + n // 10):
        x = tl.load(x_ptr + p * 32 + k * 8 + i)
        largest = tl.maximum(m, tl.max(x, 0))
        total = total * tl.exp(m - largest) + tl.sum(tl.exp(x - largest), 0)
        m = largest
    tl.store(y_ptr + p * 2, {after})
"""


def is_rejected(text: str) -> None:
    args = {"x_ptr": np.ones(64), "y_ptr": np.ones(64), "n": 10}
    with pytest.raises(CompilationError):
        reverse_mode(forward_module(text, args, {}), ("x_ptr",), ("y_ptr",))


def product(
    rows: str = "p // 2", columns: str = "p % 2", trips: str = "2", row: str = "r * 16",
    result: str = "acc",
) -> str:  # fmt: skip
    """y[r, c] += x[r] * z[c], of tiles of 8, in a loop."""
    return f"""
def kernel(x_ptr, z_ptr, y_ptr, n):
    p = tl.program_id(0)
    i = tl.arange(0, 8)
    r, c = {rows}, {columns}
    acc = tl.zeros([8], tl.float64)
    for k in range({trips}):
        x = tl.load(x_ptr + {row} + k * 8 + i, mask=i < 7, other=0.0)
        acc += x * tl.load(z_ptr + c * 16 + k * 8 + i)
    tl.atomic_add(y_ptr + r * 16 + c * 8 + i, {result}, mask=i < 7)
"""


def agrees(text: str, length: int = 64, grid: Any = 4, is_regridded: bool = False) -> None:
    """The gradients by programs of their own are those of the kernel."""
    rng = np.random.default_rng(0)
    args = {"x_ptr": rng.uniform(0.5, 1, length), "z_ptr": rng.uniform(0.5, 1, 64)}
    args |= {"y_ptr": np.zeros(64), "n": 10}
    module = check_gradients(text, grid, args, ("x_ptr", "z_ptr"), ("y_ptr",))
    if is_regridded:
        found, _ = regrid_vjp(module, grid, args, {"y_ptr": np.ones(64)}, ("x_ptr", "z_ptr"))
        assert "x_ptr" in found


def tiles_on_a_grid_of_their_own() -> None:
    agrees(product())


def programs_with_the_same_coordinates() -> None:
    agrees(product("p * 3 % 2", "p * 5 % 2"))


def tiles_that_are_shared_in_part() -> None:
    agrees(product(row="r * 8"))


def rows_of_several_lengths() -> None:
    agrees(product(trips="3 - 2 * r", row="r * 24"), 32)


def columns_of_several_lengths() -> None:
    agrees(product(trips="1 + c"))


def a_pointer_that_starts_elsewhere() -> None:
    text = """
def kernel(x_ptr, z_ptr, y_ptr, n):
    r, c = tl.program_id(0) // 2, tl.program_id(0) % 2
    i = tl.arange(0, 8)
    acc = tl.zeros([8], tl.float64)
    z = z_ptr + c * 16 + i
    for k in range(c, 3):
        acc += tl.load(x_ptr + r * 24 + k * 8 + i) * tl.load(z)
        z += 8
    tl.store(y_ptr + r * 16 + c * 8 + i, acc)
"""
    agrees(text, is_regridded=True)
    agrees(
        text.replace(
            "r, c = tl.program_id(0) // 2, tl.program_id(0) % 2",
            "c, r = tl.program_id(0), tl.program_id(1)",
        ),
        grid=(2, 2),
    )


def rows_that_start_elsewhere() -> None:
    """Row 1 has the iterations from 1 on."""
    agrees(product(trips="r, 2"), is_regridded=True)


def programs_outside_of_a_branch() -> None:
    text = nested("p = tl.program_id(0)\n    if p % 4 < 2:").replace(
        "c = p // 2, p % 2", "c = p // 4, p % 4"
    )
    agrees(text.replace("y_ptr + r * 16", "y_ptr + r * 32"), grid=8, is_regridded=True)


def a_branch_that_depends_on_memory() -> None:
    """No program enters it, and there is nothing at the address of x."""
    args: Any = {"x_ptr": np.ones(8), "z_ptr": np.ones(64), "y_ptr": np.zeros(64), "n": 10}
    text = nested("p = tl.program_id(0)\n    if tl.load(z_ptr + p) > 4.0:")
    check_gradients(text.replace("x_ptr +", "x_ptr + 8 +"), 4, args, ("x_ptr",), ("y_ptr",))


def tiles_of_a_persistent_kernel() -> None:
    """The batch is another axis of the grid, and the tile alone is no coordinate of a program."""
    text = nested("for p in range(tl.program_id(0), 4, tl.num_programs(0)):")
    agrees(text.replace("p // 2", "p // 2 + tl.program_id(1) * 2"), 64, (2, 2), is_regridded=True)


def means_of_some_rows() -> None:
    """Those of rows beyond the last are used, but not stored."""
    text = """
def kernel(x_ptr, y_ptr, m_ptr, n):
    i, j = tl.arange(0, 4), tl.arange(0, 16)
    x = tl.load(x_ptr + i[:, None] * 16 + j[None, :])
    m = tl.sum(x * x, 1)
    tl.store(m_ptr + i, m, mask=i < n - 8)
    tl.store(y_ptr + i[:, None] * 16 + j[None, :], x * m[:, None])
"""
    args = {"x_ptr": np.random.default_rng(0).uniform(0.5, 1, 64), "y_ptr": np.zeros(64)}
    args |= {"m_ptr": np.zeros(4), "n": 10}
    check_gradients(text, 1, args, ("x_ptr",), ("y_ptr",), aux=("m_ptr",))


def a_quotient_of_zero() -> None:
    """The mean is 0 / sum, and the sum is needed as well."""
    text = """
def kernel(x_ptr, y_ptr, m_ptr, n):
    p, j = tl.program_id(0), tl.arange(0, 16)
    x = tl.load(x_ptr + p * 16 + j)
    s = tl.sum(x * x, 0)
    m = 0.0 / s
    tl.store(m_ptr + p, m)
    tl.store(y_ptr + p * 16 + j, x * s + m)
"""
    args: Any = {"x_ptr": np.random.default_rng(0).uniform(0.5, 1, 64), "y_ptr": np.zeros(64)}
    args |= {"m_ptr": np.zeros(4), "n": 10}
    check_gradients(text, 4, args, ("x_ptr",), ("y_ptr",), aux=("m_ptr",))


def a_sum_that_programs_have_in_common() -> None:
    text = """
def kernel(x_ptr, w_ptr, y_ptr, m_ptr):
    p, i = tl.program_id(0), tl.arange(0, 16)
    w = tl.load(w_ptr + i)
    m = tl.sum(w * w, 0)
    tl.store(m_ptr + p, m)
    tl.store(y_ptr + p * 16 + i, tl.load(x_ptr + p * 16 + i) * m * w)
"""
    rng = np.random.default_rng(0)
    args: Any = {"x_ptr": rng.uniform(0.5, 1, 64), "w_ptr": rng.uniform(0.5, 1, 16)}
    args |= {"y_ptr": np.zeros(64), "m_ptr": np.zeros(4)}
    check_gradients(text, 4, args, ("x_ptr", "w_ptr"), ("y_ptr",), aux=("m_ptr",))


def digits_of_several_moduli() -> None:
    """p // n is 0 for each program, and p // 2 is not."""
    agrees(product("p // n + p % 2", "p // 2"))


def nested(around: str) -> str:
    """Sums of products in a loop in a branch, or in another loop."""
    return f"""
def kernel(x_ptr, z_ptr, y_ptr, n):
    i = tl.arange(0, 8)
    {around}
        r, c = p // 2, p % 2
        acc = tl.zeros([8], tl.float64)
        for k in range(2):
            x = tl.load(x_ptr + r * 16 + k * 8 + i)
            acc += x * tl.load(z_ptr + c * 16 + k * 8 + i)
        tl.store(y_ptr + r * 16 + c * 8 + i, acc * acc)
"""


def infinities_behind_a_mask_of_results() -> None:
    agrees(product(result="tl.log(acc)"))


def two_loops_with_a_maximum() -> None:
    agree(running_maximum(), 2)


def a_maximum_that_is_a_result() -> None:
    is_rejected(running_maximum(after="total"))


def a_row_without_its_maximum() -> None:
    agree(program("p * 8 + i", "x - tl.max(x, 0)"))


def lanes_with_maxima_of_their_own() -> None:
    text = """
def kernel(x_ptr, y_ptr, n):
    i = tl.arange(0, 8)
    m = tl.full([8], -float("inf"), tl.float64)
    total = tl.zeros([8], tl.float64)
    for k in range(n // 4):
        x = tl.load(x_ptr + k * 8 + i)
        largest = tl.maximum(m, x)
        total = total * tl.exp(m - largest) + tl.exp(x - largest)
        m = largest
    tl.store(y_ptr, tl.max(m, 0) + tl.log(tl.sum(total, 0)))
"""
    is_rejected(text)


def a_sum_that_decays() -> None:
    is_rejected(running_maximum(factor="(tl.exp(m - largest) * 0.5)"))


def a_sum_that_is_used_between_two_loops() -> None:
    is_rejected(running_maximum("tl.store(y_ptr + p * 2 + 1, m + tl.log(total))"))


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


def only_results(self: Any, op: Any) -> bool:
    return any(r in self._adjoints[-1] for r in op.results)


def unchanged(self: Any, value: Any, within: Any = None) -> Any:
    return value


def a_sum_for_another_maximum() -> None:
    """With lse for the maximum the total is 1, and not what is stored."""
    text = """
def kernel(x_ptr, y_ptr, t_ptr, n):
    p = tl.program_id(0)
    i = tl.arange(0, 8)
    m = tl.full([], -float("inf"), tl.float64)
    total = tl.full([], 0.0, tl.float64)
    for k in range(2):
        x = tl.load(x_ptr + p * 16 + k * 8 + i)
        larger = tl.maximum(m, tl.max(x))
        total = total * tl.exp(m - larger) + tl.sum(tl.exp(x - larger))
        m = larger
    tl.store(t_ptr + p, total)
    tl.store(y_ptr + p, m + tl.log(total))
"""
    rng = np.random.default_rng(0)
    args: Any = {"x_ptr": rng.uniform(0.5, 3, 64), "y_ptr": np.zeros(4)}
    args |= {"t_ptr": np.zeros(4), "n": 10}
    check_gradients(text, 4, args, ("x_ptr",), ("y_ptr",), aux=("t_ptr",))


def sums(*args: Any) -> bool:
    return True


def depends_on_nothing(value: Any) -> bool:
    return False


def add_axis(axes: Any, stride: int, low: Any, high: Any) -> None:
    if stride:
        axes[abs(stride)] = low, high


def own_maximum(running: running_maxima.RunningMaximum) -> Any:
    return running.loop.results[running.index]


def first_of(a: Any, b: Any) -> Any:
    return a


def boxes_of_the_first(known: Any, points: Any, finder: Any) -> Any:
    return distinct._boxes(known.blocks[0], points, finder)


def never_moves(loop: Any, arg: Any, value: Any) -> bool:
    return loop.inits[arg.index - 1] is value or regrid.increment_of(loop, arg) is None


def is_proven(*args: Any) -> Any:
    return distinct.Verdict(True, True, elements=None)


def no_values(*args: Any) -> list[Any]:
    return []


def same_change(found: Any, axis: int) -> Any:
    form = {equivariance.Symbol(key.name, ()): c for key, c in found.form.items()}
    return equivariance.Equivariance(found.kind, form)


def any_loop_before(running: Any, earlier: Any) -> Any:
    return earlier.get(running.loop.inits[running.index].owner)


CONDITIONS: dict[str, tuple[Any, str, Any, Callable[[], None]]] = {
    "strides exceed what smaller ones reach": (
        distinct, "_require_mixed_radix", nothing, strides_that_meet,
    ),
    "programs have different boxes": (
        distinct, "_have_different_boxes", sums, programs_that_meet,
    ),
    "boxes do not overlap in part": (
        distinct, "_have_different_boxes", sums, tiles_that_overlap_in_part,
    ),
    "accesses may all be made unless branches exclude each other": (
        distinct, "exclusive_at", first_of, branches_that_are_both_taken,
    ),
    "accesses of which one is made have the points of all": (
        distinct, "_boxes_of", boxes_of_the_first, branches_of_different_programs,
    ),
    "lanes with the stride 0": (distinct, "_add_axis", add_axis, lanes_that_meet),
    "narrow integers do not wrap": (
        distinct, "_require_no_wrapping", nothing, an_index_that_wraps_around,
    ),
    "lanes that are added up in memory do not meet": (
        coarsen, "lanes_are_distinct", sums, lanes_of_a_tile_that_meet,
    ),
    "multiples of remainders do not wrap": (
        distinct, "_range_of_remainder", lambda piece, points: (0, 0),
        a_multiple_of_a_remainder_that_wraps_around,
    ),
    "no index is a remainder": (
        distinct, "_require_not_replaced", nothing, an_index_modulo_a_number,
    ),
    "no index is replaced": (distinct, "_require_not_replaced", nothing, an_index_that_is_replaced),
    "elements are stored once": (
        distinct, "_have_different_boxes", sums, a_result_stored_twice,
    ),
    "lanes that are summed are guarded": (
        Emitter, "guarded", unchanged, infinities_behind_a_mask,
    ),
    "lanes that are zero in a loop are guarded": (
        Emitter, "guarded", unchanged, infinities_in_a_loop,
    ),
    "lanes that are zero in a branch are guarded": (
        Emitter, "guarded", unchanged, infinities_in_a_branch,
    ),
    "lanes that are zero after a loop are guarded": (
        Emitter, "zero_with_itself", unchanged, infinities_before_a_loop,
    ),
    "lanes that are zero after a branch are guarded": (
        Emitter, "zero_with_itself", unchanged, infinities_before_a_branch,
    ),
    "branches without results are walked": (
        reverse.ReverseWalk, "_flows_through", only_results, stores_in_a_branch,
    ),
    "results do not depend on a maximum": (
        running_maxima, "free_maxima", no_values, a_maximum_that_is_a_result,
    ),
    "results do not depend on the maximum of a row": (
        running_maxima, "free_maxima", no_values, a_row_without_its_maximum,
    ),
    "lanes along which sums are taken have one maximum": (
        equivariance, "_without", same_change, lanes_with_maxima_of_their_own,
    ),
    "what a maximum scales is scaled by nothing else": (
        running_maxima, "_is_one", sums, a_sum_that_decays,
    ),
    "what one loop hands to the next has no other use": (
        running_maxima, "_continued", any_loop_before, a_sum_that_is_used_between_two_loops,
    ),
    "the final maximum stands for those before": (
        running_maxima.RunningMaximum, "final", property(own_maximum), two_loops_with_a_maximum,
    ),
    "coordinates correspond to programs": (
        coordinates, "_is_box", sums, programs_with_the_same_coordinates,
    ),
    "tiles on a new grid are distinct": (
        regrid, "distinct_after_projection", is_proven, tiles_that_are_shared_in_part,
    ),
    "programs of the new grid are iterations of the kernel": (
        regrid, "_fills_grid", sums, rows_of_several_lengths,
    ),
    "programs that lack an iteration add nothing": (
        regrid, "_have_all_iterations", sums, columns_of_several_lengths,
    ),
    "loops begin with the first iteration of all": (
        regrid, "_all_begin_with", sums, rows_that_start_elsewhere,
    ),
    "a value that is loaded again is stored in all lanes": (
        reloads, "_is_unmasked", sums, means_of_some_rows,
    ),
    "what a reciprocal is of follows from it": (
        reloads, "_has_inverse", sums, a_quotient_of_zero,
    ),
    "results of loops are not loaded one by one": (
        reloads, "_depends_on_loop", depends_on_nothing, a_sum_for_another_maximum,
    ),
    "a value that is loaded again is that of one program": (
        replay.Replay, "_is_of_programs", sums, a_sum_that_programs_have_in_common,
    ),
    "programs outside of a branch add nothing": (
        regrid, "_have_all_iterations", sums, programs_outside_of_a_branch,
    ),
    "programs that run a loop are known": (
        regrid, "_is_known", sums, a_branch_that_depends_on_memory,
    ),
    "coordinates correspond to tiles and programs": (
        coordinates, "_is_box", sums, tiles_of_a_persistent_kernel,
    ),
    "what a loop carries in steps depends on its start": (
        regrid, "_moves", never_moves, a_pointer_that_starts_elsewhere,
    ),
    "adjoints that are saved are guarded": (
        Emitter, "guarded", unchanged, infinities_behind_a_mask_of_results,
    ),
    "arrays are not both loaded and stored": (
        reverse.ReverseWalk, "_require_known_memory", nothing, an_array_in_place,
    ),
    "what is loaded again is not overwritten": (
        replay.Replay, "_require_pure", nothing, a_factor_that_is_overwritten,
    ),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CONDITIONS)
def test_the_witness_of_a_condition_notices_its_loss(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, attribute, replacement, witness = CONDITIONS[name]
    witness()
    monkeypatch.setattr(place, attribute, replacement)
    with pytest.raises((AssertionError, pytest.fail.Exception, InterpreterError, IRError)):
        witness()


def test_the_numbers_of_values_are_those_of_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found of divisions is compared with the numbers of the launch."""
    monkeypatch.setattr(coordinates, "_uniform", lambda *args: 2)
    digits_of_several_moduli()
    monkeypatch.setattr(coordinates, "_hold", sums)
    with pytest.raises(AssertionError):
        digits_of_several_moduli()
