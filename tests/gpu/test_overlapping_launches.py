"""Launches that begin before the preceding ones have completed (programmatic dependent launch).

Chains of kernels of which each depends on the ones before, with grids from one program to many
waves, leave exactly what the same kernels leave when each is launched on its own: integers, modulo
2**32, so that a kernel that read a word too early or wrote one too soon changes the result.
"""

import ctypes
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch

import tilewright.language as tl
from tilewright.base import knobs
from tilewright.runtime.jit import jit

pytestmark = pytest.mark.gpu

BLOCK = 256
WORDS = 1 << 20
FACTOR = 0x343FD


@pytest.fixture(autouse=True)
def dependent_launches() -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs SM90 or later")


@jit(do_not_specialize=["n", "shift", "rounds"])
def mix(x, y, n, shift, rounds, BLOCK: tl.constexpr):
    """Each word of y from two words of x, which other programs of the kernel before wrote."""
    for at in tl.range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = at + tl.arange(0, BLOCK)
        value = tl.load(x + i) * 214013 + tl.load(x + (i + shift) % n) + 2531011
        for _ in range(rounds):
            value = value * 1664525 + 1013904223
        tl.store(y + i, value)


@jit(do_not_specialize=["n", "add"])
def in_place(x, n, add, BLOCK: tl.constexpr):
    """Reads and overwrites: preceding kernels may still read, succeeding ones wait."""
    for at in tl.range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = at + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i) * 69069 + add)


@jit(do_not_specialize=["n", "value"])
def fill(x, n, value, BLOCK: tl.constexpr):
    """Stores only: what preceding kernels read must stay until they have ended."""
    for at in tl.range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = at + tl.arange(0, BLOCK)
        tl.store(x + i, i * 31 + value)


@jit(do_not_specialize=["n"])
def count(x, y, n, BLOCK: tl.constexpr):
    """Atomics on words that the kernels before wrote."""
    for at in tl.range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = at + tl.arange(0, BLOCK)
        tl.atomic_add(y + (i & 1023), tl.load(x + i))


@jit(do_not_specialize=["n"])
def nothing(n):
    """No access at all: its end must nevertheless mean the end of the ones before."""


@jit(do_not_specialize=["n"])
def some(x, n, BLOCK: tl.constexpr):
    """Only the last program accesses memory; the others end at once."""
    if tl.program_id(0) == tl.num_programs(0) - 1:
        i = tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + n - 1 - i) + 7)


@jit(do_not_specialize=["n", "rounds"])
def eager(x, y, n, rounds, BLOCK: tl.constexpr):
    """Lets the next launch begin before it has stored anything."""
    tl.extra.cuda.gdc_wait()
    tl.extra.cuda.gdc_launch_dependents()
    for at in tl.range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = at + tl.arange(0, BLOCK)
        value = tl.load(x + i)
        for _ in range(rounds):
            value = value * 1664525 + 1013904223
        tl.store(y + i, value)


class Buffers(NamedTuple):
    """The memory of a chain: each kernel takes some of it."""

    words: list[torch.Tensor]

    @staticmethod
    def fresh() -> "Buffers":
        start = torch.arange(WORDS, dtype=torch.int32, device="cuda")
        return Buffers([start * (17 + i) + i for i in range(3)])


Launch = Callable[[Buffers], Any]
GRIDS = (1, 2, 31, 132, 133, 264, 700, 1056, 2112, 2113, WORDS // BLOCK, 6000)


def torch_step(kind: str, a: int, b: int) -> Launch:
    """A launch that is not tilewright's."""
    if kind == "add":
        return lambda s: torch.add(s.words[a], 3, out=s.words[b])
    if kind == "copy":  # not a kernel
        return lambda s: s.words[b].copy_(s.words[a])
    return lambda s: s.words[b].zero_()


def random_launch(draw: random.Random, options: dict[str, Any]) -> Launch:
    a, b = draw.sample(range(3), 2)
    grid, shift, rounds = (draw.choice(GRIDS),), draw.randrange(WORDS), draw.choice((0, 1, 200))
    n = draw.choice((WORDS, WORDS, 8 * BLOCK))
    steps: list[Launch] = [
        lambda s: mix[grid](s.words[a], s.words[b], n, shift, rounds, BLOCK=BLOCK, **options),
        lambda s: mix[grid](s.words[a], s.words[b], n, shift, rounds, BLOCK=BLOCK, **options),
        lambda s: in_place[grid](s.words[a], n, shift, BLOCK=BLOCK, **options),
        lambda s: fill[grid](s.words[b], n, shift, BLOCK=BLOCK, **options),
        lambda s: count[grid](s.words[a], s.words[b], n, BLOCK=BLOCK, **options),
        lambda s: nothing[grid](n, **options),
        lambda s: nothing[grid](n, **options),
        lambda s: some[grid](s.words[a], n, BLOCK=BLOCK, **options),
        lambda s: eager[grid](s.words[a], s.words[b], n, rounds, BLOCK=BLOCK, launch_pdl=True),
        torch_step(draw.choice(("add", "copy", "zero")), a, b),
    ]
    return draw.choice(steps)


def chain(seed: int, length: int, options: dict[str, Any]) -> list[Launch]:
    draw = random.Random(seed)
    return [random_launch(draw, options) for _ in range(length)]


def one_by_one(launches: list[Launch]) -> list[torch.Tensor]:
    """What the launches leave if each begins after the one before has ended."""
    state = Buffers.fresh()
    for launch in launches:
        launch(state)
        torch.cuda.synchronize()
    return state.words


def agree(found: Buffers, expected: list[torch.Tensor]) -> bool:
    torch.cuda.synchronize()
    return all(torch.equal(f, e) for f, e in zip(found.words, expected, strict=True))


@contextmanager
def captured() -> Generator[torch.cuda.CUDAGraph]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        yield graph


@pytest.mark.parametrize("seed", range(12))
def test_chains_leave_what_single_launches_do(seed: int) -> None:
    expected = one_by_one(chain(seed, 60, {"launch_pdl": False}))
    launches = chain(seed, 60, {})
    for _ in range(3):
        state = Buffers.fresh()
        torch.cuda.synchronize()
        for launch in launches:
            launch(state)
        assert agree(state, expected)


@pytest.mark.parametrize("seed", range(12, 20))
def test_chains_in_a_graph_leave_the_same(seed: int) -> None:
    launches = chain(seed, 60, {})
    expected = one_by_one(launches)
    state, start = Buffers.fresh(), Buffers.fresh()
    torch.cuda.synchronize()
    with captured() as graph:
        for launch in launches:
            launch(state)
    for _ in range(5):
        for word, first in zip(state.words, start.words, strict=True):
            word.copy_(first)
        graph.replay()
        assert agree(state, expected)


def test_launches_begin_early_unless_a_kernel_says_otherwise() -> None:
    x = torch.zeros(BLOCK, dtype=torch.int32, device="cuda")
    assert fill[(1,)](x, BLOCK, 1, BLOCK=BLOCK).metadata["begins_early"]
    assert not fill[(1,)](x, BLOCK, 1, BLOCK=BLOCK, launch_pdl=False).metadata["begins_early"]
    assert "griddepcontrol" not in fill[(1,)](x, BLOCK, 1, BLOCK=BLOCK, launch_pdl=False).asm["ptx"]
    with knobs.nvidia.scope():
        knobs.nvidia.overlap_launches = False
        assert not jit(fill.fn)[(1,)](x, BLOCK, 1, BLOCK=BLOCK).metadata["begins_early"]


LONG = 20_000  # rounds of a kernel that takes a millisecond or more


def long_then_nothing(x: torch.Tensor, y: torch.Tensor, value: int) -> None:
    """A long kernel, and others that end early; what comes then may not see the old y."""
    mix[(4,)](x, y, 4 * BLOCK, value, LONG, BLOCK=BLOCK)
    for _ in range(3):
        nothing[(1,)](value)


@pytest.mark.parametrize("graph", [False, True])
def test_the_end_of_a_kernel_is_the_end_of_those_before(graph: bool) -> None:
    """Kernels that touch nothing are between a long one and what depends on it: a torch kernel, a
    copy, a kernel of another stream that waits for an event, a kernel of ours."""
    x = torch.arange(4 * BLOCK, dtype=torch.int32, device="cuda")
    y, expected = torch.zeros_like(x), torch.zeros_like(x)
    mix[(4,)](x, expected, 4 * BLOCK, 5, LONG, BLOCK=BLOCK)
    torch.cuda.synchronize()
    results = [torch.zeros_like(x) for _ in range(4)]
    side, main = torch.cuda.Stream(), torch.cuda.Stream()

    def work() -> None:
        here = torch.cuda.current_stream()
        long_then_nothing(x, y, 5)
        event = torch.cuda.Event()
        event.record()
        with torch.cuda.stream(side):
            side.wait_event(event)
            in_place_copy(y, results[0])
        in_place_copy(y, results[1])
        torch.add(y, 0, out=results[2])
        results[3].copy_(y)
        here.wait_stream(side)

    def run() -> None:
        y.zero_()
        with torch.cuda.stream(main):
            main.wait_stream(torch.cuda.default_stream())
            work()
        torch.cuda.synchronize()

    run()
    if graph:
        torch.cuda.synchronize()
        with captured() as made:
            work()
        for result in results:
            result.zero_()
        y.zero_()
        made.replay()
        torch.cuda.synchronize()
    assert torch.equal(y, expected)
    for result in results:
        assert torch.equal(result, expected)


@jit
def copy_words(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))


def in_place_copy(x: torch.Tensor, y: torch.Tensor) -> None:
    copy_words[(x.numel() // BLOCK,)](x, y, x.numel(), BLOCK=BLOCK)


@pytest.mark.parametrize("graph", [False, True])
def test_a_launch_waits_for_the_events_that_its_stream_waits_for(graph: bool) -> None:
    """A short kernel of the same stream precedes; the long one is on another stream."""
    x = torch.arange(4 * BLOCK, dtype=torch.int32, device="cuda")
    y, z, expected = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    mix[(4,)](x, expected, 4 * BLOCK, 9, LONG, BLOCK=BLOCK)
    side = torch.cuda.Stream()

    def work() -> None:
        here = torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            mix[(4,)](x, y, 4 * BLOCK, 9, LONG, BLOCK=BLOCK)
        nothing[(1,)](1)
        here.wait_stream(side)
        in_place_copy(y, z)

    work()
    torch.cuda.synchronize()
    if graph:
        with captured() as made:
            work()
        y.zero_()
        z.zero_()
        made.replay()
        torch.cuda.synchronize()
    assert torch.equal(y, expected)
    assert torch.equal(z, expected)


def test_the_default_stream_waits_for_blocking_streams() -> None:
    """Work on a blocking stream, between two launches on the default stream."""
    driver = ctypes.CDLL("libcuda.so.1")
    stream = ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(stream), 0) == 0
    x = torch.arange(4 * BLOCK, dtype=torch.int32, device="cuda")
    y, z, expected = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    mix[(4,)](x, expected, 4 * BLOCK, 3, LONG, BLOCK=BLOCK)
    in_place_copy(x, z)
    torch.cuda.synchronize()
    nothing[(1,)](1)
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.value or 0)):
        mix[(4,)](x, y, 4 * BLOCK, 3, LONG, BLOCK=BLOCK)
    nothing[(1,)](1)
    in_place_copy(y, z)
    torch.cuda.synchronize()
    assert torch.equal(z, expected)
    assert driver.cuStreamDestroy_v2(stream) == 0


@jit
def wait_for(flag, out):
    """Runs until a kernel on another stream has set the flag."""
    while tl.atomic_add(flag, 0) == 0:
        pass
    tl.store(out, 1)


@jit
def set_flag(flag):
    tl.atomic_xchg(flag, 1)


@jit
def crowd(x, n, BLOCK: tl.constexpr):
    """Needs a multiprocessor's threads for each of its programs."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) + 1)


def test_a_kernel_that_waits_for_another_stream_keeps_its_space() -> None:
    """If the next launch began, and occupied the GPU, the one that sets the flag could not."""
    flag, out = (torch.zeros(1, dtype=torch.int32, device="cuda") for _ in range(2))
    programs = 4 * torch.cuda.get_device_properties(0).multi_processor_count
    x = torch.zeros(programs * 1024, dtype=torch.int32, device="cuda")
    other = torch.zeros(1, dtype=torch.int32, device="cuda")
    set_flag[(1,)](other)
    crowd[(programs,)](x, 0, BLOCK=1024, num_warps=32)
    wait_for[(1,)](other, out)
    torch.cuda.synchronize()
    out.zero_()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        wait_for[(1,)](flag, out)
        crowd[(programs,)](x, 0, BLOCK=1024, num_warps=32)
    with torch.cuda.stream(second):
        set_flag[(1,)](flag)
    torch.cuda.synchronize()
    assert out.item() == 1
    assert (x == 2).all()
