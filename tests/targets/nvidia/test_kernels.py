"""The kernels of the examples and the benchmarks, compiled for an H200: no GPU is needed.

Each is assembled over numbers of warps and stages. What is looked at: registers and spills, shared
memory, the instructions that make it fast, and that the same source gives the same code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.gpu import compile_time
from benchmarks.gpu.compile_time import Kernel
from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import lower
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.nvidia.advice import advice_in
from tilewright.targets.nvidia.assemble import Ptxas, Request, find_assembler
from tilewright.targets.nvidia.best_cubin import FEW_SPILLS
from tilewright.targets.nvidia.features import processor
from tilewright.targets.nvidia.occupancy import MOST_TO_SAVE
from tilewright.targets.protocol import GPUTarget
from tilewright.tools.load import import_script, kernels_of, source_of

ROOT = Path(__file__).parents[3]
HOPPER = GPUTarget("cuda", 90, 32)
LIMIT = processor(90).shared_limit
REGISTERS = 65536  # of a CTA's threads together

EXAMPLES = (
    "attention", "convolution", "custom_attention", "dropout", "equalize", "fused_softmax",
    "giou_loss", "layer_norm", "learned_norm", "matmul", "quantized_matmul", "segmented_scan",
    "top_k", "vector_add",
    *(["jax_training"] if find_spec("jax") else []),
)  # fmt: skip
HALF, SINGLE, INT = "*fp16:16", "*fp32:16", "i32:16"


def _kernel(place: str, types: str, warps: int, **constants: Any) -> Kernel:
    return Kernel(place, types, constants, {"num_warps": warps})


BENCHMARKS = {
    **compile_time.KERNELS,
    "copy": _kernel("elementwise.copy_kernel", f"*bf16:16 *bf16:16 {INT}", 4, BLOCK=2048),
    "giou": _kernel("giou.giou_kernel", f"{SINGLE} {SINGLE} {SINGLE} *u8:16 {INT}", 4,
                    EPSILON=1e-6, BLOCK=256),
    "giou parts": _kernel("giou.partial_loss_kernel", f"{SINGLE} {SINGLE} {SINGLE} {SINGLE} {INT}",
                          4, EPSILON=1e-6, BLOCK=512),
    "giou mean": _kernel("giou.mean_loss_kernel", f"{SINGLE} {SINGLE} {SINGLE} {INT}", 4,
                         PARTS=1024),
    "five arguments": _kernel("launch.five_arguments_kernel", f"{SINGLE} {SINGLE} {SINGLE} i32 i32",
                              4, BLOCK=128),
    "nineteen arguments": _kernel("launch.nineteen_arguments_kernel",
                                  " ".join([SINGLE] * 8 + ["i32"] * 9 + ["fp32"] * 2), 4,
                                  BLOCK=128),
    "layer norm backward": _kernel("layer_norm.backward_kernel",
                                   " ".join([HALF] * 4 + [SINGLE] * 4 + [INT] * 3), 8, BLOCK=4096),
    "layer norm parts": _kernel("layer_norm.sum_parts_kernel",
                                f"{SINGLE} {SINGLE} {HALF} {HALF} {INT} {INT}", 4,
                                PARTS=32, BLOCK=128),
    "softmax of rows": _kernel("softmax.rows_kernel", " ".join([SINGLE] * 2 + [INT] * 4), 4,
                               ROWS=4, BLOCK=256),
    "softmax of long rows": _kernel("softmax.long_row_kernel", " ".join([SINGLE] * 2 + [INT] * 3),
                                    16, BLOCK=8192),
    "attention delta": _kernel("attention_backward.delta_kernel", f"{HALF} {HALF} {SINGLE}", 4,
                               D=64, BLOCK=64),
    "attention keys": _kernel("attention_backward.keys_kernel",
                              " ".join([HALF] * 4 + [SINGLE] * 2 + [HALF] * 2 + [INT])
                              + " fp32 fp32", 8, D=64, BLOCK_M=64, BLOCK_N=128, CAUSAL=True),
    "attention gradients": _kernel("attention_backward.gradients_kernel",
                                   " ".join([HALF] * 4 + [SINGLE] * 3 + [HALF] * 2 + [INT])
                                   + " fp32 fp32", 8, D=128, BLOCK_M=64, BLOCK_N=128,
                                   CAUSAL=False),
    "sums to attention's gradient": _kernel("attention_backward.scale_kernel",
                                            f"{SINGLE} {HALF} fp32", 4, BLOCK=1024),
    "attention queries": _kernel("attention_backward.queries_kernel",
                                 " ".join([HALF] * 4 + [SINGLE] * 2 + [HALF, INT, "fp32", "fp32"]),
                                 8, D=64, BLOCK_M=128, BLOCK_N=64, CAUSAL=True),
}  # fmt: skip


@cache
def sources() -> dict[str, tuple[ASTSource, dict[str, int]]]:
    """Every kernel by name, with its types and the options that it is made for."""
    found: dict[str, tuple[ASTSource, dict[str, int]]] = {}
    for stem in EXAMPLES:
        module = import_script(ROOT / "examples" / f"{stem}.py")
        kernels = kernels_of(module)
        for name, (signature, constants) in module.__tilewright_signatures__.items():
            if stem == "matmul":  # the example's tiles are made for a CPU
                constants = {**constants, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}
            found[f"{stem}.{name}"] = source_of(kernels[name], signature, constants), {}
    for name, kernel in BENCHMARKS.items():
        found[name] = compile_time.source("tilewright", kernel), kernel.options
    return found


NAMES = [*(f"{stem}.py" for stem in EXAMPLES), *BENCHMARKS]


def names_of(name: str) -> list[str]:
    """The kernels of an example, or the one kernel of a benchmark."""
    stem = name.removesuffix(".py")
    return [key for key in sources() if key.startswith(f"{stem}.") and name.endswith(".py")] or [
        name
    ]


def compiled(name: str, **options: int) -> CompiledKernel:
    source, defaults = sources()[name]
    return compile(source, HOPPER, {**defaults, **options})


def resources(kernel: CompiledKernel) -> tuple[int, int, int]:
    """Registers of a CTA, spills of a thread, bytes of shared memory."""
    threads = kernel.metadata.num_warps * 32
    return kernel.n_regs * threads, kernel.n_spills, kernel.metadata.shared


@pytest.fixture(autouse=True)
def needs_assembler() -> None:
    if find_assembler() is None:
        pytest.skip("needs ptxas or nvJitLink")


def test_every_kernel_is_tested() -> None:
    files = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"report"}
    assert files == {*EXAMPLES, "jax_training"}
    folder = ROOT / "benchmarks" / "gpu" / "kernels"
    written = {
        f"{path.stem}.{name}"
        for path in folder.glob("*.py")
        for name in re.findall(r"^def (\w+_kernel)\(", path.read_text("utf-8"), re.M)
    }
    assert written == {kernel.place for kernel in BENCHMARKS.values()}


@pytest.mark.parametrize("name", NAMES)
def test_kernel_in_its_intended_configuration_spills_nothing(name: str) -> None:
    for each in names_of(name):
        kernel = compiled(each)
        registers, spills, shared = resources(kernel)
        most = FEW_SPILLS * kernel.n_regs if "minnctapersm" in kernel.asm["ptx"] else 0
        assert spills <= most, each  # a few, if that lets one more block be resident
        assert registers <= REGISTERS
        assert shared <= LIMIT


def test_attention_of_four_warps_runs_on_eight() -> None:
    """Results, and the operand that is computed from one, take 224 registers of a thread."""
    kernel = compiled("attention 128 x 64, D 128, causal", num_warps=4)
    assert kernel.metadata.num_warps == 4
    assert kernel.metadata.launch_warps >= 8
    assert kernel.n_spills == 0


def test_operand_of_two_loops_is_shared_once() -> None:
    """The queries of causal attention, which would else be kept in registers for the second loop:
    32 of each thread, with which a second program was not resident."""
    kernel = compiled("attention 128 x 64, D 128, causal", tensor_copies=False)
    assert kernel.asm["ttgir"].count("gpu.share") == 1


# Kernels in which ptxas waits for a product earlier than the code does (13.0.88). Products that are
# serialised fail every test that compiles them: see `tests/conftest.py`.
# C7508: it needs so few registers that it leaves them as they are.
WAITS = {"attention keys": {"C7508"}}


@pytest.mark.parametrize("name", [n for n in BENCHMARKS if "matmul" in n or "attention" in n])
def test_kernel_in_its_intended_configuration_waits_as_recorded(name: str) -> None:
    assembler = find_assembler()
    if not isinstance(assembler, Ptxas):
        pytest.skip("needs ptxas")
    ptx = compiled(name).asm["ptx"]
    log = assembler.assemble(ptx, Request(processor(90).llvm_cpu)).log
    assert {advice.code for advice in advice_in(log, ptx)} == WAITS.get(name, set())


FREE = [n for n in NAMES if "matmul" not in n and "attention" not in n]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "warps"), [(n, (1, 2, 8, 16)[i % 4]) for i, n in enumerate(FREE)])
def test_any_number_of_warps(name: str, warps: int) -> None:
    """It is assembled, with a number of registers that a CTA of its warps can have."""
    for each in names_of(name):
        registers, _, shared = resources(compiled(each, num_warps=warps))
        assert registers <= REGISTERS
        assert shared <= LIMIT


# -- instructions ---------------------------------------------------------------------------------


class Expected(NamedTuple):
    """What the PTX of a kernel has, and what it has not, as patterns."""

    name: str
    has: tuple[str, ...]
    lacks: tuple[str, ...] = ()


VECTORS = r"ld\.global[.\w:]*\.v4\.b32", r"st\.global[.\w:]*\.v4\.b32"
COPIES = (
    r"cp\.async\.bulk\.tensor\.[23]d\.shared::cluster\.global\.tile",
    r"mbarrier\.try_wait\.parity",
)
SCALAR_LOADS = r"ld\.global[.\w:]*\.b(8|16)\b"

EXPECTED = (
    Expected("add 1024", VECTORS, (r"shfl", r"bar\.sync")),
    Expected("copy", VECTORS, (SCALAR_LOADS,)),
    Expected("softmax 4096", (*VECTORS, r"shfl\.sync\.bfly", r"ex2\.approx"), (r"shfl\.sync\.i",)),
    Expected("softmax of rows", (*VECTORS, r"shfl\.sync\.bfly")),
    Expected("layer norm 4096", (*VECTORS, r"shfl\.sync\.bfly"), (SCALAR_LOADS,)),
    Expected(
        "matmul 128 x 256 x 64",
        (r"wgmma\.mma_async\.sync\.aligned\.m64n256k16\.f32\.f16\.f16", *COPIES,
         r"wgmma\.wait_group\.sync\.aligned 1"),
        (r"mma\.sync\.aligned\.m16n8", r"cp\.async\.ca"),
    ),
    Expected(
        "attention 128 x 64, D 128, causal",
        (r"wgmma\.mma_async\.sync\.aligned\.m64n64k16", r"ex2\.approx", *COPIES),
        (r"mma\.sync\.aligned\.m16n8",),
    ),
    Expected("attention keys", (r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16",)),
    Expected("attention queries", (r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16",)),
)  # fmt: skip


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda e: e.name)
def test_instructions(expected: Expected) -> None:
    text = compiled(expected.name).asm["ptx"]
    missing = [pattern for pattern in expected.has if not re.search(pattern, text)]
    present = [pattern for pattern in expected.lacks if re.search(pattern, text)]
    assert not missing
    assert not present


# -- products -------------------------------------------------------------------------------------

TYPES = {
    "fp16": ("*fp16:16", "*fp16:16"),
    "bf16": ("*bf16:16", "*bf16:16"),
    "i8": ("*i8:16", "*i32:16"),
    "fp8e4nv": ("*fp8e4nv:16", "*fp16:16"),
    "fp32": ("*fp32:16", "*fp32:16"),
    "fp64": ("*fp64:16", "*fp64:16"),
}


def matmul(
    type: str,
    tile: tuple[int, int, int],
    warps: int,
    stages: int,
    orders: str = "nn",
    gpu: GPUTarget = HOPPER,
) -> CompiledKernel:
    """A product with everything aligned; orders of memory as in ``nn`` or ``tn``."""
    operand, result = TYPES[type]
    strides = ["i32:16 1" if order == "n" else "1 i32:16" for order in orders]
    types = f"{operand} {operand} {result} {' '.join([INT] * 3)} {' '.join(strides)} i32:16 1"
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True))
    kernel = Kernel("matmul.matmul_kernel", types, {**constants, "GROUP": 8, "PRECISION": "tf32"},
                    {"num_warps": warps, "num_stages": stages})  # fmt: skip
    return compile(compile_time.source("tilewright", kernel), gpu, kernel.options)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5])
def test_stages_of_a_pipelined_product(stages: int) -> None:
    """Two operands of 128 x 64 halves in each slot. Without stages ahead nothing is copied."""
    kernel = matmul("fp16", (128, 128, 64), 4, stages)
    assert kernel.metadata.shared >= stages * 2 * 128 * 64 * 2
    barriers = 2 * 8 * 8  # of all slots, also those that launches of few programs add
    conversion = 4 * 1024  # of the result, by each warp
    slots = max(stages, 3)  # three leave room for a second program
    needed = slots * 2 * 128 * 64 * 2 + barriers + conversion
    memory = 227 * 1024  # of a multiprocessor; what no other program can use becomes slots
    assert kernel.metadata.shared <= (needed if 2 * needed <= memory else memory)
    assert ("cp.async" in kernel.asm["ptx"]) == (stages > 1)
    # If at all for one more CTA, before which it had more registers.
    assert kernel.n_spills <= FEW_SPILLS * kernel.n_regs / (1 - MOST_TO_SAVE)


SIMILARITIES = """
def kernel(q, d, best, n, REDUCED: tl.constexpr):
    q, d = tl.multiple_of(q, 16), tl.multiple_of(d, 16)
    rows, columns = tl.arange(0, 32), tl.arange(0, 128)
    x = tl.load(q + rows[:, None] * 128 + columns)
    most = tl.full([32], float("-inf"), tl.float32)
    sums = tl.zeros([32, 128], tl.float32)
    for i in range(0, n, 128):
        y = tl.load(d + (i + columns[:, None]) * 128 + columns)
        if REDUCED:
            most = tl.maximum(most, tl.max(tl.dot(x, y.T), 1))
        else:
            sums = tl.dot(x, y.T, sums)
    tl.store(best + rows, most + tl.sum(sums, 1))
"""


def test_loops_that_reduce_their_products_have_fewer_stages_for_a_third_program() -> None:
    slot = 128 * 128 * 2
    shared: dict[bool, int] = {}
    for reduced in (False, True):
        types = {"q": "*fp16", "d": "*fp16", "best": "*fp32", "n": "i32"}
        module = build(kernel_from(SIMILARITIES), types, {"REDUCED": reduced})
        shared[reduced] = lower(module, num_warps=4, num_stages=3).metadata["shared"]
    assert 2 * slot <= shared[True] < 3 * slot <= shared[False]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("type", "step"), [("fp16", 16), ("bf16", 16), ("i8", 32), ("fp8e4nv", 32), ("fp32", 8)]
)
@pytest.mark.parametrize("orders", ["nn", "nt", "tn"])
def test_types_and_orders_of_a_product(type: str, step: int, orders: str) -> None:
    text = matmul(type, (64, 64, 64), 4, 3, orders).asm["ptx"]
    assert f"wgmma.mma_async.sync.aligned.m64n64k{step}." in text
    assert "cp.async" in text
    # Of operands that lie across K, the left one (in "nn" that of the transposed product) is loaded
    # to registers, bytes by transposing loads of matrices.
    turned = step != 16 and orders != "nt"
    assert ("ldmatrix" in text and ".trans." in text) == (turned and step == 32)
    assert bool(re.search(r"ld\.shared\.v2.*wgmma", text, re.DOTALL)) == (turned and step == 8)


@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("warps", [1, 2])
def test_product_of_few_warps(warps: int, orders: str) -> None:
    """Operands come from shared memory four matrices at a time, transposed where they lie so."""
    text = matmul("fp16", (64, 64, 32), warps, 3, orders).asm["ptx"]
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in text
    assert "wgmma" not in text
    assert "cp.async" in text
    found = set(re.findall(r"ldmatrix\.sync\.aligned\.(\S+)\.shared", text))
    across = {"n": "m8n8.x4.trans", "t": "m8n8.x4"}
    assert found == {{"n": "m8n8.x4", "t": "m8n8.x4.trans"}[orders[0]], across[orders[1]]}
    products = text.count("mma.sync.aligned")
    assert text.count("ldmatrix.") <= products


@pytest.mark.parametrize(
    ("tile", "warps", "width"),
    [
        ((64, 256, 64), 4, 256),
        ((128, 256, 64), 8, 256),
        ((64, 128, 64), 8, 64),
        ((256, 64, 64), 8, 64),
    ],
)
def test_width_of_an_instruction(tile: tuple[int, int, int], warps: int, width: int) -> None:
    kernel = matmul("fp16", tile, warps, 3)
    found = set(re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16", kernel.asm["ptx"]))
    assert found == {str(width)}
    assert kernel.n_spills == 0


# -- the same code each time ----------------------------------------------------------------------

SCRIPT = """
import hashlib, json
from tests.targets.nvidia.test_kernels import DETERMINISTIC, compiled
texts = {name: compiled(name).asm["ptx"] for name in DETERMINISTIC}
print(json.dumps({name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}))
"""
DETERMINISTIC = ("softmax 4096", "layer norm backward", "matmul 128 x 256 x 64", "attention keys")


def test_another_process_makes_the_same_code() -> None:
    """With another seed of the hashes of strings, on which the order of sets depends."""
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TILEWRIGHT_ALWAYS_COMPILE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours = {
        name: hashlib.sha256(compiled(name).asm["ptx"].encode()).hexdigest()
        for name in DETERMINISTIC
    }
    assert json.loads(done.stdout) == ours
