"""Spare slots are provided only if they fit beside all else that the kernel takes."""

import tilewright as tw
import tilewright.language as tl
from tilewright.compiler.source import ASTSource
from tilewright.targets.nvidia.features import processor
from tilewright.targets.protocol import GPUTarget


@tw.jit
def two_products(a, stride, rows, columns, b, c, further, K, bias, o, p):
    start = tl.program_id(0) * 64
    a_block = tl.make_block_ptr(a, (rows, columns), (1, stride), (0, 0), (128, 64), (0, 1))
    c_block = tl.make_block_ptr(c, (320, 48), (1, further), (0, start), (64, 64), (0, 1))
    first = tl.zeros((128, 64), tl.float32)
    second = tl.zeros((128, 64), tl.float32)
    for k in tl.range(0, tl.cdiv(K, 64), num_stages=4):
        y = b.load([k * 64, start]).to(tl.float16)
        x = tl.load(a_block)
        first = tl.dot(x, y, first)
        z = tl.load(c_block, boundary_check=(1,), padding_option="zero")
        second = tl.dot(x, z, second)
        a_block = tl.advance(a_block, (0, 64))
        c_block = tl.advance(c_block, (64, 0))
    at = tl.arange(0, 64)
    first += tl.load(bias + start + at, mask=start + at < 48, other=0)[None, :]
    o_block = tl.make_tensor_descriptor(o, [128, 48], [48, 1], [128, 64])
    o_block.store([0, start], first.to(tl.float16))
    p.store([0, start], second)


def test_spare_slots_fit_with_the_rest_of_the_kernel() -> None:
    """Launches of few programs were rejected: what else the kernel takes had been estimated."""
    types = {"a": "*fp16", "b": "tensordesc<fp32[64,64]>", "c": "*fp16", "bias": "*fp32",
             "o": "*fp16", "p": "tensordesc<fp32[128,64]>"}  # fmt: skip
    signature = {name: types.get(name, "i32") for name in two_products.arg_names}
    attrs = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(signature)
             if "desc" not in signature[name]}  # fmt: skip
    source = ASTSource(two_products, signature, {}, attrs)
    kernel = tw.compile(
        source, target=GPUTarget("cuda", 90, 32), options={"num_stages": 4, "num_warps": 4}
    )
    facts = kernel.metadata
    assert facts.launch_warps > facts.num_warps  # one of them copies
    assert facts.shared + facts.spare_shared <= processor(90).shared_limit
