"""A use of each public name of the language: the body of a function that returns a value.

In it are `pa`, `pb`, `pc`: pointers to 512 elements of type `T`; `i`, the first 16 offsets; `p`,
the pointers there; `a`, `b`, `c`, the elements there; and `m`, a mask. `support_table.py` tries
every use on every element type.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir.types import SCALARS


class Use(NamedTuple):
    """A use of a name.

    Attributes:
        text: the body; its last line is the result.
        kind: which inputs: "specials", "integral" for sums exact in any order, or "positive".
        close: whether targets may differ in the last places, as in functions that round.
        typed: whether the element type matters; a use of which it does not is tried on int32.
        helpers: jit functions that it calls.
    """

    text: str
    kind: str = "specials"
    close: bool = False
    typed: bool = True
    helpers: str = ""


def _all(names: str, text: str, **facts: Any) -> dict[str, Use]:
    """The same use of several names, which stand for `NAME`."""
    return {n: Use(text.replace("NAME", n), **facts) for n in names.split()}


def _plain(uses: dict[str, str]) -> dict[str, Use]:
    return {n: Use(text) for n, text in uses.items()}


PAIR = "@jit\ndef combine(x, y):\n    return x + y\n"
TWICE = "@jit\ndef twice(x):\n    return x + x\n"
CONST = "@jit\ndef read(x: tl.const, i):\n    return tl.load(x + i)\n"
POINT = "@tl.core._aggregate\nclass Point:\n    x: tl.tensor\n    y: tl.tensor\n"
DESCRIPTOR = "d = tl.make_tensor_descriptor(pa, [16, 32], [32, 1], [8, 16])\n"
BLOCK = "q = tl.make_block_ptr(pa, (16, 32), (32, 1), (0, 0), (8, 16), (1, 0))\n"
PRODUCT = """
k = tl.arange(0, 32)
x = tl.load(pa + i[:, None] * 32 + k[None, :])
y = tl.load(pb + k[:, None] * 16 + i[None, :])
"""

MODEL = {
    **_all("program_id num_programs", "tl.NAME(0) + i", typed=False),
    "tensor": Use("tl.static_assert(isinstance(a, tl.tensor))\na"),
    "tuple": Use("tl.static_assert(isinstance((a, b), tl.tuple))\n(a, b)[1]"),
    "slice": Use("tl.static_assert(hasattr(tl, 'slice'))\n(a, b, c)[1:][0]"),
    "constexpr": Use("n: tl.constexpr = 3\ni + n", typed=False),
    "const": Use("read(pa, i)", helpers=CONST),
    "dtype": Use("tl.static_assert(isinstance(a.dtype, tl.dtype))\na"),
    "void": Use("tl.static_assert(tl.void.is_void())\ni", typed=False),
    "pointer_type": Use("tl.static_assert(isinstance(pa.dtype, tl.pointer_type))\na"),
    "block_type": Use("tl.static_assert(isinstance(a.type, tl.block_type))\na"),
    "tuple_type": Use("tl.static_assert(isinstance((a, b).type, tl.tuple_type))\na"),
    "constexpr_type": Use("tl.static_assert(hasattr(tl, 'constexpr_type'))\ni", typed=False),
    "tensor_descriptor": Use(
        DESCRIPTOR + "tl.static_assert(isinstance(d, tl.tensor_descriptor))\nd.load([0, 0])"
    ),
    "tensor_descriptor_type": Use(
        DESCRIPTOR
        + "tl.static_assert(isinstance(d.type, tl.tensor_descriptor_type))\nd.load([0, 0])"
    ),
    "pi32_t": Use("tl.load(pa.to(tl.int64).to(tl.pi32_t) + i)", typed=False),
    "str_to_ty": Use("i.to(tl.str_to_ty('i64', None))", typed=False),
    "TRITON_MAX_TENSOR_NUMEL": Use(
        "tl.static_assert(tl.TRITON_MAX_TENSOR_NUMEL == 1048576)\ni", typed=False
    ),
    "aggregate_replace": Use("tl.aggregate_replace(Point(a, b), y=c).y", helpers=POINT),
    "target_info": Use("i + 1 if tl.target_info.is_hip() else i", typed=False),
}
DTYPES = {
    n: Use(f"tl.full((16,), 1, tl.{n})", typed=False)
    for n in (*(str(t.name) for t in SCALARS if t.is_int()), "float8e5", "float8e4nv",
              "float8e4b8", "float8e5b16", "float8e4b15", "float16", "bfloat16", "float32",
              "float64")
}  # fmt: skip
CREATION = _plain({
    "full": "tl.full((16,), 1, T)", "zeros": "tl.zeros((16,), T)", "zeros_like": "tl.zeros_like(a)",
    "cast": "tl.cast(a, tl.float32)", "cat": "tl.cat(a, b)", "to_tensor": "tl.to_tensor(a)",
}) | {"arange": Use("tl.arange(0, 16)", typed=False)}  # fmt: skip
SHAPE = _plain({
    "broadcast": "tl.broadcast(a[:, None], b[None, :])[1]",
    "broadcast_to": "tl.broadcast_to(a[:, None], (16, 4))",
    "expand_dims": "tl.expand_dims(a, 0)", "squeeze": "tl.squeeze(a[None, :], 0)",
    "unsqueeze": "tl.unsqueeze(a, 1)", "permute": "tl.permute(tl.reshape(a, (2, 2, 4)), (2, 0, 1))",
    "trans": "x = tl.reshape(a, (2, 8))\ntl.trans(x)", "reshape": "tl.reshape(a, (2, 8))",
    "view": "tl.view(a, (2, 8))", "ravel": "x = tl.reshape(a, (2, 8))\ntl.ravel(x)",
    "join": "tl.join(a, b)", "split": "x = tl.reshape(a, (8, 2))\ntl.split(x)[1]",
    "interleave": "tl.interleave(a, b)", "flip": "tl.flip(a, 0)",
    "gather": "tl.gather(a, i ^ 3, 0)",
}) | {"swizzle2d": Use("tl.swizzle2d(i, i + 1, 32, 32, 4)[0]", typed=False)}  # fmt: skip
PRODUCTS = {
    "dot": Use(PRODUCT + "tl.dot(x, y)", "integral"),
    "dot_scaled": Use(
        PRODUCT
        + """
f: tl.constexpr = ("e5m2" if T == tl.float8e5 else "fp16" if T == tl.float16 else
                   "bf16" if T == tl.bfloat16 else "e4m3")
tl.dot_scaled(x, None, f, y, None, f)""",
        "integral",
    ),
}
MEMORY = _plain({
    "load": "tl.load(p, mask=m, other=1)", "store": "tl.store(p, b, mask=m)\nb",
    "make_tensor_descriptor": DESCRIPTOR + "d.load([4, 20])",
    "load_tensor_descriptor": DESCRIPTOR + "tl.load_tensor_descriptor(d, [4, 20])",
    "store_tensor_descriptor": DESCRIPTOR
    + "x = tl.load(pb + i[None, :] + tl.arange(0, 8)[:, None] * 16)\n"
    "tl.store_tensor_descriptor(d, [12, 20], x)\nx",
    "make_block_ptr": BLOCK + "tl.load(q)",
    "advance": BLOCK + "tl.load(tl.advance(q, (4, 20)), boundary_check=(0, 1), "
    "padding_option='zero')",
})  # fmt: skip
SELECTION = _plain({
    "where": "tl.where(m, a, b)", "minimum": "tl.minimum(a, b)", "maximum": "tl.maximum(a, b)",
    "clamp": "tl.clamp(a, b, c)", "expect_zero": "tl.expect_zero(a, m)",
    "PropagateNan": "tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
})  # fmt: skip
CLOSE = "exp exp2 log log2 sin cos sqrt rsqrt erf sigmoid"
MATH = {
    **_all(CLOSE, "tl.NAME(a)", kind="positive", close=True),
    "softmax": Use("tl.softmax(a)", "integral", close=True),
    **_all("abs floor ceil sqrt_rn", "tl.NAME(a)"),
    **_all("add sub mul umulhi div_rn", "tl.NAME(a, b)"),
    "cdiv": Use("tl.cdiv(a, b)"),
    "fdiv": Use("tl.fdiv(a, b)", "positive", close=True),
    "fma": Use("tl.fma(a, b, c)"),
}
REDUCTIONS = {
    "reduce": Use("tl.reduce(a, 0, combine)", "integral", helpers=PAIR),
    "associative_scan": Use("tl.associative_scan(a, 0, combine)", "integral", helpers=PAIR),
    **_all("sum cumsum cumprod", "tl.NAME(a, 0)", kind="integral"),
    **_all("max min argmax argmin xor_sum reduce_or", "tl.NAME(a, 0)", kind="integral"),
    **_all("sort bitonic_merge", "tl.NAME(a)", kind="integral"),
    "topk": Use("tl.topk(a, 4)", "integral"),
    "histogram": Use("tl.histogram(a, 4)", "integral"),
    "map_elementwise": Use("tl.map_elementwise(twice, a)", helpers=TWICE),
}
ATOMICS = {
    **_all("atomic_add", "tl.NAME(p, b)", kind="integral"),
    **_all("atomic_max atomic_min", "tl.NAME(p, b)", kind="integral"),
    **_all("atomic_and atomic_or atomic_xor atomic_xchg", "tl.NAME(p, b, mask=m)"),
    "atomic_cas": Use("tl.atomic_cas(p, tl.where(m, a, b), c)", "integral"),
    "atomic_load": Use("tl.atomic_load(p)"),
    "atomic_store": Use("tl.atomic_store(p, b, mask=m)\nb"),
    "atomic_poll": Use("tl.atomic_poll(p, a)"),
}
RANDOM = {
    **_all("rand randint", "tl.NAME(5, a)"),
    **_all("rand4x randint4x", "tl.NAME(5, a)[3]"),
    "randn": Use("tl.randn(5, a)", close=True),
    "randn4x": Use("tl.randn4x(5, a)[3]", close=True),
    "philox": Use("tl.philox(7, a, b, a, b)[0]"),
    "philox_impl": Use("tl.philox_impl(a, b, a, b, a, b)[3]"),
    "uint_to_uniform_float": Use("tl.uint_to_uniform_float(a)"),
    "pair_uniform_to_normal": Use("tl.pair_uniform_to_normal(a, b)[0]", "positive", close=True),
}
OTHERS = {
    "range": Use("x = a\nfor j in tl.range(0, 3):\n    x = tl.where(m, x, b)\nx"),
    "static_range": Use("x = a\nfor j in tl.static_range(3):\n    x = tl.where(m, x, b)\nx"),
    "condition": Use("n = 0\nwhile tl.condition(n < 3):\n    n += 1\nn + i", typed=False),
    "inline_asm_elementwise": Use(
        "wide: tl.constexpr = T.primitive_bitwidth == 64\n"
        'tl.inline_asm_elementwise("mov.b64 $0, $1;" if wide else "mov.b32 $0, $1;", '
        '"=l,l" if wide else "=r,r", [a], T, True, 1)'
    ),
    "assume": Use("tl.assume(tl.num_programs(0) > 0)\ni", typed=False),
    **_all("save recompute stop_gradient", "tl.NAME(a)"),
    **_all("multiple_of max_contiguous max_constancy", "tl.NAME(a, [1])"),
    "debug_barrier": Use("tl.debug_barrier()\na"),
    "static_print": Use("tl.static_print('', end='')\ni", typed=False),
    "static_assert": Use("tl.static_assert(a.numel == 16)\na"),
    "device_print": Use("if tl.num_programs(0) < 0:\n    tl.device_print('a', a)\na"),
    "device_assert": Use("tl.device_assert(a == a)\na"),
}
BINARY = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
]
OPERATORS = {
    **{f"x {o} y": Use(f"a {o} b") for o in BINARY},
    "x / y": Use("a / b", "positive", close=True),
    "-x": Use("-a"), "~x": Use("~a"), "not x": Use("not (tl.sum(i) == 0)", typed=False),
    "x[:, None]": Use("a[:, None]"), "x[3]": Use("a[3]"), "x[0:8]": Use("a[0:8]"),
    "x.T": Use("tl.reshape(a, (2, 8)).T"), "x.item()": Use("a[0:1].item()"),
    "x.to(T)": Use("i.to(tl.float32).to(T)"),
    "x.logical_and(y)": Use("a.logical_and(b)"), "x.logical_or(y)": Use("a.logical_or(b)"),
}  # fmt: skip

SECTIONS: dict[str, dict[str, Use]] = {
    "Programming model": MODEL, "Element types": DTYPES, "Creation": CREATION, "Shape": SHAPE,
    "Matrix products": PRODUCTS, "Memory": MEMORY, "Selection": SELECTION, "Math": MATH,
    "Reductions, scans, sorts": REDUCTIONS, "Atomics": ATOMICS, "Random numbers": RANDOM,
    "Iteration, assembly, hints, debugging": OTHERS, "Operators and tensor attributes": OPERATORS,
}  # fmt: skip
# Of the targets' extras. What reads a register of a GPU is neither interpreted nor emulated:
# test_extra.py sees that it is in the PTX.
EXTRAS = {
    **{f"tl.extra.{vendor}.{name}": Use(f"tl.extra.{vendor}.{name}() + i", typed=False)
       for vendor, names in (
           ("cuda", ("num_threads", "num_warps", "smid", "globaltimer")),
           ("hip", ("num_threads", "num_warps", "smid", "memrealtime")),
       ) for name in names},
    **{f"tl.extra.cuda.{name}": Use(f"tl.extra.cuda.{name}()\ni", typed=False)
       for name in ("gdc_wait", "gdc_launch_dependents")},
    **{f"tl.extra.cuda.{name}": Use(f"tl.extra.cuda.{name}(a, tl.float16)")
       for name in ("convert_custom_float8_sm70", "convert_custom_float8_sm80")},
    "tl.extra.cpu.vnni_decode": Use("tl.extra.cpu.vnni_decode(tl.reshape(a, (2, 8)))"),
}  # fmt: skip
MODULES = ["core", "extra", "math", "operators", "random", "semantic", "standard"]
USES = {name: use for section in SECTIONS.values() for name, use in section.items()}
