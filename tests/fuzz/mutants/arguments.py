"""Other arguments for a kernel: types, contents, shared memory, numbers, tiles, grids."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.mutants.corpus import Launch
from tests.ir_values import random_array
from tilewright.ir.types import SCALARS, Tile

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 31, 32, 33, 48, 64, 100, 128)
TYPES = (
    np.int8, np.uint8, np.int16, np.int32, np.int32, np.uint32, np.int64, np.uint64, np.float16,
    np.float32, np.float32, np.float64, ml_dtypes.bfloat16, np.bool_,
)  # fmt: skip
MOST_PROGRAMS = 4
ROOM = 96  # elements of an array beyond those of the kernel's own launch, where edits lead
MOST_ELEMENTS = 1 << 15
ELEMENT_OF = {np.dtype(t.numpy): t for t in reversed(SCALARS)}


def roomy(launch: Launch) -> Launch:
    """The launch with flat arrays that have room for edits, and few programs."""
    args = [_roomy(a) if isinstance(a, np.ndarray) else a for a in launch.args]
    return Launch(launch.kernel, args, launch.constants, _small(launch.grid))


def mutated_arguments(launch: Launch, rng: random.Random) -> Launch:
    """A launch with up to three changes of what the kernel is given."""
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    args, constants, grid = list(launch.args), dict(launch.constants), launch.grid
    for _ in range(rng.choice((1, 1, 2, 3))):
        match rng.randrange(8):
            case 0 | 1:
                _change_type(args, rng)
            case 2 | 3:
                _change_content(args, rng, numbers)
            case 4:
                _share(args, rng)
            case 5:
                _change_number(args, rng)
            case 6:
                _change_constant(constants, rng)
            case _:
                grid = rng.choice(((1,), (2,), (3,), (2, 2), (1, 3), (1, 1, 2)))
    return Launch(launch.kernel, args, constants, grid)


def _arrays(args: list[Any]) -> list[int]:
    return [i for i, a in enumerate(args) if isinstance(a, np.ndarray)]


def _roomy(array: np.ndarray) -> np.ndarray:
    """A flat copy, with more of the same behind it."""
    flat = array.reshape(-1)[:MOST_ELEMENTS]
    return np.resize(flat, flat.size + ROOM) if flat.size else np.zeros(ROOM, array.dtype)


def _small(grid: tuple[int, ...]) -> tuple[int, ...]:
    """Few programs, since the interpreter runs them one by one."""
    left, found = MOST_PROGRAMS, list[int]()
    for extent in grid:
        found.append(min(extent, left))
        left = max(1, left // max(1, found[-1]))
    return tuple(found)


def _change_type(args: list[Any], rng: random.Random) -> None:
    """Another element type for one array, or for all of one type."""
    places = _arrays(args)
    if not places:
        return
    old, new = args[rng.choice(places)].dtype, np.dtype(rng.choice(TYPES))
    chosen = [i for i in places if args[i].dtype == old]
    for i in chosen if rng.random() < 0.6 else [rng.choice(chosen)]:
        with np.errstate(all="ignore"):
            args[i] = args[i].astype(new)


def _change_content(args: list[Any], rng: random.Random, numbers: np.random.Generator) -> None:
    """Extremes, NaNs with payloads, any bits, small whole numbers, or all alike."""
    places = _arrays(args)
    if not places:
        return
    i = rng.choice(places)
    dtype, size = args[i].dtype, args[i].size
    kind = rng.randrange(4)
    if kind == 0 and dtype in ELEMENT_OF:
        args[i] = np.array(random_array(Tile((size,), ELEMENT_OF[dtype]), numbers))
    elif kind == 1 and dtype != np.bool_:
        args[i] = np.frombuffer(numbers.bytes(size * dtype.itemsize), dtype).copy()
    elif kind == 2:
        args[i] = numbers.integers(0, 5, size).astype(dtype)
    else:
        args[i] = np.full(size, rng.choice((0, 1, 3)), dtype)


def _share(args: list[Any], rng: random.Random) -> None:
    """Two arrays in one memory, one maybe later in it."""
    places = _arrays(args)
    if len(places) < 2:
        return
    i, k = rng.sample(places, 2)
    if args[i].dtype != args[k].dtype:
        return
    shift = rng.choice((0, 0, 1, 4, 16, ROOM))
    room = np.resize(args[i], max(args[i].size, shift + args[k].size))
    args[i], args[k] = room[: args[i].size], room[shift : shift + args[k].size]


def _change_number(args: list[Any], rng: random.Random) -> None:
    places = [i for i, a in enumerate(args) if not isinstance(a, np.ndarray)]
    if not places:
        return
    i = rng.choice(places)
    value = args[i]
    if isinstance(value, bool):
        args[i] = not value
    elif isinstance(value, int):
        near = (value + 1, value - 1, value // 2, -value, 2 * value, 0, 1, 2, 16)
        args[i] = rng.choice((2**31 - 1, -(2**31), 2**33) if rng.random() < 0.1 else near)
    elif isinstance(value, float):
        args[i] = rng.choice((0.0, -0.0, 1.0, float("inf"), float("nan"), -value, 1e-40))


def _change_constant(constants: dict[str, Any], rng: random.Random) -> None:
    """Another tile, mostly; not of a power of two, maybe."""
    places = [n for n, v in constants.items() if isinstance(v, int)]
    if not places:
        return
    name = rng.choice(places)
    value = constants[name]
    constants[name] = not value if isinstance(value, bool) else rng.choice(EXTENTS)
