"""Which instructions atomics become, with their order and their scope."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.frontend.kernels import kernel_from
from tests.lowering.simt.tiles import load, pointers
from tests.targets.nvidia.lowered import ptx_of
from tilewright.frontend.build import build_module
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Value
from tilewright.ops.atomic import KINDS, SCOPES, SEMANTICS, AtomicCAS, AtomicRMW
from tilewright.ops.control import Return
from tilewright.ops.memory import Store

ELEMENTS = [t for t in ir.SCALARS if not (t.is_bool() or t.is_fp8())]


def kernel(
    element: ir.DType,
    kind: str,
    *,
    shape: tuple[int, ...] = (128,),
    sem: str = "relaxed",
    scope: str = "gpu",
    used: bool = False,
    masked: bool = False,
) -> Module:
    fn, b = _empty(element)
    _update(b, fn, kind, shape=shape, sem=sem, scope=scope, used=used, masked=masked)
    b.insert(Return([]))
    return Module([fn])


def kernel_of_kinds(element: ir.DType, kinds: Sequence[str]) -> Module:
    """A kernel with masked updates of each kind, the results of every other of which it stores."""
    fn, b = _empty(element)
    for i, kind in enumerate(kinds):
        _update(b, fn, kind, used=i % 2 == 0, masked=True)
    b.insert(Return([]))
    return Module([fn])


def _empty(element: ir.DType) -> tuple[Function, Builder]:
    fn = Function("kernel", [ir.Pointer(element), ir.Pointer(element), ir.Pointer(ir.I1)])
    return fn, Builder(fn.body)


def _update(
    b: Builder,
    fn: Function,
    kind: str,
    *,
    shape: tuple[int, ...] = (128,),
    sem: str = "relaxed",
    scope: str = "gpu",
    used: bool,
    masked: bool,
) -> None:
    ptr, values, masks = (pointers(b, a, shape) for a in fn.args)
    x = load(b, values)
    mask = load(b, masks) if masked else None
    if kind == "cas":
        old: Value = b.value(AtomicCAS(ptr, x, x, None, sem, scope))
    else:
        old = b.value(AtomicRMW(ptr, x, mask, kind, sem, scope))
    if used:
        b.insert(Store(values, old, None, "", ""))


def atomics(text: str) -> list[str]:
    return re.findall(r"\b((?:atom|red)\.[\w.:]+)", text)


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("element", ELEMENTS, ids=lambda t: t.short)
def test_every_kind_on_every_type_assembles(element: ir.DType, arch: int) -> None:
    bits = ("and", "or", "xor")
    kinds = [k for k in (*KINDS, "cas") if not (element.is_floating() and k in bits)]
    text = ptx_of(kernel_of_kinds(element, kinds), arch)
    assert len(atomics(text)) == len(kinds)


@pytest.mark.parametrize(("element", "kind", "name"), [
    (ir.I32, "add", "add.u32"), (ir.U64, "add", "add.u64"), (ir.FP32, "add", "add.f32"),
    (ir.FP64, "add", "add.f64"), (ir.FP16, "add", "add.noftz.f16"),
    (ir.BF16, "add", "add.noftz.bf16"), (ir.I32, "min", "min.s32"), (ir.U32, "max", "max.u32"),
    (ir.I64, "max", "max.s64"), (ir.U64, "min", "min.u64"), (ir.I32, "and", "and.b32"),
    (ir.I64, "xor", "xor.b64"), (ir.FP32, "xchg", "exch.b32"), (ir.FP64, "xchg", "exch.b64"),
])  # fmt: skip
def test_a_single_instruction_exists_for(element: ir.DType, kind: str, name: str) -> None:
    unused = "atom" if kind == "xchg" else "red"
    assert atomics(ptx_of(kernel(element, kind))) == [f"{unused}.relaxed.gpu.global.{name}"]
    used = ptx_of(kernel(element, kind, used=True))
    assert atomics(used) == [f"atom.relaxed.gpu.global.{name}"]


@pytest.mark.parametrize("sem", SEMANTICS)
@pytest.mark.parametrize("scope", SCOPES)
def test_order_and_scope_reach_the_instruction(sem: str, scope: str) -> None:
    for used in (False, True):
        # An acquire must be an `atom`, whether or not its result is used.
        name = "red" if not used and sem in ("relaxed", "release") else "atom"
        text = ptx_of(kernel(ir.I32, "add", sem=sem, scope=scope, used=used))
        assert atomics(text) == [f"{name}.{sem}.{scope}.global.add.u32"]
    (swap,) = atomics(ptx_of(kernel(ir.I32, "cas", sem=sem, scope=scope)))
    assert swap.startswith(f"atom.{sem}.{scope}.")


@pytest.mark.parametrize(("element", "arch", "length", "type"), [
    (ir.FP32, 90, 4, "v4.f32"), (ir.FP16, 90, 8, "noftz.v8.f16"),
    (ir.BF16, 90, 8, "noftz.v8.bf16"),
    (ir.FP32, 80, 1, "f32"), (ir.FP64, 90, 1, "f64"), (ir.I32, 90, 1, "u32"),
])  # fmt: skip
@pytest.mark.parametrize("used", [False, True])
def test_adjacent_elements_are_added_by_one_instruction_on_hopper(
    element: ir.DType, arch: int, length: int, type: str, used: bool
) -> None:
    """By relaxed instructions between two fences, which order all of them; there is none behind the
    last access."""
    module = kernel(element, "add", shape=(2048,), sem="acq_rel", used=used)
    module.entry.arg_attrs = [{"divisibility": 16}] * 3
    text = ptx_of(module, arch)
    name = "atom" if used else "red"
    assert atomics(text) == [f"{name}.relaxed.gpu.global.add.{type}"] * (2048 // 128 // length)
    assert text.count("fence.acq_rel.gpu") == 1 + used


def test_bf16_is_added_by_a_loop_before_hopper() -> None:
    (found,) = atomics(ptx_of(kernel(ir.BF16, "add", sem="acq_rel"), 80))
    assert re.fullmatch(r"atom\.relaxed\.gpu\.(global\.)?cas\.b\d+", found)
    text = ptx_of(kernel(ir.BF16, "add", sem="acq_rel", used=True), 80)
    assert text.count("fence.acq_rel.gpu") == 2


@pytest.mark.parametrize("element", [ir.FP32, ir.FP64], ids=str)
@pytest.mark.parametrize("kind", ["max", "min", "add"])
def test_an_extremum_that_is_in_memory_is_not_written(element: ir.DType, kind: str) -> None:
    """One load, by which most of the programs that update one maximum see that it is larger."""
    text = ptx_of(kernel(element, kind, shape=(), sem="acq_rel"))
    loop = re.search(r"ld\.volatile(.*?)\.cas\.", text, re.DOTALL)
    if kind == "add":
        assert loop is None
    else:
        assert loop is not None
        assert re.search(r"@!?%p\d+ bra", loop[1])


def barriers(module: Module) -> int:
    module.entry.arg_attrs = [{"alias": number} for number in range(3)]  # nothing is in its way
    text = ptx_of(module)
    return text.count("bar.sync") + text.count("barrier.sync")


def test_barriers_extend_the_order_to_all_threads() -> None:
    """One before what releases, one after what acquires."""
    for sem, count in (("relaxed", 0), ("release", 1), ("acquire", 1), ("acq_rel", 2)):
        fn, b = _empty(ir.I32)
        _update(b, fn, "add", shape=(), sem=sem, used=False, masked=False)
        _update(b, fn, "add", shape=(), used=False, masked=False)
        b.insert(Return([]))
        assert barriers(Module([fn])) == count, sem


def test_threads_that_do_not_act_have_no_fence() -> None:
    """A maximum by a loop: the fence is behind the branch around it."""
    text = ptx_of(kernel(ir.FP32, "max", shape=(), sem="acq_rel"))
    assert text.count("fence.acq_rel.gpu") == 1
    assert re.search(r"bar(?:rier)?\.sync.*?\bbra\b.*?fence\.acq_rel\.gpu", text, re.DOTALL)


def test_no_thread_waits_for_the_last_access() -> None:
    for sem, count in (("release", 1), ("acquire", 0), ("acq_rel", 1)):
        assert barriers(kernel(ir.I32, "add", shape=(), sem=sem)) == count, sem


def test_a_mask_guards_the_instruction() -> None:
    text = ptx_of(kernel(ir.I32, "add", masked=True, used=True))
    assert re.search(r"@%p\d+ atom\.relaxed\.gpu\.global\.add\.u32", text)


def test_results_of_products_are_added_by_lines() -> None:
    """A warp has 32 adjacent bytes of a row of the result of `mma.sync`, which a store accepts."""
    fn = kernel_from("""
        def kernel(x, out):
            m, n = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
            a = tl.load(x + m * 64 + n)
            tl.atomic_add(out + m * 64 + n, tl.dot(a, a), sem="relaxed")
    """)
    facts = {(i,): [["tt.divisibility", 16]] for i in range(2)}
    module = build_module(fn, {"x": "*fp16", "out": "*fp32"}, {}, facts)
    found = atomics(ptx_of(module, 90, num_warps=2))
    assert len(found) == 64 * 64 // (4 * 64)
    assert {name.rpartition("add.")[2] for name in found} == {"v4.f32"}
