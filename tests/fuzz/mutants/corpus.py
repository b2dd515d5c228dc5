"""Launches of kernels, to be mutated: the examples, those of the GPU tests, the conformance suite.

family = families()[0]
launch = family.launches[0]()
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from tests.gpu import examples, recipes
from tests.gpu.programs import At, Program
from tilewright.conformance.case import Program as Conforming
from tilewright.conformance.case import Shifted
from tilewright.conformance.suite import Selection

LEVELS = ("1", "2", "3", "4")  # of the conformance suite; programs of level 5 wait for each other

RECIPES: tuple[tuple[Callable[..., Program], tuple[Any, ...]], ...] = (
    (recipes.add, ("fp32", 100, 32)),
    (recipes.copy2d, ("i16", 20, 40, "rc", (16, 32))),
    (recipes.copy2d, ("fp32", 33, 17, "cr", (8, 16))),
    (recipes.collatz, (3, 27)),
    (recipes.nest, (3, 4, 32, 2)),
    (recipes.streams, (32, 3, 70)),
    (recipes.first_above, (3, 40, 0.5)),
    (recipes.cut, (16, 3)),
    (recipes.gather, ("i32", 64, 32)),
    (recipes.atomic, ("add", "i32", 100, 16)),
    (recipes.exchange, ("i32", 3, 16)),
    (recipes.softmax, ("fp32", 3, 50)),
    (recipes.vector_add, (300,)),
    (recipes.dropout, (200, 0.25, 7)),
    (recipes.layer_norm_forward, ("fp32", 3, 40)),
    (recipes.layer_norm_backward, (5, 40, 2)),
    (recipes.sum_shares, (40,)),
    (recipes.giou, ("fp32", 2, 20)),
    (recipes.giou_sum, (40,)),
    (examples.top_k, (2, 30, 4)),
    (examples.count_tones, (700,)),
    (examples.tone_table, (500,)),
    (examples.look_up_tones, (700,)),
    (examples.describe_shares, (700, 9)),
    (examples.scan_shares, (700, 9)),
    (examples.carry_between_shares, (20,)),
    (examples.quantized_matmul, ("fp16", 20, 40, 64, (16, 32))),
    (examples.convolution, (9, 3, 14)),
)


class Launch(NamedTuple):
    """A kernel and what it is given; arrays are one-dimensional.

    Attributes:
        kernel: what `jit` made.
        args: of the run-time parameters, in order.
        constants: of the compile-time parameters.
    """

    kernel: Any
    args: list[Any]
    constants: dict[str, Any]
    grid: tuple[int, ...]


class Family(NamedTuple):
    """Launches of one kernel, or of kernels for one feature."""

    name: str
    launches: list[Callable[[], Launch]]


@cache
def families() -> list[Family]:
    """All of the corpus, in a fixed order."""
    found: dict[str, list[Callable[[], Launch]]] = defaultdict(list)
    for recipe, params in RECIPES:
        found[recipe.__name__].append(lambda r=recipe, p=params: _launch(r(*p)))
    for case in Selection(levels=LEVELS).cases():
        body: Any = case.body
        if not case.launches:
            found[f"{case.level}/{case.feature}"].append(lambda b=body: _launch(b()))
    return [Family(name, launches) for name, launches in found.items()]


def _launch(program: Program | Conforming) -> Launch:
    args = [a.array if isinstance(a, At | Shifted) else a for a in program.args]
    return Launch(program.kernel, args, dict(program.constants), tuple(program.grid))
