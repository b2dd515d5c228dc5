"""Blocks of random accesses: sums, products and masks of axes, scalars and wraps."""

from __future__ import annotations

import random

from tests.analysis.block_kernels import Case
from tests.analysis.test_blocks import check_case

SCALARS = ("m", "n", "s", "pid", "turn", "3", "(pid // 2)", "(m - pid)")


def _scalar(rng: random.Random) -> str:
    return rng.choice(SCALARS)


def _index(rng: random.Random, axis: str, depth: int = 3) -> str:
    """An index along one axis."""
    kind = rng.randrange(9) if depth else 0
    inner = _index(rng, axis, depth - 1) if depth else axis
    match kind:
        case 1 | 2:
            return f"({inner} + {_scalar(rng)})"
        case 3:
            return f"({_scalar(rng)} - {inner})"
        case 4:
            return f"({inner} * {rng.choice(('2', '-1', '4', 's'))})"
        case 5:
            return f"({inner} % {rng.choice(('m', '7', '16'))})"
        case 6:
            return f"({inner}).to(tl.int64)"
        case 7:
            return f"({inner} + {_index(rng, axis, depth - 1)})"
        case 8 if rng.random() < 0.3:
            return f"({inner} // 4)"
        case _:
            return axis


def _mask(rng: random.Random) -> str:
    parts: list[str] = []
    for _ in range(rng.randint(0, 3)):
        axis = rng.choice(("row", "col", "row + col", _scalar(rng)))
        left = _index(rng, f"({axis})", 1)
        sign = rng.choice(("<", "<=", ">", ">=", "==", "!="))
        parts.append(f"({left} {sign} {_scalar(rng)} * {rng.randint(-2, 9)})")
    whole = " & ".join(parts) or "(row >= 0)"
    return f"~({whole})" if rng.random() < 0.1 else f"({whole}) & (col >= 0)"


def random_case(seed: int) -> Case:
    """A kernel that loads a tile at a random index under a random mask."""
    rng = random.Random(seed)
    rows, cols = _index(rng, "row"), _index(rng, "col")
    address = f"{rows} * {rng.choice(('s', 'm', '16', '1'))} + {cols}"
    if rng.random() < 0.3:
        address += f" + {_scalar(rng)} * {_scalar(rng)}"
    pointer, mask = f"x + ({address})", _mask(rng)
    if rng.random() < 0.2:
        pointer, mask = f"({pointer}).T", f"(({mask}) & (row + col > -999)).T"
    return Case(
        f"random, {seed}",
        f"""
        def kernel(x, m, n, s):
            pid = tl.program_id(0)
            row = tl.arange(0, 8)[:, None]
            col = tl.arange(0, 4)[None, :]
            for turn in range({rng.choice(("0", "2"))}, {rng.choice(("3", "n"))}):
                tl.load({pointer}, mask={mask}, volatile=True)
        """,
        "*fp32, i32, i32, i32",
        [(rng.randint(1, 30), rng.randint(0, 5), rng.randint(-9, 99)) for _ in range(3)],
        ["any"],
    )


def test_blocks_of_random_accesses(fuzz_seed: int) -> None:
    check_case(random_case(fuzz_seed))
