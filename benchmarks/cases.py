"""The benchmark cases against torch: sizes, both implementations, and target speedups.

Inputs are random. Both implementations write into preallocated outputs wherever torch supports it.
Before a case is timed, the outputs of both are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import fused_softmax
import giou_loss
import layer_norm
import matmul
import torch
import vector_add

import tilewright as tw
from benchmarks.kernels import gelu_kernel, multiply_add_kernel
from tilewright.targets import registry

Run = Callable[[], Any]

ELEMENTS = [2**i for i in range(14, 25, 2)]
COLUMNS = [256, 512, 1024, 2048, 4096, 8192, 16384]
MATRIX_ELEMENTS = 2**22  # of softmax and layer norm: 16 MB in fp32
SIDES = [256, 512, 1024, 2048]
SHORT = {torch.float32: "fp32", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Case:
    """One size of one workload.

    Attributes:
        name: the size, as text.
        ours: runs tilewright's implementation.
        rivals: torch's implementations by name; the fastest counts.
        results: the outputs to be compared: pairs of (ours, torch's).
        tolerance: the largest difference, absolute below 1 and relative above.
        aim: the target speedup over torch; None if there is none.
    """

    name: str
    ours: Run
    rivals: dict[str, Run]
    results: Callable[[], Sequence[tuple[Any, Any]]]
    tolerance: float
    aim: float | None

    def verify(self) -> None:
        """Run both implementations; raise AssertionError if their results differ."""
        self.ours()
        for rival, run in self.rivals.items():
            run()
            for got, expected in self.results():
                error = (got.double() - expected.double()).abs()
                worst = float((error / expected.double().abs().clamp(min=1)).max())
                assert worst <= self.tolerance, f"{self.name}: {worst} from torch's {rival}"


@dataclass(frozen=True)
class Family:
    """Cases that share a table.

    Attributes:
        title: heading of the table.
        cases: yields the cases; each is created on demand, as inputs are large.
        threads: the numbers of threads to measure with; None for any.
        missing: returns why it cannot be measured on this machine, or "".
    """

    title: str
    cases: Callable[[], Iterator[Case]]
    threads: tuple[int, ...] | None = None
    missing: Callable[[], str] = lambda: ""


def _elementwise(which: str) -> Iterator[Case]:
    for n in ELEMENTS:
        # One allocation each: tensors with a common storage are treated as overlapping.
        x, y, z, ours, theirs = (torch.randn(n) for _ in range(5))
        grid, block = (tw.cdiv(n, vector_add.BLOCK),), vector_add.BLOCK
        sides: dict[str, tuple[Run, Run]] = {
            "add": (
                partial(vector_add.add_kernel[grid], x, y, ours, n, BLOCK=block),
                partial(torch.add, x, y, out=theirs),
            ),
            "multiply-add": (
                partial(multiply_add_kernel[grid], x, y, z, ours, n, BLOCK=block),
                partial(torch.addcmul, x, y, z, out=theirs),
            ),
            "GELU": (
                partial(gelu_kernel[grid], x, ours, n, BLOCK=block),
                # torch.nn.functional.gelu; its stub lacks the parameter `out`.
                partial(torch._C._nn.gelu, x, out=theirs),  # pyright: ignore[reportAttributeAccessIssue]
            ),
        }
        run, rival = sides[which]
        name = f"2^{n.bit_length() - 1} elements"
        yield Case(name, run, {"out=": rival}, partial(_pair, ours, theirs), 4e-6, 1.0)


def _pair(ours: Any, theirs: Any) -> list[tuple[Any, Any]]:
    return [(ours, theirs)]


def _softmax(dtype: torch.dtype) -> Iterator[Case]:
    for columns in COLUMNS:
        x = torch.randn((MATRIX_ELEMENTS // columns, columns)).to(dtype)
        ours, theirs = torch.empty_like(x), torch.empty_like(x)
        yield Case(
            f"{len(x)} x {columns}",
            partial(fused_softmax.softmax, x, ours),
            {"out=": partial(torch.softmax, x, 1, out=theirs)},
            partial(_pair, ours, theirs),
            1e-6 if dtype == torch.float32 else 1e-2,
            1.3,
        )


def _layer_norm(dtype: torch.dtype) -> Iterator[Case]:
    for columns in COLUMNS:
        rows = MATRIX_ELEMENTS // columns
        x = torch.randn((rows, columns)).to(dtype)
        weight, bias = (torch.rand(columns).to(dtype) for _ in range(2))
        ours, kept = torch.empty_like(x), [torch.empty_like(x)]
        mean, rstd = torch.empty(rows), torch.empty(rows)
        outputs = torch.empty_like(x), *(torch.empty((rows, 1), dtype=dtype) for _ in range(2))

        def allocating(
            x: Any = x, weight: Any = weight, bias: Any = bias, kept: Any = kept
        ) -> None:
            kept[0] = torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, 1e-5)

        def given(
            x: Any = x, weight: Any = weight, bias: Any = bias, kept: Any = kept, o: Any = outputs
        ) -> None:
            torch.ops.aten.native_layer_norm.out(
                x, x.shape[1:], weight, bias, 1e-5, out0=o[0], out1=o[1], out2=o[2]
            )
            kept[0] = o[0]

        yield Case(
            f"{rows} x {columns}",
            partial(layer_norm.forward, x, weight, bias, 1e-5, ours, mean, rstd),
            # torch's variant with an output copies into it, and is usually slower.
            {"allocating": allocating, "out=": given},
            lambda ours=ours, kept=kept: [(ours, kept[0])],
            1e-5 if dtype == torch.float32 else 2e-2,
            1.3,
        )


def _giou() -> Iterator[Case]:
    predicted, target = giou_loss.random_boxes(65536, 16, torch.float32)
    losses = [torch.empty(()), torch.empty(())]

    def ours() -> None:
        losses[0] = giou_loss.giou_loss(predicted, target)

    def theirs() -> None:
        losses[1] = giou_loss.eager_giou_loss(predicted, target)

    yield Case(
        "loss of 65536 x 16 boxes",
        ours,
        {"eager": theirs},
        lambda: [(losses[0], losses[1])],
        1e-5,
        5.0,
    )


def _matmul(dtype: torch.dtype, aim: float | None) -> Iterator[Case]:
    for n in SIDES:
        a, b = (torch.randn((n, n)).to(dtype) for _ in range(2))
        ours, theirs = torch.empty_like(a), torch.empty_like(a)
        tiles = matmul.tiles_of(dtype.itemsize)
        grid = (tw.cdiv(n, tiles["BLOCK_M"]) * tw.cdiv(n, tiles["BLOCK_N"]),)
        launch = matmul.matmul_kernel[grid]
        yield Case(
            f"{n} x {n} x {n}",
            partial(launch, a, b, ours, n, n, n, n, n, n, ACTIVATION=matmul.identity, **tiles),
            {"out=": partial(torch.mm, a, b, out=theirs)},
            partial(_pair, ours, theirs),
            1e-3 if dtype == torch.float32 else 1e-1,
            aim,
        )


def has_amx() -> bool:
    return "amx-bf16" in registry.target("cpu").key()


FAMILIES = {
    "add": Family("add, fp32", partial(_elementwise, "add")),
    "multiply-add": Family("multiply-add, fp32", partial(_elementwise, "multiply-add")),
    "gelu": Family("GELU, fp32", partial(_elementwise, "GELU")),
    "softmax-fp32": Family("softmax, fp32", partial(_softmax, torch.float32)),
    "softmax-bf16": Family("softmax, bf16", partial(_softmax, torch.bfloat16)),
    "layer-norm-fp32": Family("layer norm, fp32", partial(_layer_norm, torch.float32)),
    "layer-norm-bf16": Family("layer norm, bf16", partial(_layer_norm, torch.bfloat16)),
    "giou": Family("GIoU loss, fp32", _giou),
    "matmul-fp32": Family("matmul, fp32", partial(_matmul, torch.float32, 0.7), threads=(1,)),
    "matmul-bf16": Family(
        "matmul, bf16",
        partial(_matmul, torch.bfloat16, 0.5),
        threads=(1,),
        missing=lambda: "" if has_amx() else "this processor has no AMX",
    ),
}
