"""`atomic=`: gradients that the kernel of other inputs adds atomically, instead of one that
computes the same again."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tests.frontend.kernels import function_from

torch = pytest.importorskip("torch")

HEADS, N, D = 4, 40, 16
"""40 queries and keys are two and a half tiles."""


@tw.jit
def attention(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n, scale, GROUP: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    tile, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)[None, :]
    i = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    at = head * n * D + i[:, None] * D + d
    q = tl.load(q_ptr + at, mask=i[:, None] < n, other=0.0)
    top = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total, acc = tl.zeros([BLOCK_M], tl.float32), tl.zeros([BLOCK_M, D], tl.float32)
    end = tl.minimum((tile + 1) * BLOCK_M, n) if CAUSAL else n
    for start in tl.range(0, end, BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        of_keys = (head // GROUP) * n * D + j[:, None] * D + d
        k = tl.load(k_ptr + of_keys, mask=j[:, None] < n, other=0.0)
        v = tl.load(v_ptr + of_keys, mask=j[:, None] < n, other=0.0)
        s = tl.where(j[None, :] < n, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        if CAUSAL:
            s = tl.where(i[:, None] >= j[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        total = total * tl.exp(top - new) + tl.sum(p, 1)
        acc = acc * tl.exp(top - new)[:, None] + tl.dot(p.to(v.dtype), v)
        top = new
    tl.store(o_ptr + at, acc / total[:, None], mask=i[:, None] < n)
    tl.store(lse_ptr + head * n + i, top + tl.log(total), mask=i < n)


def count(kernel: Any, op: str) -> int:
    return str(kernel.asm["ttir"]).count(f" {op} ")


def attended(leaves: list[Any], causal: bool, group: int) -> Any:
    q, k, v = leaves
    k, v = (t.repeat_interleave(group, 0) for t in (k, v))
    s = q @ k.mT / math.sqrt(D)
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)
    return s.softmax(-1) @ v


def inputs(group: int = 1) -> list[Any]:
    torch.manual_seed(0)
    heads = (HEADS, HEADS // group, HEADS // group)
    return [torch.randn(h, N, D) for h in heads]


def launched(
    q: Any, k: Any, v: Any, do: Any, tiles: tuple[int, int], causal: bool, into: Any,
    accumulate: bool = False, **how: Any,
) -> Any:  # fmt: skip
    """The gradient, after a launch."""
    o, lse = torch.empty_like(q), torch.empty(q.shape[:2])
    args = q, k, v, o, lse, N, 1 / math.sqrt(D)
    more = {"GROUP": q.shape[0] // k.shape[0], "D": D, "BLOCK_M": tiles[0], "BLOCK_N": tiles[1]}
    grid = (tw.cdiv(N, tiles[0]), q.shape[0])
    attention[grid](*args, **more, CAUSAL=causal)
    backward = tw.grad(attention, aux=("lse_ptr",), **how)
    backward[grid](
        *args, **more, CAUSAL=causal, grads={"o_ptr": do}, into=into, accumulate=accumulate
    )
    return backward


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tiles", [(16, 16), (16, 32), (32, 16)], ids=str)
def test_queries_are_added_by_the_kernel_of_keys_and_values(
    tiles: tuple[int, int], causal: bool, group: int, accumulate: bool
) -> None:
    arrays = inputs(group)
    do = torch.randn_like(arrays[0])
    found = [torch.full_like(t, 1.0 if accumulate else math.nan) for t in arrays]
    into = dict(zip(("q_ptr", "k_ptr", "v_ptr"), found, strict=True))
    q, k, v = arrays
    backward = launched(q, k, v, do, tiles, causal, into, accumulate, atomic=("q_ptr",))
    leaves = [t.double().requires_grad_() for t in arrays]
    exact = torch.autograd.grad(attended(leaves, causal, group), leaves, do.double())
    for got, want in zip(found, exact, strict=True):
        torch.testing.assert_close(
            got.double(), want + (1 if accumulate else 0), rtol=1e-4, atol=1e-5
        )
    sums, keys = backward.kernels
    assert (count(sums, "tile.dot"), count(keys, "tile.dot")) == (0, 5)
    assert (count(sums, "atomic.rmw"), count(keys, "atomic.rmw")) == (0, 1)
    assert "q_ptr: added atomically by a separate kernel" in backward.explain()


def test_without_the_other_inputs_there_is_no_such_kernel() -> None:
    q, k, v = inputs()
    into = {"q_ptr": torch.empty_like(q)}
    backward = launched(q, k, v, q, (16, 16), True, into, atomic=("q_ptr",))
    assert "q_ptr: stored" in backward.explain()


def test_by_default_there_are_no_atomics() -> None:
    q, k, v = inputs()
    into = {"q_ptr": q.clone(), "k_ptr": k.clone(), "v_ptr": v.clone()}
    backward = launched(q, k, v, q, (16, 16), True, into)
    assert sum(count(kernel, "atomic.rmw") for kernel in backward.kernels) == 0


def test_narrow_gradients_are_an_error() -> None:
    q, k, v = inputs()
    into = {"q_ptr": q.half(), "k_ptr": k.clone(), "v_ptr": v.clone()}
    with pytest.raises(TypeError, match=r"q_ptr is accumulated .* pass an array of fp32"):
        launched(q, k, v, q, (16, 16), True, into, atomic=("q_ptr",))


def test_deterministic_excludes_atomic() -> None:
    with pytest.raises(ValueError, match="deterministic=True excludes atomic="):
        tw.grad(attention, deterministic=True, atomic=("q_ptr",))
    with pytest.raises(ValueError, match="has no parameter 'x_ptr'"):
        tw.grad(attention, atomic=("x_ptr",))


def test_operators_convert_what_is_added() -> None:
    q, k, v = (t.bfloat16().requires_grad_() for t in inputs())
    run = tw.autograd_function(
        attention,
        grid=lambda a: (tw.cdiv(a["n"], a["BLOCK_M"]), HEADS),
        outputs={
            "o_ptr": lambda a: torch.empty_like(a["q_ptr"]),
            "lse_ptr": lambda a: torch.empty(HEADS, N),
        },
        atomic=("q_ptr",),
    )
    how = {"GROUP": 1, "D": D, "BLOCK_M": 16, "BLOCK_N": 16, "CAUSAL": True}
    o, _ = run(q, k, v, N, 1 / math.sqrt(D), **how)
    do = torch.randn_like(o)
    got = torch.autograd.grad(o, [q, k, v], do)
    leaves = [t.detach().double().requires_grad_() for t in (q, k, v)]
    want = torch.autograd.grad(attended(leaves, True, 1), leaves, do.double())
    assert "q_ptr: added atomically" in run.gradient.explain()
    for a, b in zip(got, want, strict=True):
        assert a.dtype == torch.bfloat16
        torch.testing.assert_close(a.double(), b, rtol=2e-2, atol=1e-2)


USES = {
    # What a row is used for besides, before and after the loop; whether it can be added.
    "nothing": ("", "", True),
    "before the loop": ("tl.store(z_ptr + i, tl.sum(a * a, 1))", "", False),
    "after the loop": ("", "acc += tl.dot(a, a)", False),
    "to start the sum": ("acc += tl.sin(a)", "", False),
    "in a branch": ("if n > 1: tl.store(z_ptr + i, tl.sum(a, 1))", "", False),
    "in another loop": ("", "for j in range(n): acc += tl.load(x_ptr + j) * a", False),
    "in another loop over the same tiles": (
        "", "for j in range(n): acc += tl.load(b_ptr + j * 256 + at) * tl.sin(a)", True,
    ),
    "in a condition": ("", "acc = tl.where(a > 0, acc, 2 * acc)", True),
    "by a sine": ("a = tl.sin(a) * 3", "", True),
    "by a sum": ("a = a + tl.sum(a * a, 1)[:, None] * tl.load(x_ptr + i)[:, None]", "", True),
}  # fmt: skip
KERNEL = """
def kernel(a_ptr, b_ptr, x_ptr, y_ptr, z_ptr, n):
    i, d = tl.arange(0, 16), tl.arange(0, 16)[None, :]
    at = i[:, None] * 16 + d
    of_rows = tl.program_id(0) * 256 + at
    a = tl.load(a_ptr + of_rows)
    acc = tl.zeros([16, 16], tl.float32)
    {before}
    for j in range(n):
        acc += tl.exp(tl.dot(a, tl.load(b_ptr + j * 256 + at)))
    {after}
    tl.store(y_ptr + of_rows, acc)
"""


@pytest.mark.parametrize("case", USES)
def test_only_terms_of_the_loop_are_added(case: str) -> None:
    """What else a row is used for is not in the other kernel, or would be added many times."""
    before, after, added = USES[case]
    kernel = tw.jit(function_from(KERNEL.format(before=before, after=after)))
    torch.manual_seed(0)
    a, b, x = torch.randn(3, 16, 16) / 4, torch.randn(5, 16, 16) / 4, torch.randn(16)
    y, z, dy = torch.empty(3, 16, 16), torch.empty(3, 16), torch.randn(3, 16, 16)
    args, found = (a, b, x, y, z, 5), list[Any]()
    kernel[(3,)](*args)
    for atomic in ((), ("a_ptr",)):
        into = {"a_ptr": torch.empty_like(a), "b_ptr": torch.empty_like(b)}
        backward = tw.grad(kernel, aux=("z_ptr",), atomic=atomic)
        backward[(3,)](*args, grads={"y_ptr": dy}, into=into)
        found.append(into)
    text = backward.explain()
    assert ("a_ptr: added atomically by a separate kernel" in text) == added, text
    for name, array in found[0].items():
        torch.testing.assert_close(found[1][name], array, rtol=1e-4, atol=1e-4)
