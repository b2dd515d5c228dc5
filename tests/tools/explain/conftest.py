"""Reports of the kernels in `kernels.py`, each made once."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tilewright.layout.linear import LinearLayout
from tilewright.tools.cli import parser
from tilewright.tools.explain.report import Report
from tilewright.tools.explain.verb import report_of

KERNELS = Path(__file__).parent / "kernels.py"

TYPES = {
    "add": "x=*fp32:16,y=*fp32:16,out=*fp32:16,n=i32",
    "strided": "x=*fp32:16,out=*fp32:16,stride=i32",
    "every_third": "x=*fp32:16,out=*fp32:16",
    "looked_up": "x=*fp32:16,places=*i32:16,out=*fp32:16",
    "rows": "x=*fp32:16,out=*fp32:16,row_stride=i32",
    "positive": "x=*fp32:16,out=*fp32:16",
    "total": "x=*fp32:16,out=*fp32:16,n=i32:16",
    "chain": "x=*fp32:16,links=*i32:16,out=*fp32:16,steps=i32",
    "product": "a=*fp16:16,b=*fp16:16,out=*fp32:16,k=i32:16,a_stride=i32:16,b_stride=i32:16",
    "triangle": "x=*fp32:16,out=*fp32:16",
    "calls": "x=*fp32:16,out=*fp32:16",
}
SIZES = {"product": ("M=64", "N=64", "K=32")}

Explain = Callable[..., Report]


def arguments(kernel: str, target: str = "cpu", *more: str) -> argparse.Namespace:
    """The parsed command line for a kernel of `kernels.py`."""
    default = () if "-c" in more else SIZES.get(kernel, ("BLOCK=512",))
    sizes = [word for size in default for word in ("-c", size)]
    words = ["explain", f"{KERNELS}::{kernel}", "-s", TYPES[kernel], "-t", target, *sizes, *more]
    return parser().parse_args(words)


@cache
def explained(kernel: str, target: str = "cpu", *more: str) -> tuple[Report, list[LinearLayout]]:
    """The report on a kernel, and its layouts."""
    return report_of(arguments(kernel, target, *more))


@pytest.fixture(scope="session")
def explain() -> Explain:
    """Gives the report on a kernel, for a target, with more words of a command line."""

    def report(kernel: str, target: str = "cpu", *more: str) -> Report:
        return explained(kernel, target, *more)[0]

    return report
