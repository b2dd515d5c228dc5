"""Kernels in hand-written PTX, for tests of the device alone, and the records to launch them by."""

from typing import Any

from tilewright.compiler.artifact import CompiledKernel
from tilewright.targets.protocol import GPUTarget

HEAD = """
.version 8.0
.target {target}
.address_size 64
"""

# out[i] = x[i] + y[i] for i < n, one element a thread.
ADD = """
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 out, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %d<8>;
  .reg .f32 %f<4>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [n];
  setp.ge.s32 %p, %r4, %r5;
  @%p bra DONE;
  mul.wide.s32 %d4, %r4, 4;
  ld.param.u64 %d1, [x];
  ld.param.u64 %d2, [y];
  ld.param.u64 %d3, [out];
  add.s64 %d5, %d1, %d4;
  add.s64 %d6, %d2, %d4;
  add.s64 %d7, %d3, %d4;
  ld.global.f32 %f1, [%d5];
  ld.global.f32 %f2, [%d6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%d7], %f3;
DONE:
  ret;
}
"""

# out[0 .. 7] = the scalars, each through the width in which it was passed.
SCALARS = """
.visible .entry scalars(.param .u64 out, .param .u8 flag, .param .b16 half, .param .f32 single,
                        .param .f64 double, .param .s32 word, .param .s64 long)
{
  .reg .b16 %h<3>;
  .reg .b32 %r<2>;
  .reg .b64 %d<3>;
  .reg .f32 %f<4>;
  .reg .f64 %g<8>;
  ld.param.u64 %d1, [out];
  ld.param.u8 %h1, [flag];
  cvt.rn.f64.u16 %g1, %h1;
  st.global.f64 [%d1], %g1;
  ld.param.b16 %h2, [half];
  cvt.f64.f16 %g2, %h2;
  st.global.f64 [%d1+8], %g2;
  ld.param.f32 %f1, [single];
  cvt.f64.f32 %g3, %f1;
  st.global.f64 [%d1+16], %g3;
  ld.param.f64 %g4, [double];
  st.global.f64 [%d1+24], %g4;
  ld.param.s32 %r1, [word];
  cvt.rn.f64.s32 %g5, %r1;
  st.global.f64 [%d1+32], %g5;
  ld.param.s64 %d2, [long];
  cvt.rn.f64.s64 %g6, %d2;
  st.global.f64 [%d1+40], %g6;
  ret;
}
"""

# out[block] = the last word of `bytes` of dynamic shared memory, after it was written.
SHARED = """
.extern .shared .align 16 .b8 memory[];
.visible .entry shared(.param .u64 out, .param .u32 bytes)
{
  .reg .b32 %r<5>;
  .reg .b64 %d<4>;
  ld.param.u32 %r1, [bytes];
  mov.u32 %r2, memory;
  add.s32 %r3, %r2, %r1;
  mov.u32 %r4, %ctaid.x;
  st.shared.u32 [%r3+-4], %r4;
  ld.shared.u32 %r4, [%r3+-4];
  ld.param.u64 %d1, [out];
  mul.wide.u32 %d2, %r4, 4;
  add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r4;
  ret;
}
"""

# out[block] = 100 * the cluster's number + the block's rank in it.
CLUSTER = """
.visible .entry cluster(.param .u64 out)
{
  .reg .b32 %r<5>;
  .reg .b64 %d<4>;
  mov.u32 %r1, %clusterid.x;
  mov.u32 %r2, %cluster_ctarank;
  mad.lo.u32 %r3, %r1, 100, %r2;
  mov.u32 %r4, %ctaid.x;
  ld.param.u64 %d1, [out];
  mul.wide.u32 %d2, %r4, 4;
  add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r3;
  ret;
}
"""

# out[block] = what was written to the block's own word of scratch memory.
SCRATCH = """
.visible .entry scratch(.param .u64 out, .param .u64 room)
{
  .reg .b32 %r<4>;
  .reg .b64 %d<6>;
  mov.u32 %r1, %ctaid.x;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [room];
  mul.wide.u32 %d3, %r1, 4;
  add.s64 %d4, %d2, %d3;
  add.s64 %d5, %d1, %d3;
  add.s32 %r2, %r1, 1000;
  st.global.u32 [%d4], %r2;
  ld.global.u32 %r3, [%d4];
  st.global.u32 [%d5], %r3;
  ret;
}
"""

TEXTS = {"add": ADD, "scalars": SCALARS, "shared": SHARED, "cluster": CLUSTER, "scratch": SCRATCH}
TYPES = {
    "add": ["*fp32", "*fp32", "*fp32", "i32"],
    "scalars": ["*fp64", "u1", "fp16", "fp32", "fp64", "i32", "i64"],
    "shared": ["*i32", "i32"],
    "cluster": ["*i32"],
    "scratch": ["*i32"],
}


def ptx(name: str) -> str:
    """The PTX of one of the kernels. Only that of `cluster` needs a Hopper GPU."""
    return HEAD.format(target="sm_90" if name == "cluster" else "sm_80") + TEXTS[name]


def kernel(name: str, image: str | bytes | None = None, **metadata: Any) -> CompiledKernel:
    """One of the kernels as a compiler would give it, with 128 threads a program.

    Args:
        image: its code, another than its PTX.
        metadata: what differs from a plain launch.
    """
    types = TYPES[name]
    values = {
        "name": name,
        "hash": "0",
        "target": GPUTarget("cuda", 90, 32),
        "num_warps": 4,
        "num_ctas": 1,
        "shared": 0,
        "arguments": [((i,), kind) for i, kind in enumerate(types)],
        "signature": {f"a{i}": kind for i, kind in enumerate(types)},
        **metadata,
    }
    code = ptx(name) if image is None else image
    return CompiledKernel({"ptx" if isinstance(code, str) else "cubin": code}, values)
