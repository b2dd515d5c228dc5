"""Orders products of a region by the length of the computation that depends on them.

    dp = dot(do, vᵀ)                            s = dot(q, kᵀ)
    s = dot(q, kᵀ)                    →         dp = dot(do, vᵀ)
    p = exp(s)                                  p = exp(s)
    dq += dot(p * dp, k)                        dq += dot(p * dp, k)

An asynchronous product overlaps the ops after it until the first use of its result: here `dp`
overlaps the exponentials. Authors of kernels write products in such an order; in a derived kernel
their order is that of the adjoints. Products on which others depend come first, by the longest
chain of ops from each to the last of these. The rest follow as their operands become available, and
of several that do at once, first the one with the longest chain to the end of the region. Each is
placed directly after the computation of its operands. Nothing moves across a write. Linear in the
number of ops and operands, plus products times ops of a region.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir.core import Function, Op, Region
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.dot import Dot
from tilewright.ops.shape import Permute


@compiler_pass("order_products")
def order_products(fn: Function, ctx: PassContext) -> bool:
    """Order the products of each region; see the module docstring."""
    changed = False
    for region in _regions(fn.body):
        for ops in _between_writes(region):
            if sum(isinstance(op, Dot) for op in ops) > 1:
                order = _ordered(ops)
                changed |= order != ops
                _place(region, order)
    return changed


def _regions(region: Region) -> Iterator[Region]:
    yield region
    for op in region:
        for inner in op.regions:
            yield from _regions(inner)


def _between_writes(region: Region) -> list[list[Op]]:
    """The ops of a region that may change places with each other."""
    found: list[list[Op]] = [[]]
    for op in region:
        if op.terminator or op.writes() or any(inner.writes() for inner in op.walk()):
            found.append([])
        else:
            found[-1].append(op)
    return found


def _ordered(ops: Sequence[Op]) -> list[Op]:
    among = set(ops)
    before: dict[Op, list[Op]] = {}
    for op in ops:
        producers = [v.op for v in op.all_operands()]
        before[op] = [o for o in producers if o in among and o is not op]
    depth: dict[Op, int] = {}
    for op in ops:
        own = 0 if isinstance(op, Permute) else 1  # products read transposes at no cost
        depth[op] = own + max((depth[o] for o in before[op]), default=0)
    height = dict.fromkeys(ops, 0)
    to_product: dict[Op, int] = {}
    for op in reversed(ops):
        for o in before[op]:
            height[o] = max(height[o], height[op] + 1)
            if isinstance(op, Dot) or op in to_product:
                to_product[o] = max(to_product.get(o, 0), to_product.get(op, 0) + 1)
    products = [op for op in ops if isinstance(op, Dot)]
    products.sort(key=lambda op: (-to_product.get(op, 0), depth[op], -height[op]))
    position = {op: i for i, op in enumerate(ops)}
    placed: dict[Op, None] = {}
    for op in (*products, *ops):
        needed, work = set[Op](), [op]
        while work:
            one = work.pop()
            if one not in placed and one not in needed:
                needed.add(one)
                work += before[one]
        placed.update(dict.fromkeys(sorted(needed, key=position.__getitem__)))
    return list(placed)


def _place(region: Region, ops: Sequence[Op]) -> None:
    """Order neighbouring ops of a region."""
    following = {op.next for op in ops} - set(ops)
    (end,) = following
    assert end is not None
    for op in ops:
        op.remove()
        region.insert_before(op, end)
