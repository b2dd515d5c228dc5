"""Kernels on a GPU, against the interpreter or a reference in fp64.

Each case is a job: a recipe of `recipes.py`, its parameters, and options. Other processes compile
and interpret some way ahead, as that takes most of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from benchmarks.gpu import work
from benchmarks.gpu.case import Setting
from benchmarks.gpu.measure import Bench
from benchmarks.gpu.results import Row
from tests.gpu import examples, products, recipes, shapes
from tests.gpu.harness import Ahead, run
from tests.gpu.programs import Job
from tilewright.conformance.libdevice_names import EXACT_NAMES, SIGNATURES, forms
from tilewright.conformance.uses import USES

WARPS = (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4, 5)
AHEAD = 64  # jobs that are prepared in advance

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
NARROW_FLOATS = ("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15")
ARITHMETIC = (*INTEGERS, *FLOATS)
STORED = ("i1", *ARITHMETIC, *NARROW_FLOATS)


def _elementwise() -> Iterator[Job]:
    warps = cycle(WARPS)
    for type in ARITHMETIC:
        for n, block, shifts in (
            (1, 64, (0, 0, 0)),
            (1000, 256, (0, 0, 0)),
            (4096, 1024, (0, 0, 0)),
            (4099, 2048, (1, 3, 2)),
            (5000, 4096, (0, 0, 1)),
        ):
            yield Job(recipes.add, (type, n, block, shifts), {"num_warps": next(warps)})
    for type, count in product(("i8", "bf16", "fp32", "i64"), (2, 4)):  # in parts
        yield Job(recipes.add, (type, 40000, 16384, (0, 0, 0)), {"num_warps": count})
    for shift, count in product(range(8), WARPS):
        yield Job(recipes.add, ("fp16", 3001, 1024, (shift, 0, shift)), {"num_warps": count})


def _copies() -> Iterator[Job]:
    warps = cycle(WARPS)
    for type, orders in product(STORED, ("rr", "rc", "cr", "cc")):
        for size, tile in (((64, 64), (32, 64)), ((65, 130), (64, 16))):
            if type != "i1":  # a byte of memory is not any bit
                yield Job(recipes.copy2d, (type, *size, orders, tile), {"num_warps": next(warps)})
    for rows, columns in ((1, 1), (1, 1000), (1000, 1), (16, 17)):
        yield Job(recipes.copy2d, ("fp32", rows, columns, "rc", (16, 16)))


SHAPES = ((1, 64), (64, 1), (8, 8), (2, 512), (128, 32), (4, 16))


def _of(shape: tuple[int, int], axis: int) -> tuple[int, ...]:
    return (shape[1 - axis],)


def _reductions() -> Iterator[Job]:
    warps = cycle(WARPS)
    for name, shape, axis in product(("sum", "max", "min"), SHAPES, (0, 1)):
        for type in ("i32", "fp32"):
            call = f"tl.{name}(a, {axis})"
            inputs = ((type, shape),)
            kind = "integral" if name == "sum" else "specials"
            yield Job(
                recipes.expression, (call, inputs, (type, _of(shape, axis)), kind),
                {"num_warps": next(warps)},
            )  # fmt: skip
    for name, shape, axis in product(("argmax", "argmin"), SHAPES, (0, 1)):
        yield Job(
            recipes.expression,
            (f"tl.{name}(a, {axis})", (("fp32", shape),), ("i32", _of(shape, axis)), "integral"),
            {"num_warps": next(warps)},
        )
    for type in ARITHMETIC:
        for call in ("tl.sum(a, 0)", "tl.max(a, 1)"):
            axis = int(call[-2])
            params = call, ((type, (16, 64)),), (type, _of((16, 64), axis)), "integral"
            yield Job(recipes.expression, params, {"num_warps": next(warps)})
    for type, count in product(("i8", "u32", "i64"), WARPS):
        params = "tl.xor_sum(a, 1)", ((type, (32, 32)),), (type, (32,))
        yield Job(recipes.expression, params, {"num_warps": count})


def _scans() -> Iterator[Job]:
    warps = cycle(WARPS)
    for shape, axis, reverse in product(SHAPES, (0, 1), (False, True)):
        for type, name in (("i32", "cumsum"), ("fp32", "cumsum"), ("i64", "cumprod")):
            call = f"tl.{name}(a, {axis}, reverse={reverse})"
            yield Job(
                recipes.expression, (call, ((type, shape),), (type, shape), "integral"),
                {"num_warps": next(warps)},
            )  # fmt: skip
    for count in WARPS:
        params = "tl.cumsum(a, 0)", (("i32", (4096,)),), ("i32", (4096,)), "integral"
        yield Job(recipes.expression, params, {"num_warps": count})


# What only moves elements: the text, shapes of the operands, shape of the result.
MOVES: tuple[tuple[str, tuple[tuple[int, ...], ...], tuple[int, ...]], ...] = (
    ("tl.trans(a)", ((32, 64),), (64, 32)),
    ("tl.permute(a, (2, 0, 1))", ((4, 8, 16),), (16, 4, 8)),
    ("tl.permute(a, (1, 0, 2))", ((4, 8, 16),), (8, 4, 16)),
    ("tl.reshape(a, (16, 64))", ((8, 128),), (16, 64)),
    ("tl.ravel(tl.trans(a))", ((8, 32),), (256,)),
    ("tl.join(a, b)", ((16, 8), (16, 8)), (16, 8, 2)),
    ("tl.interleave(a, b)", ((16, 8), (16, 8)), (16, 16)),
    ("tl.cat(a, b)", ((64,), (64,)), (128,)),
    ("tl.flip(a, 0)", ((16, 32),), (16, 32)),
    ("tl.flip(a, 1)", ((16, 32),), (16, 32)),
    ("tl.split(tl.reshape(a, (16, 8, 2)))[1]", ((16, 16),), (16, 8)),
    ("a[:, None] + tl.trans(b)[None, :]", ((1, 64), (32, 1)), (1, 1, 1, 1)),
    ("tl.broadcast_to(a, (16, 32))", ((16, 1),), (16, 32)),
    ("tl.broadcast_to(tl.trans(a), (16, 32))", ((32, 1),), (16, 32)),
    ("tl.trans(tl.trans(a) * 2)", ((64, 16),), (64, 16)),
)


def _moves() -> Iterator[Job]:
    warps = cycle(WARPS)
    for text, operands, result in MOVES:
        if result == (1, 1, 1, 1):
            continue
        for type in ("i8", "fp16", "fp32", "i64"):
            inputs = tuple((type, shape) for shape in operands)
            kind = "integral" if "*" in text else "specials"
            yield Job(
                recipes.expression, (text, inputs, (type, result), kind),
                {"num_warps": next(warps)},
            )  # fmt: skip
    for count, axis in product(WARPS, (0, 1)):
        inputs = (("fp32", (16, 32)), ("i32", (16, 32)))
        text = f"tl.gather(a, b & 15, {axis})"
        yield Job(recipes.expression, (text, inputs, ("fp32", (16, 32))), {"num_warps": count})


def _arithmetic() -> Iterator[Job]:
    for type in ARITHMETIC:
        operators = ("+", "-", "*", "//", "%", "&", "|", "^") if type in INTEGERS else "+-*"
        for operator in operators:
            inputs = ((type, (512,)), (type, (512,)))
            yield Job(recipes.expression, (f"a {operator} b", inputs, (type, (512,))))
        for call in ("tl.minimum(a, b)", "tl.where(a < b, a, b)", "-a", "tl.abs(a)"):
            inputs = ((type, (512,)),) * (2 if "b" in call.replace("abs", "") else 1)
            yield Job(recipes.expression, (call, inputs, (type, (512,))))
    for type in ("fp32", "fp64"):
        for call in ("tl.div_rn(a, b)", "tl.sqrt_rn(a)", "tl.floor(a)", "tl.ceil(a)"):
            if type == "fp64" and call.startswith(("tl.div", "tl.sqrt")):
                continue
            inputs = ((type, (512,)),) * (2 if "b" in call else 1)
            yield Job(recipes.expression, (call, inputs, (type, (512,))))


def _casts() -> Iterator[Job]:
    names = {"i": "tl.int", "u": "tl.uint", "f": "tl.float", "b": "tl.bfloat16"}

    def in_language(type: str) -> str:
        if type == "bf16":
            return names["b"]
        return names[type[0]] + type.removeprefix("fp").lstrip("iu")

    for source, to in product((*ARITHMETIC, *NARROW_FLOATS), repeat=2):
        narrow = source in NARROW_FLOATS or to in NARROW_FLOATS
        if source != to and not (narrow and (source in INTEGERS or to in INTEGERS)):
            text = f"a.to({in_language(to)})"
            yield Job(recipes.expression, (text, ((source, (256,)),), (to, (256,))))
    # Whole words of each thread, which are converted together.
    for source, to in product(("i8", "u8", "i16", "u16", *NARROW_FLOATS), FLOATS):
        if to != "fp64":
            text = f"a.to({in_language(to)})"
            yield Job(recipes.expression, (text, ((source, (2048,)),), (to, (2048,))))
    for source, to, rounding in product(FLOATS, NARROW_FLOATS, ("rtne", "rtz")):
        yield Job(recipes.to_fp8, (source, to, rounding))


FUNCTIONS = ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "sigmoid")


def _functions() -> Iterator[Job]:
    for name, type in product(FUNCTIONS, ("fp32", "fp64")):
        kind = "positive" if name in ("log", "log2", "sqrt", "rsqrt") else "specials"
        if name in ("sin", "cos"):
            kind = "positive"
        bound = 2e-6 if type == "fp32" else 1e-13
        params = f"tl.{name}(a)", ((type, (1024,)),), (type, (1024,)), kind, bound
        yield Job(recipes.expression, params)


def _assembly() -> Iterator[Job]:
    warps = cycle(WARPS)
    for code, constraints, type, to, pack, expected in (
        ("shl.b32 $0, $1, 3;", "=r,r", "i32", "i32", 1, "x << 3"),
        ("not.b32 $0, $1;", "=r,r", "u8", "u8", 4, "~x"),
        ("not.b64 $0, $2; not.b64 $1, $3;", "=l,=l,l,l", "i64", "i64", 2, "~x"),
        ("cvt.rn.f32.s32 $0, $1;", "=f,r", "i32", "fp32", 1, "x.astype(np.float32)"),
        ("neg.f16x2 $0, $1;", "=r,r", "fp16", "fp16", 2, "-x"),
        ("abs.f64 $0, $1;", "=d,d", "fp64", "fp64", 1, "np.abs(x)"),
    ):
        for _ in WARPS:
            params = code, constraints, type, to, pack, expected
            yield Job(recipes.assembly, params, {"num_warps": next(warps)})


def _libdevice() -> Iterator[Job]:
    """Exact functions to the bit; the others, but for the fast ones, closely."""
    types = {"b": "i1", "f": "fp32", "d": "fp64", "i": "i32", "u": "u32", "l": "i64", "m": "u64"}
    for name in SIGNATURES:
        for operands, result in forms(name):
            if name.startswith("fast_"):
                continue
            letters = list("abcd"[: len(operands)])
            if name in ("jn", "yn"):
                letters[0] = "a & 15"  # the order, of which they take time
            text = f"tl.extra.libdevice.{name}({', '.join(letters)})"
            bound = None if name in EXACT_NAMES else 4e-6 if result == "f" else 1e-12
            inputs = tuple((types[o], (512,)) for o in operands)
            params = text, inputs, (types[result], (512,)), "specials", bound
            yield Job(recipes.expression, params)


def _fast() -> Iterator[Job]:
    """Fast functions, with relative errors where their values are not near 0."""
    texts = (
        *("fast_expf(a)", "fast_exp10f(a)", "fast_log2f(a + 2)", "fast_logf(a + 2)"),
        *("fast_log10f(a + 2)", "fast_powf(a, 1.5)", "fast_dividef(a, 3.0)", "fast_tanhf(a)"),
        *("fast_sinf(a / (a + 1)) / a", "fast_cosf(a / (a + 1))"),
    )
    for text in texts:
        name, _, rest = text.partition("(")
        bound = 2e-3 if name == "fast_tanhf" else 2e-5
        params = f"tl.extra.libdevice.{name}({rest}", (("fp32", (512,)),), ("fp32", (512,))
        yield Job(recipes.expression, (*params, "positive", bound))


def _names() -> Iterator[Job]:
    """Every name of the language, but for assembly, which the interpreter does not support."""
    warps = cycle(WARPS)
    for name in sorted(USES.keys() - {"inline_asm_elementwise"}):
        yield Job(recipes.use, (name,), {"num_warps": next(warps)})


def _control() -> Iterator[Job]:
    yield Job(recipes.collatz, (40, 33))
    for stages, warps in product(STAGES, (1, 4)):
        for outer, rows in ((1, 0), (1, 1), (2, 2), (3, 9)):
            yield Job(recipes.nest, (outer, rows, 256, stages), {"num_warps": warps})
    for grid in ((1, 1, 1), (3, 2, 4), (0, 1, 1), (3, 0, 2), (1, 70, 3)):
        yield Job(recipes.places, grid)


def _rules() -> Iterator[Job]:
    for warps in (1, 4):
        for size, n in ((32, 3), (256, 2), (512, 9)):
            yield Job(recipes.streams, (size, 10, n), {"num_warps": warps})
        for rows, columns in ((1, 32), (7, 64), (20, 512)):
            yield Job(recipes.first_above, (rows, columns, 0.97), {"num_warps": warps})
        for size, i in ((8, 2), (16, 15), (64, 33)):
            yield Job(recipes.cut, (size, i), {"num_warps": warps})


def _memory() -> Iterator[Job]:
    warps = cycle(WARPS)
    for type in (*ARITHMETIC, *NARROW_FLOATS):
        yield Job(recipes.gather, (type, 1003, 256), {"num_warps": next(warps)})
    for kind, type in product(("add", "max", "min", "and", "or", "xor"), ("i32", "u32", "i64")):
        yield Job(recipes.atomic, (kind, type, 3001, 7), {"num_warps": next(warps)})
    for kind, type in (*product(("add",), FLOATS), ("max", "fp32"), ("min", "fp32")):
        yield Job(recipes.atomic, (kind, type, 1001, 3), {"num_warps": next(warps)})
    for type in ("i32", "i64", "u32", "u64"):
        yield Job(recipes.exchange, (type, 3, 256), {"num_warps": next(warps)})


def _examples() -> Iterator[Job]:
    for columns, warps in product((1, 31, 256, 781, 4000), WARPS):
        yield Job(recipes.softmax, ("fp32", 5, columns), {"num_warps": warps})
    for type in ("fp16", "bf16"):
        yield Job(recipes.softmax, (type, 9, 1000))
    for n in (1, 1023, 5000):
        yield Job(recipes.vector_add, (n,))
        yield Job(recipes.dropout, (n, 0.3, 7))
    for type, columns, warps in product(("fp32", "fp16"), (1, 100, 2048), (1, 4, 16)):
        yield Job(recipes.layer_norm_forward, (type, 5, columns), {"num_warps": warps})
    for columns, warps, stages in product((64, 1000), (1, 4, 16), (1, 2, 3)):
        options = {"num_warps": warps, "num_stages": stages}
        yield Job(recipes.layer_norm_backward, (19, columns, 4), options)
    for warps in (4, 8, 16):
        yield Job(recipes.sum_shares, (300,), {"num_warps": warps})
    for warps in WARPS:
        yield Job(recipes.giou_sum, (9000,), {"num_warps": warps})
        for type in ("fp32", "fp16"):
            yield Job(recipes.giou, (type, 3, 100), {"num_warps": warps})
    for warps, stages in product((4, 8), STAGES):
        options = {"num_warps": warps, "num_stages": stages}
        yield Job(products.example_matmul, (65, 130, 77, (64, 64, 32)), options)


ORDERS = ("nn", "nt", "tn", "tt")
UNEVEN, EVEN = (200, 136, 104), (256, 256, 192)  # EVEN is made of whole tiles


def _products() -> Iterator[Job]:
    """Types, orders, tiles, warps and stages: each pair of these meets in some case."""
    for orders, stages, warps in product(ORDERS, STAGES, WARPS):
        # Few warps have small tiles: large ones would be all spills.
        large = (128, 64, 64) if warps >= 4 else (16, 64, 64)
        for shape, tile in ((EVEN, (64, 64, 32)), (UNEVEN, large)):
            options = {"num_warps": warps, "num_stages": stages}
            yield Job(products.matmul, ("fp16", "fp32", orders, shape, tile), options)
    tiles = ((16, 16, 32), (32, 128, 32), (64, 32, 128), (128, 128, 64), (64, 256, 32))
    stages, warps = cycle(STAGES), cycle((4, 8))
    kinds = (("fp16", "fp16"), ("bf16", "bf16"), ("i8", "i32"), ("fp8e4nv", "fp16"),
             ("fp8e5", "fp32"), ("fp32", "fp32"))  # fmt: skip
    for (type, out), orders, tile in product(kinds, ORDERS, tiles):
        options = {"num_warps": next(warps), "num_stages": next(stages)}
        if type == "fp32" and tile == (128, 128, 64):
            tile = 128, 128, 32  # of which five stages fit
        for shape in (EVEN, UNEVEN):
            yield Job(products.matmul, (type, out, orders, shape, tile), options)
    for type, orders in product(("fp8e4b8", "fp8e5b16", "fp8e4b15"), ORDERS):
        yield Job(products.matmul, (type, "fp32", orders, UNEVEN, (64, 64, 32)), {"num_warps": 4})
    for precision, orders in product(("ieee", "tf32x3", "bf16x3", "bf16x6"), ORDERS):
        params = "fp32", "fp32", orders, UNEVEN, (32, 32, 32), precision
        yield Job(products.matmul, params, {"num_warps": 4})
    for steps in range(6):  # fewer steps than stages
        shape = 64, 64, 64 * steps
        yield Job(products.matmul, ("fp16", "fp32", "nn", shape, (64, 64, 64)), {"num_stages": 5})


def _dots() -> Iterator[Job]:
    for type, acc in (("fp16", "fp32"), ("fp16", "fp16"), ("bf16", "fp32"), ("i8", "i32"),
                      ("fp8e5", "fp32"), ("fp8e4nv", "fp16"), ("fp32", "fp32")):  # fmt: skip
        for shape, warps in product(((16, 16, 32), (64, 32, 64), (128, 64, 32)), WARPS):
            yield Job(products.dot, (type, acc, shape), {"num_warps": warps})


def _loops_of_products() -> Iterator[Job]:
    """Shared memory that is overwritten while other warps may still be reading."""
    for stages, warps in product(STAGES, WARPS):
        options = {"num_warps": warps, "num_stages": stages}
        for steps in (1, 2, 7):
            yield Job(products.persistent, (9, steps, 64, 64), options)
            yield Job(products.persistent, (9, steps, 64, 64, 2, True), options)
        for steps in (1, 20):
            yield Job(products.computed, (steps, 128, 64), options)
            yield Job(products.biased, (steps, 64, 64), options)
            yield Job(products.packed, (steps, 64, 128, 32), options)
            yield Job(products.weighted, ("i8", steps, 64, 64, "n"), options)
            yield Job(products.weighted, ("fp16", steps, 64, 128, "k"), options)


def _attentions() -> Iterator[Job]:
    for d, causal, stages in product((64, 128), (False, True), STAGES):
        for tile, warps in (((64, 32), 4), ((128, 64), 8), ((64, 64), 8)):
            params = d, 256, 256, tile, causal
            yield Job(products.attention, params, {"num_warps": warps, "num_stages": stages})
    for d, causal, stages in product((64, 128), (False, True), STAGES):
        for tile, warps in (((32, 64), 4), ((64, 128), 4), ((64, 128), 8)):
            params = d, 384, tile, causal, 2
            options = {"num_warps": warps, "num_stages": stages}
            yield Job(products.attention_gradients, params, options)


def _delays() -> Iterator[Job]:
    """Protocols of which each step comes sooner or later than usual."""
    jobs = [*_loops_of_products(), *_attentions(), *_products()]
    for seed, job in enumerate(jobs[::4], 1):
        yield Job(job.recipe, job.params, {**job.options, "random_delays": seed})


def _unique(jobs: Iterator[Job]) -> list[Job]:
    return list({job.name: job for job in jobs}.values())


FAMILIES = {
    "elementwise": _unique(_elementwise()),
    "copies": _unique(_copies()),
    "reductions": _unique(_reductions()),
    "scans": _unique(_scans()),
    "moves": _unique(_moves()),
    "arithmetic": _unique(_arithmetic()),
    "casts": _unique(_casts()),
    "functions": _unique(_functions()),
    "assembly": _unique(_assembly()),
    "libdevice": _unique(_libdevice()),
    "fast": _unique(_fast()),
    "names": _unique(_names()),
    "control": _unique(_control()),
    "rules": _unique(_rules()),
    "memory": _unique(_memory()),
    "examples": _unique(_examples()),
    "more examples": _unique(examples.jobs()),
    "products": _unique(_products()),
    "dots": _unique(_dots()),
    "loops of products": _unique(_loops_of_products()),
    "attentions": _unique(_attentions()),
    "delays": _unique(_delays()),
    "sorts": _unique(shapes.sorts()),
    "functions of elements": _unique(shapes.functions_of_elements()),
    "uneven tiles": _unique(shapes.uneven()),
}
JOBS: list[Job] = [job for jobs in FAMILIES.values() for job in jobs]


@pytest.fixture(scope="module")
def ahead(pool: Executor) -> Ahead:
    return Ahead(pool, JOBS, AHEAD)


@pytest.mark.gpu
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_kernel_agrees(job: Job, ahead: Ahead) -> None:
    run(ahead.get(job))


def _samples() -> Sequence[Job]:
    """A few jobs of each family."""
    return [job for jobs in FAMILIES.values() for job in jobs[:: max(1, len(jobs) // 3)][:3]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("job", _samples(), ids=lambda job: job.name)
def test_job_can_be_prepared(job: Job) -> None:
    """Without a GPU: it compiles, and the expected results are the interpreter's."""
    prepared = job.prepare()
    assert prepared.kernel.asm["cubin"]
    assert any(isinstance(e, np.ndarray) and e.size for e in prepared.expected)


# -- through launches as users write them ---------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("key", [key for key, family in work.FAMILIES.items() if family.check])
def test_benchmark_kernels_give_what_torch_gives(key: str) -> None:
    torch.manual_seed(0)
    setting = Setting("cuda", "check")
    for name, planned in work.FAMILIES[key].plan(setting).items():
        row = Row(work.FAMILIES[key].title, name)
        planned(Bench(setting, ("tilewright",), None, lambda who: None), row)
        outcome = row.outcomes["tilewright"]
        assert not outcome.failures, f"{name}: {outcome.failures}"


@tw.jit
def far_kernel(x_ptr, out_ptr, start, BLOCK: tl.constexpr):
    index = start.to(tl.int64) + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.load(x_ptr + index) + 1)


@pytest.mark.gpu
def test_offsets_beyond_2_to_the_31() -> None:
    n = 2**31 + 4096
    x = torch.zeros(n, dtype=torch.int8, device="cuda")
    x[-1024:] = torch.arange(1024, device="cuda").to(torch.int8)
    out = torch.zeros_like(x)
    far_kernel[(1,)](x, out, n - 1024, BLOCK=1024)
    assert torch.equal(out[-1024:], x[-1024:] + 1)
    assert not out[:-1024].any()


@pytest.mark.gpu
def test_strided_views_of_torch() -> None:
    whole: Any = torch.randn(70, 90, device="cuda")
    x = whole[3:67:2, 5:85:3].T
    out = torch.empty(x.shape, device="cuda")
    grid = tw.cdiv(x.shape[0], 16), tw.cdiv(x.shape[1], 32)
    recipes.copy2d_kernel[grid](x, out, *x.shape, *x.stride(), *out.stride(), ROWS=16, COLUMNS=32)
    assert torch.equal(out, x)


@pytest.mark.gpu
def test_more_shared_memory_than_available() -> None:
    a: Any = torch.zeros(256, 256, dtype=torch.float16, device="cuda")
    kernel: Any = recipes.kernel_at("benchmarks/gpu/kernels/matmul.py::matmul_kernel")
    tile = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 512, "GROUP": 1, "PRECISION": "tf32"}
    with pytest.raises(tw.OutOfResources, match="shared memory") as found:
        kernel[(2,)](a, a, torch.empty_like(a), 256, 256, 256, 256, 1, 256, 1, 256, 1,
                     **tile, num_warps=8)  # fmt: skip
    assert found.value.required > found.value.limit
