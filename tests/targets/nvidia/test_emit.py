"""LLVM IR → PTX: what code generation relies on."""

from __future__ import annotations

import re

import pytest

from tests.targets import selected_zeros
from tests.targets.nvidia.modules import SOURCE, many_values, scaled_add, wgmma
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.gpu import emit as gpu_emit
from tilewright.targets.nvidia import emit
from tilewright.targets.nvidia.features import NEWEST_PTX, processor
from tilewright.targets.protocol import GPUTarget

ATTRIBUTES = emit.kernel_attributes(128)
HOPPER = ("sm_90a", 81)


def ptx_of(text: str) -> str:
    return emit.compile_text(text, *HOPPER)[1]


def test_ptx_names_version_and_processor() -> None:
    ptx = ptx_of(scaled_add(ATTRIBUTES))
    assert ".version 8.1\n.target sm_90a\n" in ptx
    assert ".visible .entry scaled_add(" in ptx


@pytest.mark.parametrize("capability", [75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121])
def test_every_processor_and_ptx_version_of_the_table_is_known_to_llvm(
    capability: int, capfd: pytest.CaptureFixture[str]
) -> None:
    chip = processor(capability)
    for version in (chip.ptx_version, NEWEST_PTX):
        _, ptx = emit.compile_text(scaled_add(ATTRIBUTES), chip.llvm_cpu, version)
        assert f".version {version // 10}.{version % 10}\n.target {chip.llvm_cpu}\n" in ptx
    # LLVM only warns of unknown names.
    assert capfd.readouterr().err == ""


def test_attributes_become_directives() -> None:
    ptx = ptx_of(scaled_add(emit.kernel_attributes(256, maxnreg=64, cluster=2)))
    assert ".reqntid 256\n" in ptx
    assert ".maxnreg 64\n" in ptx
    assert ".explicitcluster\n.reqnctapercluster 2" in ptx
    plain = ptx_of(scaled_add(ATTRIBUTES))
    assert ".reqntid 128\n" in plain
    assert ".maxnreg" not in plain
    assert "cluster" not in plain


def test_vector_accesses_stay_whole() -> None:
    ptx = ptx_of(scaled_add(ATTRIBUTES))
    assert len(re.findall(r"ld\.global\.v4\.b32", ptx)) == 2
    assert len(re.findall(r"st\.global\.v4\.b32", ptx)) == 1
    assert len(re.findall(r"(ld|st)\.global", ptx)) == 3


def test_selected_zeros_are_not_those_of_an_extremum() -> None:
    """`min.f32` would return -0.0 instead of the 0.0 that is selected, and `max.f32` in the last
    part 0.0 instead of -0.0."""
    types = selected_zeros.signature("fp32")
    source = ASTSource(selected_zeros.selected_zeros, types, {"BLOCK": 128})
    ptx = str(compile(source, GPUTarget("cuda", 90, 32)).asm["ptx"])
    assert "min.f32" not in ptx
    assert ptx.count("selp.f32") + ptx.count("selp.b32") == 2
    assert ptx.count("max.f32") == 1


def loads(count: int, others: int) -> str:
    """A kernel that adds up elements at indices that it loads, after sums of other kinds."""
    lines = [
        "define ptx_kernel void @loads(ptr addrspace(1) %x, i32 %n) #0 {",
        "  %s0 = add i32 %n, 0",
    ]
    for i in range(others):
        lines.append(f"  %t{i} = xor i32 %s{i}, {i + 3}")
        lines.append(f"  %s{i + 1} = mul i32 %t{i}, %n")
    previous = f"%s{others}"
    for i in range(count):
        lines += [
            f"  %w{i} = sext i32 {previous} to i64",
            f"  %p{i} = getelementptr i32, ptr addrspace(1) %x, i64 %w{i}",
            f"  %v{i} = load i32, ptr addrspace(1) %p{i}, align 4",
        ]
        previous = f"%v{i}"
    lines += [f"  store i32 {previous}, ptr addrspace(1) %x, align 4", "  ret void", "}"]
    return "\n".join([*lines, f"attributes #0 = {{ {ATTRIBUTES} }}"])


def test_only_kernels_with_many_wide_sums_have_mad_wide() -> None:
    many, few = ptx_of(loads(4, others=8)), ptx_of(loads(1, others=60))
    assert (many.count("mad.wide.s32"), many.count("mul.wide.s32")) == (4, 0)
    assert (few.count("mad.wide.s32"), few.count("mul.wide.s32")) == (0, 1)


def test_products_and_sums_fuse_only_where_flagged() -> None:
    fused = ptx_of(scaled_add(ATTRIBUTES, flags="contract"))
    assert fused.count("fma.rn.f32") == 4
    assert "mul" not in fused.replace("mul.wide", "")
    # The assembler may fuse what leaves the rounding open, so none may.
    apart = ptx_of(scaled_add(ATTRIBUTES))
    assert apart.count("mul.rn.f32") == apart.count("add.rn.f32") == 4
    assert "fma" not in apart


def test_loops_are_not_unrolled() -> None:
    ptx = ptx_of(f"""
        define ptx_kernel void @count(ptr addrspace(1) %x) #0 {{
        entry:
          br label %loop
        loop:
          %i = phi i32 [0, %entry], [%next, %loop]
          %next = add nuw nsw i32 %i, 1
          store volatile i32 %i, ptr addrspace(1) %x
          %more = icmp ult i32 %next, 4
          br i1 %more, label %loop, label %end
        end:
          ret void
        }}
        attributes #0 = {{ {ATTRIBUTES} }}""")
    assert ptx.count("st.volatile.global") == 1


def test_inline_assembly_keeps_its_order() -> None:
    ptx = ptx_of(wgmma(ATTRIBUTES))
    found = re.findall(r"wgmma\.(fence|mma_async|commit_group|wait_group)", ptx)
    assert found == ["fence", "mma_async", "commit_group", "wait_group"]


def test_lines_are_kept_without_the_directive_that_disables_optimisation() -> None:
    ptx = ptx_of(scaled_add(ATTRIBUTES, lines="DebugDirectivesOnly"))
    assert f'.file\t1 "{SOURCE}"' in ptx
    assert {"\t.loc\t1 4 2", "\t.loc\t1 6 4"} <= set(ptx.split("\n"))
    assert ".target sm_90a\n" in ptx
    # Why the module's docstring requires that kind:
    assert ".target sm_90a, debug" in ptx_of(scaled_add(ATTRIBUTES, lines="LineTablesOnly"))


def test_optimised_ir_is_clean() -> None:
    text = """
        define ptx_kernel void @f(ptr addrspace(1) %x, i32 %a) {
          %slot = alloca i32
          store i32 %a, ptr %slot
          %b = load i32, ptr %slot
          %c = add i32 %a, 1
          %d = add i32 %b, 1
          %e = sub i32 %c, %d
          store i32 %e, ptr addrspace(1) %x
          ret void
        }"""
    llir, ptx = emit.compile_text(text, *HOPPER)
    assert "store i32 0, ptr addrspace(1) %x" in llir
    assert "alloca" not in llir
    assert ".local" not in ptx


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("define void @f( {", "expected type"),
        ("define i32 @f() { ret void }", "value doesn't match function result type"),
        (
            "define i32 @f(i1 %c) { br i1 %c, label %a, label %b a: %x = add i32 1, 1 br label %b "
            "b: ret i32 %x }",
            "does not dominate",
        ),
    ],
)
def test_invalid_ir_is_an_error_not_the_end_of_the_process(text: str, problem: str) -> None:
    with pytest.raises(RuntimeError, match=problem):
        emit.compile_text(text, *HOPPER)


def test_equal_text_gives_equal_ptx() -> None:
    text = many_values(ATTRIBUTES, 16)
    assert emit.compile_text(text, *HOPPER) == emit.compile_text(text, *HOPPER)


def products(count: int) -> str:
    """A kernel that stores the products of `count` successive numbers and one that is not known."""
    body = "".join(
        f"  %i{k} = add i32 %x, {k}\n  %s{k} = mul i32 %i{k}, %y\n"
        f"  store volatile i32 %s{k}, ptr addrspace(1) %out\n"
        for k in range(1, count + 1)
    )
    return f"""
define ptx_kernel void @products(ptr addrspace(1) %out, i32 %x, i32 %y) #0 {{
{body}  ret void
}}
attributes #0 = {{ {ATTRIBUTES} }}
"""


def multiplications_of(count: int) -> int:
    return len(re.findall(r"(mul|mad)\.lo\.s32", ptx_of(products(count))))


@pytest.mark.parametrize(("count", "multiplications"), [(20, 1), (60, 60)])
def test_strength_reduction_is_left_out_where_many_pairs_would_be_compared(
    count: int, multiplications: int
) -> None:
    for _ in range(2):  # the options of the first do not reach the second
        assert multiplications_of(3) == 1
        assert multiplications_of(count) == multiplications


def test_code_without_strength_reduction_is_the_same_where_there_is_nothing_to_reduce(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text in (scaled_add(ATTRIBUTES), many_values(ATTRIBUTES, 16), wgmma(ATTRIBUTES)):
        expected = ptx_of(text)
        with monkeypatch.context() as patch:
            patch.setattr(emit, "MOST_PAIRS", -1)
            assert ptx_of(text) == expected


def test_long_kernels_compile_without_value_numbering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time grows with the square of the number of branches on a condition."""
    passes, used = gpu_emit._passes, list[bool]()
    monkeypatch.setattr(gpu_emit, "_passes", lambda n: (used.append(n), passes(n))[1])
    monkeypatch.setattr(emit, "LONG", 150)
    for count in (20, 60):
        assert ptx_of(products(count)).count("st.volatile") == count
    assert used == [True, False]


def test_pairs_share_an_operand_or_a_base() -> None:
    assert emit.reducible_pairs("%a = add nsw i32 %x, %y\n%b = add i32 %x, %z\n") == 4 + 1 + 1
    assert emit.reducible_pairs("%a = add i32 %x, 1\n%b = mul i32 %a, 3\n") == 0
    constant = "getelementptr (i8, ptr addrspace(3) @s, i64 16)"
    assert (
        emit.reducible_pairs(
            f"%a = getelementptr float, ptr addrspace(3) {constant}, i64 %i\n"
            "%b = getelementptr float, ptr addrspace(3) @s, i64 %j\n"
            "%c = getelementptr inbounds i8, ptr %p, i64 %j\n"
            "%d = getelementptr inbounds i8, ptr %p, i64 8\n"
        )
        == 4 + 1
    )


PRODUCT = "\tmul.wide.s32 \t%rd3, %r1, 4;"
SUM = "\tadd.s64 \t%rd4, %rd2, %rd3;"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([PRODUCT, SUM], ["\tmad.wide.s32 \t%rd4, %r1, 4, %rd2;"], id="alone"),
        pytest.param(
            [
                PRODUCT.replace("s32", "u32"),
                "\tmov.b32 \t%r2, %r1;",
                "\tadd.s64 \t%rd4, %rd3, %rd2;",
            ],
            ["\tmov.b32 \t%r2, %r1;", "\tmad.wide.u32 \t%rd4, %r1, 4, %rd2;"],
            id="on the left",
        ),
        pytest.param([PRODUCT, SUM, "\tadd.s64 \t%rd5, %rd3, 8;"], None, id="used again"),
        pytest.param([PRODUCT, "$L__BB0_1:", SUM], None, id="in another block"),
        pytest.param([PRODUCT, "\tadd.s32 \t%r1, %r1, 1;", SUM], None, id="of another number"),
        pytest.param(
            [PRODUCT, "\t@%p1 ld.global.v2.b32 {%r2, %r1}, [%rd1];", SUM], None, id="loaded again"
        ),
        pytest.param([PRODUCT, "\tadd.s64 \t%rd4, %rd3, 16;"], None, id="plus a constant"),
    ],
)
def test_products_that_one_sum_uses_are_wide_sums(
    lines: list[str], expected: list[str] | None
) -> None:
    assert emit.with_wide_sums("\n".join(lines)).split("\n") == (expected or lines)


def test_both_operands_may_be_products() -> None:
    second = "\tmul.wide.s32 \t%rd2, %r5, 2;"
    found = emit.with_wide_sums("\n".join([PRODUCT, second, SUM]))
    assert found == f"{PRODUCT}\n\tmad.wide.s32 \t%rd4, %r5, 2, %rd3;"
