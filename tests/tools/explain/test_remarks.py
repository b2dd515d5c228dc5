"""Remarks of the compiler on source lines, which do not change the code."""

import re

import pytest

from tests.tools.explain.conftest import KERNELS, Explain, arguments
from tilewright.base import knobs
from tilewright.compiler.build import context_for, lower
from tilewright.compiler.pipeline import pipeline
from tilewright.targets import registry
from tilewright.targets.nvidia import best_cubin, compilation, disassemble
from tilewright.targets.nvidia.assemble import Assembler, Cubin, Rejection, Request
from tilewright.targets.nvidia.cubin import Resources
from tilewright.tools.explain.launch import launch_of
from tilewright.tools.explain.report import Report
from tilewright.tools.explain.verb import report_of

HOPPER = "sm_90"


LINES = KERNELS.read_text("utf-8").splitlines()


def line_of(place: str) -> str:
    """The source line of a remark."""
    return LINES[int(place.rpartition(":")[2]) - 1].strip()


def remark_on(report: Report, words: str, verb: str = "loads") -> str:
    """The text of the one remark on loads on the source line that holds these words."""
    found = [r.text for r in report.remarks if words in line_of(r.place)]
    (text,) = [text for text in found if verb in text.split()]
    return text


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (
            "cpu",
            r"loads element by element \(a gather of \d+\): adjacent elements have "
            r"the stride `stride`, which is not known to be 1 at compile time",
        ),
        (
            HOPPER,
            "each thread loads 4 bytes at a time, 4 times: adjacent elements have "
            "the stride `stride`, which is not known to be 1 at compile time",
        ),
    ],
)
def test_unknown_stride(explain: Explain, target: str, expected: str) -> None:
    assert re.fullmatch(expected, remark_on(explain("strided", target), "i * stride"))


def test_known_stride(explain: Explain) -> None:
    text = remark_on(explain("every_third", HOPPER), "i * 3")
    assert (
        text == "each thread loads 4 bytes at a time, 4 times: adjacent elements have the stride 3"
    )
    assert "out of wider vectors" in remark_on(explain("every_third"), "i * 3")


@pytest.mark.parametrize("target", ["cpu", HOPPER])
def test_addresses_from_memory(explain: Explain, target: str) -> None:
    report = explain("looked_up", target)
    texts = [r.text for r in report.remarks if r.missed]
    assert len(texts) == 1
    assert texts[0].endswith("the addresses are loaded from memory")


def test_address_of_unknown_divisibility(explain: Explain) -> None:
    report = explain("rows", HOPPER)
    assert [r.text for r in report.remarks if r.missed] == [
        "each thread loads 4 bytes at a time, 4 times: `row_stride` is not known to be a multiple "
        "of 16",
        "each thread stores 4 bytes at a time, 4 times: `row_stride` is not known to be a multiple "
        "of 16",
    ]


def test_mask_that_ends_within_a_vector(explain: Explain) -> None:
    texts = {r.text.partition(": ")[2] for r in explain("add", HOPPER).remarks}
    assert texts == {
        "the mask may end within a vector: `n` is not known to be a multiple of 4",
    }


@pytest.mark.parametrize("target", ["cpu", HOPPER])
def test_mask_of_loaded_values(explain: Explain, target: str) -> None:
    text = remark_on(explain("positive", target), "value > 0)", "stores")
    assert ": the mask may differ between adjacent elements (line " in text


def test_wide_accesses(explain: Explain) -> None:
    report = explain("total", HOPPER)
    assert not [r for r in report.remarks if r.missed and r.by != "prefetch_loads"]
    texts = {r.text for r in report.remarks}
    assert "each thread stores 16 bytes at a time, once" in texts
    assert "unrolled, the loop has enough loads in flight" in texts


def test_loop_of_one_stage(explain: Explain) -> None:
    report = explain("total", HOPPER, "-o", "num_stages=1")
    (remark,) = [r for r in report.remarks if r.missed]
    assert remark.text == "num_stages is 1: no loads are prefetched"
    assert line_of(remark.place) == "for start in range(0, n, BLOCK):"


def test_address_that_the_loop_loads(explain: Explain) -> None:
    """A short loop is left to the assembler, which unrolls it."""
    missed = [r for r in explain("chain", HOPPER).remarks if r.missed]
    (remark,) = [r for r in missed if r.text.startswith("unrolled, the loop")]
    assert line_of(remark.place) == "for _ in range(steps):"


def test_loads_by_a_copying_warp(explain: Explain) -> None:
    texts = {r.text for r in explain("product", HOPPER).remarks}
    assert (
        "a dedicated warp copies this up to 3 iterations ahead (8 in launches of few programs), "
        "by tensor copies"
    ) in texts


def test_pipelined_loads(explain: Explain) -> None:
    texts = {r.text for r in explain("product", HOPPER, "-o", "tensor_copies=False").remarks}
    assert (
        "starts 2 iterations ahead, by asynchronous copies of 16 bytes into 3 buffers of 4 KiB in "
        "shared memory"
    ) in texts


def test_too_much_shared_memory(explain: Explain) -> None:
    report = explain("product", HOPPER, "-c", "M=64", "-c", "N=256", "-c", "K=512")
    (shared,) = [r for r in report.resources if r.name == "shared memory"]
    assert shared.limit is not None
    assert shared.used > shared.limit
    assert shared.missed
    assert shared.note == "more than a CTA can have: the kernel can't be launched"


def test_pass_that_does_not_apply_to_the_architecture(explain: Explain) -> None:
    passes = {p.name: p.skipped for p in explain("product", "sm_75").passes}
    assert passes["pipeline_loads"] == "cuda has no async_copy"


# -- saying it changes nothing ---------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["add", "total", "product", "calls"])
def test_code_is_the_same_when_it_is_explained(kernel: str) -> None:
    """The processor's instructions; those of GPUs are made with lines always."""
    launch, target = launch_of(arguments(kernel)), registry.target("cpu")
    codes: list[list[str]] = []
    for explain in (False, True):
        options = target.parse_options({})
        module = launch.source.module(target.frontend_options(options))
        ctx = context_for(target, options, explain=explain)
        lowered = lower(module, target, options, pipeline(target), ctx=ctx)
        text = str(target.derive("asm", lowered.stages, lowered.metadata))
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        codes.append([x for x in lines if x and not x.startswith(".")])
    assert codes[0]
    assert [re.sub(r"\.L\w+", "L", x) for x in codes[0]] == [
        re.sub(r"\.L\w+", "L", x) for x in codes[1]
    ]


def test_messages_of_the_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages on products appear at their line; the kernel is not rejected."""

    class Advising(Assembler):
        name = "advising"

        def version(self) -> str:
            return "1"

        def attempt(self, ptx: str, request: Request) -> Cubin | Rejection:
            return Cubin(b"", "ptxas info    : (C7510) Products are serialized")

    used = Resources(40, 0, shared_bytes=0)
    monkeypatch.setattr(best_cubin, "resources", lambda cubin, name: used)
    monkeypatch.setattr(best_cubin, "load_waits", lambda cubin, name: 0)
    monkeypatch.setattr(compilation, "find_assembler", Advising)
    monkeypatch.setattr(disassemble, "find_disassembler", lambda: None)
    with knobs.nvidia.scope():
        knobs.nvidia.strict_products = False
        report, _ = report_of(arguments("product", HOPPER, "-o", "tensor_copies=False"))
    (remark,) = [r for r in report.remarks if r.by == "assemble"]
    assert (remark.missed, remark.text) == (True, "Products are serialized (ptxas, C7510)")
    assert "tl.dot" in line_of(remark.place)
