"""Which instructions loads and stores become, by the advice on caching that they have."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import ptx_of

LOAD_CACHES = ("", "ca", "cg", "cs", "cv", "wb")
STORE_CACHES = ("", "wb", "cg", "cs", "wt", "ca")
POLICIES = ("", "evict_first", "evict_last", "evict_normal")


def accesses(
    line: str, kind: str, element: str = "fp32", arch: int = 90, **options: int
) -> set[str]:
    """The instructions of a kernel of one line that access the array x, by their full names."""
    text = f"""
    def kernel(x, y, n):
        i = tl.program_id(0) * 256 + tl.arange(0, 256)
        {line}
    """
    module = build(kernel_from(text), {"x": f"*{element}", "y": f"*{element}", "n": "i32"})
    for facts in module.entry.arg_attrs[:2]:
        facts["divisibility"] = 16
    found = re.findall(rf"\b({kind}\.[\w.:]+)", ptx_of(module, arch, num_warps=1))
    return {name for name in found if "global" in name}


def load_line(mask: str, cache: str, evict: str, volatile: bool = False) -> str:
    return (
        f"tl.store(y + i, tl.load(x + i, {mask}cache_modifier='{cache}', "
        f"eviction_policy='{evict}', volatile={volatile}))"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mask", ["", "mask=i < n, "])
@pytest.mark.parametrize(("cache", "evict"), list(product(LOAD_CACHES, POLICIES)))
def test_cache_hints_reach_the_load(cache: str, evict: str, mask: str) -> None:
    found = accesses(load_line(mask, f".{cache}" if cache else "", evict), "ld")
    known = cache if cache != "wb" else ""
    priority = evict if evict in ("evict_first", "evict_last") else ""
    hint = ".L2::cache_hint" if priority and cache != "cv" else ""
    if known:
        name = f"ld.global.{known}{hint}"
    else:
        name = f"ld.global.L1::{priority}{hint}" if priority else "ld.global"
    width = ".b32" if mask else ".v4.b32"
    assert found == {name + width}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mask", ["", ", mask=i < n"])
@pytest.mark.parametrize(("cache", "evict"), list(product(STORE_CACHES, POLICIES)))
def test_cache_hints_reach_the_store(cache: str, evict: str, mask: str) -> None:
    line = f"tl.store(x + i, 1.0{mask}, cache_modifier='{cache}', eviction_policy='{evict}')"
    found = accesses(line, "st")
    known = cache if cache != "ca" else ""
    priority = evict if evict in ("evict_first", "evict_last") else ""
    hint = ".L2::cache_hint" if priority else ""
    if known:
        name = f"st.global.{known}{hint}"
    else:
        name = f"st.global.L1::{priority}{hint}" if priority else "st.global"
    assert found == {name + (".b32" if mask else ".v4.b32")}


@pytest.mark.parametrize("mask", ["", "mask=i < n, "])
def test_volatile_load_ignores_cache_hints(mask: str) -> None:
    for cache, evict in product(("", "cg", "cs"), POLICIES):
        found = accesses(load_line(mask, cache, evict, True), "ld")
        width = ".b32" if mask else ".v4.b32"
        assert found == {"ld.volatile.global" + width}


def test_policies_need_an_architecture_that_has_them() -> None:
    for mask in ("", "mask=i < n, "):
        line = load_line(mask, "", "evict_last")
        assert not any("evict_last" in n for n in accesses(line, "ld", arch=75))
        assert any("evict_last" in n for n in accesses(line, "ld", arch=80))


@pytest.mark.parametrize("element", ["i1", "i8", "fp8e5", "bf16", "i64"])
def test_every_width_has_cache_hints(element: str) -> None:
    for mask in ("", "mask=i < n, "):
        for cache, evict in (("cs", ""), ("", "evict_first")):
            found = accesses(load_line(mask, cache, evict), "ld", element)
            name = f"ld.global.{cache}." if cache else f"ld.global.L1::{evict}.L2::cache_hint."
            assert any(n.startswith(name) for n in found), found


def test_volatile_loads_are_neither_merged_nor_moved() -> None:
    text = """
    def kernel(x, y):
        while tl.load(x, cache_modifier=".cv") == 0:
            tl.load(x, volatile=True)
            tl.load(x, volatile=True)
    """
    found = ptx_of(build(kernel_from(text), {"x": "*i32", "y": "*i32"}))
    assert found.count("ld.volatile.global") == 2
    assert found.count("ld.global.cv") == 1
    place = found.index("ld.global.cv")
    (target,) = re.findall(r"bra(?:\.uni)? \s*(\$L__BB\d+_\d+);", found[place:])[-1:]
    assert found.index(f"{target}:") < place, "the loop's condition is in the loop"


def test_stores_wider_than_loads_fill_their_sectors() -> None:
    """Eight numbers of bf16 are one vector, but as fp32 two, that would be written by halves."""
    text = """
    def kernel(x, y):
        i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        tl.store(y + i, tl.load(x + i).to(tl.float32))
    """
    module = build(kernel_from(text), {"x": "*bf16", "y": "*fp32"})
    for facts in module.entry.arg_attrs:
        facts["divisibility"] = 16
    found = ptx_of(module, 90, num_warps=1)
    assert len(re.findall(r"ld\.global\.v2\.b32", found)) == 8
    places = re.findall(r"st\.global\.v4\.b32\s*\[%rd\d+(?:\+(\d+))?\]", found)
    assert [int(place or 0) for place in places] == [512 * k for k in range(8)]


def test_loops_carry_words_not_halves() -> None:
    text = """
    def kernel(x, y, n):
        i = tl.arange(0, 256)
        total = tl.zeros((256,), tl.float32)
        for k in range(n):
            total += tl.load(x + k * 256 + i).to(tl.float32)
            tl.store(y + i, total)
    """
    module = build(kernel_from(text), {"x": "*bf16", "y": "*fp32", "n": "i32"})
    for alias, facts in enumerate(module.entry.arg_attrs[:2]):
        facts.update(divisibility=16, alias=alias)
    found = ptx_of(module, 90, num_warps=2, num_stages=2)
    assert found.count("ld.global") == 2  # one iteration ahead: a vector before, one in it
    assert not re.search(r"%rs\d", found)
    alone = ptx_of(module, 90, num_warps=1, num_stages=2)
    assert alone.count("ld.global") == 2  # programs of one warp hide each other's loads


def test_aligned_addresses_from_a_table_are_copied_16_bytes_at_once() -> None:
    """Nothing is known of a loaded pointer, nor of a stride, except the hint."""
    text = """
    def kernel(table, strides, out, turns):
        stride = tl.load(strides)
        start = tl.load(table).to(tl.pointer_type(tl.float16))
        row = tl.arange(0, 64)[:, None]
        column = tl.arange(0, 64)[None, :]
        at = start + row * stride + column
        total = tl.zeros((64, 64), tl.float32)
        for _ in range(turns):
            tl.multiple_of(at, [16, 16])
            total = tl.dot(tl.load(at), tl.load(at).T, total)
            at += 64
        tl.store(out + row * 64 + column, total)
    """
    types = {"table": "*i64", "strides": "*i32", "out": "*fp32", "turns": "i32"}

    def copies(kernel: str) -> list[str]:
        module = build(kernel_from(kernel), types)
        return re.findall(r"cp\.async\.c[ag]\.shared\.global \[.*?\], \[.*?\], (\d+)",
                          ptx_of(module, num_stages=3))  # fmt: skip

    assert set(copies(text)) == {"16"}
    assert "16" not in copies(text.replace("tl.multiple_of(at, [16, 16])", "pass"))


def test_bits_of_words_are_stored_without_exchanges() -> None:
    """Each word is loaded by the threads that store its bits. Two accesses of 16 bytes would be
    half a sector each in the layout in which a thread has all bits that it has loaded."""
    kernel = kernel_from("""
        def kernel(words, y, n):
            i = tl.program_id(0) * 2048 + tl.arange(0, 2048)
            word = tl.load(words + i // 32, mask=i < n, other=0)
            tl.store(y + i, ((word >> (i % 32)) & 1).to(tl.float16), mask=i < n)
    """)
    module = build(kernel, {"words": "*i32", "y": "*fp16", "n": "i32"})
    for alias, facts in enumerate(module.entry.arg_attrs):
        facts.update(divisibility=16, alias=alias)
    text = ptx_of(module)
    assert "shared" not in text
    assert len(re.findall(r"\bst\.global\.v4\.b32\b", text)) == 2
    assert len(re.findall(r"\bld\.global\.b32\b", text)) == 2


@pytest.mark.parametrize(("element", "vectors"), [("fp32", 8), ("fp16", 4)])
def test_results_of_products_are_stored_by_whole_lines(element: str, vectors: int) -> None:
    """A product leaves fp32 in registers by which a warp has 32 bytes of each of 8 rows."""
    text = """
    def kernel(x, y):
        i, j = tl.arange(0, 64), tl.arange(0, 64)
        at = i[:, None] * 64 + j[None, :]
        a = tl.load(x + at)
        tl.store(y + at, tl.dot(a, a).to(y.dtype.element_ty))
    """
    module = build(kernel_from(text), {"x": "*fp16", "y": f"*{element}"})
    for facts in module.entry.arg_attrs:
        facts["divisibility"] = 16
    ptx = ptx_of(module, 90, num_warps=4)
    assert re.findall(r"st\.global\.(\S+)", ptx).count("v4.b32") == vectors
    assert "st.global.v2.b32" not in ptx


def test_one_of_two_results_does_not_wait_for_the_other() -> None:
    text = """
    def kernel(x, y, z):
        i, j = tl.arange(0, 64), tl.arange(0, 64)
        at = i[:, None] * 64 + j[None, :]
        a = tl.load(x + at)
        tl.store(y + at, tl.dot(a, a))
        tl.store(z + at, tl.dot(a, tl.trans(a)))
    """
    module = build(kernel_from(text), {"x": "*fp16", "y": "*fp32", "z": "*fp32"})
    for facts in module.entry.arg_attrs:
        facts["divisibility"] = 16
    ptx = ptx_of(module, 90, num_warps=4)
    assert set(re.findall(r"st\.global\.(\S+)", ptx)) == {"v2.b32"}
