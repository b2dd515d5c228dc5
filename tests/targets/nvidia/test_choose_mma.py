"""Which instruction computes a product, over types, shapes, warps and chips."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tests.covering import covering
from tests.frontend.kernels import build, kernel_from
from tests.gpu_machine import gpu_machine
from tests.targets.nvidia.lowered import ptx_of
from tilewright.compiler.pipeline import STEPS
from tilewright.compiler.source import ASTSource
from tilewright.ir.core import Module, Op
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext, Step, Verifier, run
from tilewright.ir.types import FP8E4NV, Shared, Tile, dtype_of, shape_of
from tilewright.layout.families import mma_operand_a, mma_operand_b
from tilewright.layout.linear import LANE, OFFSET, REGISTER, WARP, LinearLayout
from tilewright.ops.arith import Add, Cast, Neg
from tilewright.ops.control import For
from tilewright.ops.dot import Dot
from tilewright.ops.gpu import Fetch, Share
from tilewright.ops.memory import Load
from tilewright.ops.nvidia import FetchAcross, Mma, Wgmma
from tilewright.passes.assign_layouts import assign_layouts
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.licm import hoist_invariants
from tilewright.passes.verify_layouts import LayoutVerifier
from tilewright.targets.gpu.thread_products import thread_products
from tilewright.targets.nvidia.choose_mma import choose_mma, groups_of, instruction_columns
from tilewright.targets.nvidia.features import processor
from tilewright.targets.nvidia.target import NvidiaTarget

Shape = tuple[int, int, int]  # m, n, k
RESULTS = {"i8": "i32", "fp64": "fp64"}


@tw.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    A_ROW: tl.constexpr, A_COLUMN: tl.constexpr, B_ROW: tl.constexpr, B_COLUMN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    a = tl.load(a_ptr + m * A_ROW + k[None, :] * A_COLUMN)
    b = tl.load(b_ptr + k[:, None] * B_ROW + n * B_COLUMN)
    c = tl.dot(a, b, input_precision=PRECISION, out_dtype=c_ptr.dtype.element_ty)
    tl.store(c_ptr + m * N + n, c)


def module_of(type: str, shape: Shape, orders: str = "nn", precision: str = "tf32") -> Module:
    """A product of matrices with contiguous rows (``n``) or columns (``t``)."""
    m, n, k = shape
    acc = RESULTS.get(type, "fp32")
    constants: dict[str, Any] = {"M": m, "N": n, "K": k, "PRECISION": precision}
    for name, order, rows, columns in (("A", orders[0], m, k), ("B", orders[1], k, n)):
        strides = (columns, 1) if order == "n" else (1, rows)
        constants |= dict(zip((f"{name}_ROW", f"{name}_COLUMN"), strides, strict=True))
    signature = {"a_ptr": f"*{type}", "b_ptr": f"*{type}", "c_ptr": f"*{acc}"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(3)}
    source = ASTSource(product_kernel, signature, constants, aligned)
    target = NvidiaTarget(90)
    return source.module(target.frontend_options(target.parse_options({})))


def all_chosen(module: Module, warps: int = 4, arch: int = 90) -> list[Dot]:
    """The products after the choice, with layouts that are verified."""
    ctx = PassContext(processor(arch).features, machine=gpu_machine(lanes=32, warps=warps))
    passes = choose_mma, thread_products, assign_layouts, remove_dead_code
    steps = [*STEPS, *map(Step, passes)]
    run(module, steps, ctx, [Verifier(), LayoutVerifier(ctx)])
    return [op for op in module.walk() if isinstance(op, Dot)]


def chosen(module: Module, warps: int = 4, arch: int = 90) -> Dot:
    """The only product after the choice."""
    (found,) = all_chosen(module, warps, arch)
    return found


@pytest.mark.parametrize("element", ["fp16", "bf16", "i8", "fp8e4nv", "fp8e5", "fp32"])
@pytest.mark.parametrize(
    ("shape", "warps", "expected"),
    [
        ((64, 64, 64), 4, Wgmma),
        ((64, 8, 32), 4, Wgmma),
        ((128, 256, 64), 8, Wgmma),
        ((64, 128, 64), 8, Wgmma),  # two warp groups side by side
        ((256, 128, 64), 16, Wgmma),
        ((64, 64, 64), 2, Mma),  # no whole warp group
        ((32, 64, 64), 4, Mma),  # too few rows for one
        ((16, 8, 32), 1, Mma),
        ((16, 16, 32), 16, Mma),
        ((8, 64, 64), 4, Dot),
        ((16, 4, 64), 4, Dot),
    ],
)
def test_instruction_by_shape_and_warps(
    element: str, shape: Shape, warps: int, expected: type[Op]
) -> None:
    assert type(chosen(module_of(element, shape), warps)) is expected


@pytest.mark.parametrize("columns", [16, 32])
@pytest.mark.parametrize("element", ["fp16", "bf16", "i8", "fp8e4nv", "fp8e5", "fp32"])
def test_groups_with_few_columns_each(element: str, columns: int) -> None:
    """16 columns are not worth a warp group, but for fp8, which mma.sync takes as fp16."""
    expected = Wgmma if columns == 32 or element.startswith("fp8") else Mma
    assert type(chosen(module_of(element, (64, 2 * columns, 64)), 8)) is expected


@tw.jit
def weighted_product_kernel(a_ptr, b_ptr, w_ptr, c_ptr, N: tl.constexpr):
    m, n, k = tl.arange(0, 64)[:, None], tl.arange(0, N)[None, :], tl.arange(0, 64)
    weights = tl.load(w_ptr + k)[None, :]
    a = (tl.load(a_ptr + m * 64 + k[None, :]) * weights).to(tl.float16)
    tl.store(c_ptr + m * N + n, tl.dot(a, tl.load(b_ptr + k[:, None] * N + n)))


@pytest.mark.parametrize(("columns", "expected"), [(32, Mma), (64, Wgmma)])
def test_groups_with_few_columns_of_a_computed_operand(columns: int, expected: type[Op]) -> None:
    """mma.sync takes the computed operand from registers."""
    types = {"a_ptr": "*fp16", "b_ptr": "*fp16", "w_ptr": "*fp16", "c_ptr": "*fp32"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    source = ASTSource(weighted_product_kernel, types, {"N": 2 * columns}, aligned)
    target = NvidiaTarget(90)
    module = source.module(target.frontend_options(target.parse_options({})))
    assert type(chosen(module, 8)) is expected


@pytest.mark.parametrize("precision", ["tf32x3", "bf16x3"])
def test_groups_with_few_columns_of_computed_operands(precision: str) -> None:
    """Operands of mma.sync that are computed are in registers along all of K."""
    module = module_of("fp32", (64, 64, 128), precision=precision)
    assert [type(op) for op in all_chosen(module, 8)] == [Wgmma] * 3


@pytest.mark.parametrize(
    ("element", "precision", "arch", "expected"),
    [
        ("fp16", "tf32", 80, Mma),
        ("bf16", "tf32", 80, Mma),
        ("i8", "tf32", 80, Mma),
        ("fp32", "tf32", 80, Mma),
        ("fp8e4nv", "tf32", 80, Mma),  # as fp16
        ("fp8e4b8", "tf32", 90, Wgmma),
        ("fp8e4b8", "tf32", 75, Mma),
        ("fp8e4nv", "tf32", 89, Mma),
        ("fp16", "tf32", 75, Mma),
        ("i8", "tf32", 75, Mma),
        ("bf16", "tf32", 75, Dot),
        ("fp32", "tf32", 75, Dot),
        ("fp64", "ieee", 75, Dot),
        ("fp64", "ieee", 80, Mma),
        ("fp16", "tf32", 100, Mma),
        ("fp32", "ieee", 90, Dot),
        ("fp64", "ieee", 90, Mma),
        ("fp16", "ieee", 90, Wgmma),
    ],
)
def test_instruction_by_chip_and_precision(
    element: str, precision: str, arch: int, expected: type[Op]
) -> None:
    module = module_of(element, (64, 64, 64), precision=precision)
    assert type(chosen(module, arch=arch)) is expected


@pytest.mark.parametrize(
    ("limit", "expected"), [(1 << 30, Wgmma), (64, Wgmma), (32, Wgmma), (31, Mma), (0, Mma)]
)
def test_fp8_is_accumulated_in_the_requested_precision(limit: int, expected: type[Op]) -> None:
    """Hopper's wgmma sums products of fp8 with fewer bits: no fewer than 32 at a time."""
    module = module_of("fp8e5", (64, 64, 64))
    (dot,) = (op for op in module.walk() if isinstance(op, Dot))
    dot.max_imprecise = limit
    found = chosen(module)
    assert type(found) is expected
    assert str(dtype_of(found.rhs.type)) == "fp8e5"


@pytest.mark.parametrize(("warps", "expected"), [(4, "fp16"), (8, "fp8e5")])
def test_many_exact_sums_of_fp8_are_of_fp16(warps: int, expected: str) -> None:
    """mma.sync spills with 128 sums for each thread."""
    module = module_of("fp8e5", (128, 128, 64))
    (dot,) = (op for op in module.walk() if isinstance(op, Dot))
    dot.max_imprecise = 0
    assert str(dtype_of(chosen(module, warps).rhs.type)) == expected


@pytest.mark.parametrize(("limit", "parts"), [(1 << 30, 0), (128, 0), (64, 2), (96, 2), (32, 4)])
def test_products_of_fp8_are_added_in_parts(limit: int, parts: int) -> None:
    module = module_of("fp8e5", (64, 64, 128))
    (dot,) = (op for op in module.walk() if isinstance(op, Dot))
    dot.max_imprecise = limit
    ptx = ptx_of(module, num_warps=4)
    assert ptx.count("wgmma.mma_async") == 4
    assert len(re.findall(r"add(?:\.rn)?\.f32", ptx)) == parts * 32
    assert ptx.count("wgmma.commit_group") == max(parts, 1)


def test_mixed_fp8_is_multiplied_as_fp16() -> None:
    module = module_of("fp8e5", (64, 64, 64))
    (dot,) = (op for op in module.walk() if isinstance(op, Dot))
    other = Cast(dot.lhs, FP8E4NV, "rtne")
    assert dot.parent is not None
    dot.parent.insert_before(other, dot)
    dot.set_operand(0, other.results[0])
    found = chosen(module)
    assert type(found) is Wgmma
    assert {str(dtype_of(v.type)) for v in found.operands[:2]} == {"fp16"}


def _shares(op: Op) -> list[Share]:
    """What puts the operands into shared memory, whether they are fetched from there or not."""
    sources = [v.op.src if isinstance(v.op, Fetch) else v for v in op.operands[:2]]
    return [v.op for v in sources if isinstance(v.op, Share)]


@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
def test_sixteen_bit_operands_keep_their_order_in_memory(orders: str) -> None:
    product = chosen(module_of("fp16", (64, 128, 64), orders))
    for share, order in zip(_shares(product), orders, strict=True):
        assert _fast_axis(share) == (1 if order == "n" else 0)


@pytest.mark.parametrize("type", ["i8", "fp8e5", "fp32"])
@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
def test_other_operands_are_adjacent_along_k_in_shared_memory(type: str, orders: str) -> None:
    """Or they are the left operand, which is loaded to registers; a right operand becomes one by
    transposing the product. If both lie across K, the right one is written once more, along K."""
    found = chosen(module_of(type, (64, 128, 64), orders))
    layout = found.rhs.layout
    assert layout is not None
    assert layout.coordinates(layout.bases(OFFSET)[0]) == (1, 0)
    transposed = orders == "nn"
    assert shape_of(found.result.type) == ((128, 64) if transposed else (64, 128))
    assert isinstance(found.lhs.op, Fetch) == (orders != "nt")
    assert found.parent is not None
    shares = [op for op in found.parent if isinstance(op, Share)]
    # As in memory, so that vectors can be copied.
    loaded = [_fast_axis(share) for share in shares if not isinstance(share.src.op, Fetch)]
    assert sorted(loaded) == sorted(1 if order == "n" else 0 for order in orders)
    assert len(shares) == (3 if orders == "tn" else 2)


@pytest.mark.parametrize("type", ["i8", "fp32"])
def test_product_of_a_computed_operand_is_not_transposed(type: str) -> None:
    """It would become the right operand, which goes through shared memory."""
    module = module_of(type, (64, 128, 64), "nn")
    (dot,) = (op for op in module.walk() if isinstance(op, Dot))
    negated = Neg(dot.lhs)
    computed = Add(negated.results[0], negated.results[0])
    assert dot.parent is not None
    dot.parent.insert_before(negated, dot)
    dot.parent.insert_before(computed, dot)
    dot.set_operand(0, computed.results[0])
    found = chosen(module)
    assert shape_of(found.result.type) == (64, 128)


def _fast_axis(share: Share) -> int:
    layout = share.result.layout
    assert layout is not None
    return layout.coordinates(layout.bases(OFFSET)[0]).index(1)


SMALL = (8, 16, 32, 64)


@pytest.mark.parametrize(
    ("m", "n", "type", "warps", "k", "orders"),
    covering(
        SMALL, SMALL, ["fp16", "fp8e5", "fp32"], [1, 4, 8], (32, 64), ("nn", "tt"), strength=3
    ),
)
def test_every_small_shape_gets_layouts(
    m: int, n: int, type: str, warps: int, k: int, orders: str
) -> None:
    """Narrow ones too, whose rows are shorter than what the hardware swizzles."""
    found = chosen(module_of(type, (m, n, k), orders), warps)
    for value in found.operands:
        assert value.layout is not None
        assert value.layout.shape == shape_of(value.type)


@pytest.mark.parametrize("warps", [4, 8, 16])
def test_warp_groups_cover_the_result_once(warps: int) -> None:
    """Groups times what each does is the whole, in instructions of at most 256 columns."""
    for m, n in product((64, 128, 256), (64, 128, 256, 512)):
        groups = groups_of((m, n), warps)
        assert groups.rows * groups.columns == warps // 4
        found = chosen(module_of("fp16", (m, n, 16)), warps)
        if isinstance(found, Wgmma):
            columns = instruction_columns(found, warps)
            assert columns <= 256
            assert n % (columns * groups.columns) == 0
            layout = found.results[0].layout
            assert layout is not None
            assert not any(layout.free_variables(name) for name in ("register", "lane", "warp"))


def test_computed_left_operand_stays_in_registers() -> None:
    text = """
    func @f(%0: ptr<fp32>, %1: ptr<fp16>) {
      %p = tile.splat %0, shape=(64, 64,) : ptr<fp32> -> 64x64xptr<fp32>
      %q = tile.splat %1, shape=(64, 64,) : ptr<fp16> -> 64x64xptr<fp16>
      %2 = mem.load %p, _, _, cache="", evict="", volatile=False : 64x64xptr<fp32> -> 64x64xfp32
      %3 = mem.load %q, _, _, cache="", evict="", volatile=False : 64x64xptr<fp16> -> 64x64xfp16
      %4 = arith.add %2, %2 : (64x64xfp32, 64x64xfp32) -> 64x64xfp32
      %5 = arith.cast %4, to=fp16, rounding="rtne" : 64x64xfp32 -> 64x64xfp16
      %6 = tile.dot %5, %3, %2, precision="ieee", max_imprecise=0
        : (64x64xfp16, 64x64xfp16, 64x64xfp32) -> 64x64xfp32
      mem.store %p, %6, _, cache="", evict="" : (64x64xptr<fp32>, 64x64xfp32) -> ()
      control.return [] : () -> ()
    }"""
    found = chosen(parse_module(text))
    assert isinstance(found, Wgmma)
    assert isinstance(found.lhs.type, Tile)
    assert isinstance(found.rhs.type, Shared)


@pytest.mark.parametrize("stages", [1, 3])
def test_an_operand_that_is_computed_with_is_fetched_if_it_is_copied_ahead(stages: int) -> None:
    """Distances need products of rows and their squares: the rows are in shared memory once."""
    module = build(
        kernel_from("""
        def kernel(x, y, out, n):
            m, k = tl.arange(0, 64), tl.arange(0, 64)
            a = tl.load(x + m[:, None] * 64 + k[None, :])
            for start in range(0, n, 64):
                b = tl.load(y + (start + m[:, None]) * 64 + k[None, :])
                norm = tl.sum(b.to(tl.float32) * b.to(tl.float32), 1)
                tl.store(out + start * 64 + m[:, None] * 64 + k[None, :],
                         norm[None, :] - tl.dot(a, tl.trans(b)))
        """),
        {"x": "*fp16", "y": "*fp16", "out": "*fp32", "n": "i32"},
    )
    machine = gpu_machine(lanes=32, warps=4)
    ctx = PassContext(processor(90).features, {"num_stages": stages}, machine=machine)
    run(module, [*STEPS, Step(choose_mma), Step(remove_dead_code)], ctx, [Verifier()])
    (loop,) = (op for op in module.walk() if isinstance(op, For))
    (load,) = (op for op in loop.body if isinstance(op, Load))
    (share,) = (user for user in load.result.users if isinstance(user, Share))
    assert len({*load.result.users}) == (1 if stages > 1 else 2)
    assert any(isinstance(user, Fetch) for user in share.result.users) == (stages > 1)


@pytest.mark.parametrize("invariant", [True, False])
def test_an_operand_across_k_is_turned_before_the_loop_that_does_not_change_it(
    invariant: bool,
) -> None:
    """It is stored along K once, in one buffer; that of an iteration, by way of another."""
    b = "b" if invariant else "tl.load(y + i * 4096 + at)"
    module = build(
        kernel_from(f"""
        def kernel(x, y, out, n):
            m, k = tl.arange(0, 64), tl.arange(0, 64)
            at = m[:, None] * 64 + k[None, :]
            a, b = tl.load(x + at), tl.load(y + at)
            for i in range(n):
                a = tl.dot(a, {b}, input_precision="tf32")
            tl.store(out + at, a)
        """),
        {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"},
    )
    ctx = PassContext(processor(90).features, machine=gpu_machine(lanes=32, warps=4))
    steps = [*STEPS, *map(Step, (choose_mma, hoist_invariants, remove_dead_code))]
    run(module, steps, ctx, [Verifier()])
    (loop,) = (op for op in module.walk() if isinstance(op, For))
    assert any(isinstance(op, Wgmma) for op in loop.body)
    assert sum(isinstance(op, Share) for op in module.walk()) == (1 if invariant else 2)
    assert any(isinstance(op, Share | FetchAcross) for op in loop.body) != invariant


BATCHED = """
    def kernel(a, b, out, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        z = tl.arange(0, B)[:, None, None]
        m, n = tl.arange(0, M)[None, :, None], tl.arange(0, N)[None, None, :]
        rows, columns = tl.arange(0, K)[None, :, None], tl.arange(0, K)[None, None, :]
        product = tl.dot(tl.load(a + (z * M + m) * K + columns),
                         tl.load(b + (z * K + rows) * N + n))
        tl.store(out + (z * M + m) * N + n, product)
"""


@pytest.mark.parametrize(
    ("shape", "warps", "batch"),
    [((8, 16, 16, 16), 4, 2), ((2, 32, 32, 32), 1, 2), ((2, 64, 16, 32), 8, 1)],
)
def test_products_of_a_batch(shape: tuple[int, int, int, int], warps: int, batch: int) -> None:
    """Each warp has products of its own, and the registers of one follow those of another."""
    z, m, n, k = shape
    module = build(
        kernel_from(BATCHED),
        {"a": "*fp16", "b": "*fp16", "out": "*fp32"},
        {"B": z, "M": m, "N": n, "K": k},
    )
    found = chosen(module, warps)
    assert isinstance(found, Mma)
    layouts = [value.layout for value in (found.lhs, found.rhs, found.acc)]
    lhs, rhs, acc = (layout for layout in layouts if layout is not None)
    steps = k // 16
    rows = lhs.in_size(REGISTER) // (8 * steps * batch)
    columns = rhs.in_size(REGISTER) // (4 * steps * batch)
    assert acc.in_size(REGISTER) == 4 * batch * rows * columns
    for warp, block in product(range(warps), range(batch * rows * columns)):

        def place(layout: LinearLayout, register: int, warp: int = warp) -> tuple[int, ...]:
            return tuple(layout.apply({REGISTER: register, WARP: warp}).values())

        row, column = divmod(block, columns)
        at, down, across = place(acc, 4 * block)
        assert place(lhs, 8 * steps * row)[:2] == (at, down)
        of_rhs = place(rhs, 4 * steps * (row // rows * columns + column))
        assert (of_rhs[0], of_rhs[2]) == (at, across)
    text = ptx_of(module, num_warps=warps)
    assert len(re.findall(r"\bmma\.sync", text)) == batch * rows * columns * steps


def test_threads_compute_different_elements_of_small_results() -> None:
    """Four elements of a 16 x 16 result for each of 64 threads, in steps of four along K, all in
    one iteration: so few fit into a short one."""
    kernel = kernel_from("""
        def kernel(a, b, out):
            at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
            product = tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee")
            tl.store(out + at, product)
    """)
    text = ptx_of(build(kernel, dict.fromkeys(("a", "b", "out"), "*fp32")), num_warps=2)
    assert len(re.findall(r"\bfma\.rn\.f32\b", text)) == 4 * 16
    loop = text[: text.rindex("fma.rn.f32")]
    loads = re.findall(r"ld\.shared\.(\S+)", loop)
    # For four steps: those of its row, and four of its columns in each.
    assert loads == ["v4.b32"] * 5 * 4


@pytest.mark.parametrize(("arch", "expanded"), [(89, False), (90, True), (120, False)])
def test_fp8_is_multiplied_as_fp16_where_ptxas_would(arch: int, expanded: bool) -> None:
    """Two instructions, with one sum each, and each word of an operand is converted once."""
    kernel = kernel_from("""
        def kernel(a, b, out):
            m, n, k = tl.arange(0, 16), tl.arange(0, 16), tl.arange(0, 64)
            x = tl.load(a + m[:, None] * 64 + k[None, :])
            product = tl.dot(x, tl.load(b + n[None, :] * 64 + k[:, None]))
            tl.store(out + m[:, None] * 16 + n[None, :], product)
    """)
    signature = {"a": "*fp8e5", "b": "*fp8e5", "out": "*fp32"}
    text = ptx_of(build(kernel, signature), arch, num_warps=1)
    found = re.findall(r"mma\.sync\S*", text)
    name = "m16n8k16.row.col.f32.f16.f16.f32" if expanded else "m16n8k32.row.col.f32.e5m2.e5m2.f32"
    assert found == [f"mma.sync.aligned.{name}"] * (8 if expanded else 4)
    words = (16 * 64 + 64 * 16) // 4 // 32
    assert text.count("cvt.rn.f16x2.e5m2x2") == (2 * words if expanded else 0)


def test_halves_of_the_words_of_fp8_are_fragments_of_fp16() -> None:
    """The lower halves of the words of both operands have equal elements of K, at the places where
    fragments of fp16 have equal ones."""
    long = mma_operand_a((16, 32), 8, (1, 1)), mma_operand_b((32, 8), 8, (1, 1))
    short = mma_operand_a((16, 16), 16, (1, 1)), mma_operand_b((16, 8), 16, (1, 1))
    for half in range(2):
        along_k: list[dict[int, int]] = []
        for operand, (fp8, fp16) in enumerate(zip(long, short, strict=True)):
            across, along = f"dim{operand}", f"dim{1 - operand}"
            known: dict[int, int] = {}
            for lane, register in product(range(32), range(fp16.in_size(REGISTER))):
                byte = register // 2 * 4 + half * 2 + register % 2
                here = fp16.apply({REGISTER: register, LANE: lane, WARP: 0})
                there = fp8.apply({REGISTER: byte, LANE: lane, WARP: 0})
                assert here[across] == there[across]
                assert known.setdefault(here[along], there[along]) == there[along]
            along_k.append(known)
        assert along_k[0] == along_k[1]
        assert len(set(along_k[0].values())) == 16
