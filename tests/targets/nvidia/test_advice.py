"""Warnings of ptxas: reported as remarks, and treated as failures in these tests."""

from __future__ import annotations

import linecache
import re

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import lower
from tests.targets.nvidia.modules import wgmma
from tilewright.base import knobs
from tilewright.base.diagnostics import PTXASError
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.passes import run
from tilewright.targets.nvidia import best_cubin, compilation, emit
from tilewright.targets.nvidia.advice import Advice, advice_in, serialises_products
from tilewright.targets.nvidia.assemble import (
    Assembler,
    Cubin,
    Ptxas,
    Rejection,
    Request,
    find_assembler,
)
from tilewright.targets.nvidia.cubin import Resources
from tilewright.targets.nvidia.target import NvidiaTarget

SERIALISED = (
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to the presence of Extern calls in the function 'kernel'"
)
WAITED = (
    "ptxas info    : (C7517) warpgroup.wait is injected in around line {} by compiler to allow use "
    "of registers defined by GMMA in function 'kernel'"
)
HARMLESS = "ptxas info    : 0 bytes gmem\nptxas info    : Used 34 registers, used 0 barriers"

PTX = """
\t.loc\t1 3 5
\tmov.u32 %r1, 0;
\t.loc\t1 4 9
\twgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;
\t.loc\t1 7 2, function_name $L__info_string0, inlined_at 1 4 9
\tadd.f32 %f1, %f1, %f1;
\t.file\t1 "/sources/kernel.py"
"""


def test_advice_names_the_line_of_the_kernel() -> None:
    line = PTX[: PTX.index("add.f32")].count("\n") + 1
    log = "\n".join([HARMLESS, SERIALISED, WAITED.format(line), SERIALISED])
    first, second = advice_in(log, PTX)
    assert (first.code, first.serialises) == ("C7510", True)
    assert first.text.endswith("due to the presence of Extern calls in the function 'kernel'")
    assert str(first.loc) == "/sources/kernel.py:4:9"  # of the first product
    assert (second.code, second.serialises) == ("C7517", False)
    assert str(second.loc) == "/sources/kernel.py:7:2"
    assert str(second).startswith("warpgroup.wait is injected")
    assert str(second).endswith("(ptxas, C7517)")


def test_other_messages_are_no_advice() -> None:
    assert advice_in(HARMLESS, PTX) == []
    log = "ptxas warning : (C7508) Potential Performance Loss: 'setmaxnreg' ignored\n"
    assert advice_in(log, PTX) == [
        Advice("C7508", "Potential Performance Loss: 'setmaxnreg' ignored", None)
    ]
    assert not serialises_products(log + HARMLESS + WAITED)
    assert serialises_products(HARMLESS + "\n" + SERIALISED)


def test_advice_without_lines() -> None:
    (found,) = advice_in(SERIALISED, "\twgmma.mma_async.sync;\n")
    assert found.loc is None


def test_ptxas_prints_advice_by_default() -> None:
    """A result that is changed while its product runs: the words of this machine's program."""
    assembler = find_assembler()
    if not isinstance(assembler, Ptxas):
        pytest.skip("needs ptxas")
    ptx = emit.compile_text(wgmma(emit.kernel_attributes(128)), "sm_90a", 81)[1]
    assert advice_in(assembler.assemble(ptx, Request("sm_90a")).log, ptx) == []
    sums = re.search(r"wgmma\.mma_async\S* \{(%\w+),", ptx)
    assert sums is not None
    commit = "wgmma.commit_group.sync.aligned;"
    early = ptx.replace(commit, f"{commit}\n\tadd.f32 {sums[1]}, {sums[1]}, {sums[1]};")
    (found,) = advice_in(assembler.assemble(early, Request("sm_90a")).log, early)
    assert (found.code, found.serialises) == ("C7517", False)


class Advising(Assembler):
    """An assembler that has advice on everything."""

    name = "advising"

    def version(self) -> str:
        return "1"

    def attempt(self, ptx: str, request: Request) -> Cubin | Rejection:
        return Cubin(b"code", SERIALISED)


@pytest.fixture
def advising(monkeypatch: pytest.MonkeyPatch) -> None:
    used = Resources(40, 0, shared_bytes=0)
    monkeypatch.setattr(best_cubin, "resources", lambda cubin, name: used)
    monkeypatch.setattr(compilation, "find_assembler", Advising)


def product() -> Module:
    text = """
def kernel(x_ptr):
    at = x_ptr + tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    x = tl.load(at)
    tl.store(at, tl.dot(x, x).to(tl.float16))
"""
    options = FrontendOptions(backend_name="cuda", arch="sm90", assembly="PTX")
    return build(kernel_from(text), {"x_ptr": "*fp16"}, options=options)


@pytest.mark.usefixtures("advising")
def test_advice_on_a_kernel_is_a_remark_at_its_product() -> None:
    hopper = NvidiaTarget(90)
    options = hopper.parse_options({})
    ctx = context_for(hopper, options)
    module = product()
    run(module, pipeline(hopper), ctx)
    with knobs.nvidia.scope():
        knobs.nvidia.strict_products = False
        hopper.compile(module, ctx, options)
    (remark,) = [r for r in ctx.missed_remarks if r.by == "assemble"]
    assert "serialized due to the presence of Extern calls" in remark.text
    assert remark.loc is not None
    assert linecache.getline(remark.loc.file, remark.loc.line).strip().startswith("tl.store(at")


def compile_debug_build() -> list[str]:
    """Compile a product with the checks of a debug build; returns the advice on it."""
    hopper = NvidiaTarget(90)
    options = hopper.parse_options({"debug": True})
    ctx = context_for(hopper, options)
    module = product()
    run(module, pipeline(hopper), ctx)
    hopper.compile(module, ctx, options)
    return [r.text for r in ctx.missed_remarks if r.by == "assemble"]


@pytest.mark.usefixtures("advising")
def test_calls_of_a_debug_build_may_serialise_products(monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = compile_debug_build()
    assert "serialized" in text
    other = SERIALISED.replace("the presence of Extern calls", "ill formed pipeline stage")
    monkeypatch.setattr(Advising, "attempt", lambda *_: Cubin(b"code", other))
    with pytest.raises(PTXASError, match="ill formed pipeline stage"):
        compile_debug_build()


@pytest.mark.usefixtures("advising")
def test_tests_fail_where_products_are_serialised() -> None:
    with pytest.raises(PTXASError, match=r":4:.*serialized due to .*C7510"):
        lower(product())
