"""Kernels of programs in functions for torch.compile, in processes of their own."""

from __future__ import annotations

import pytest

from tests.interop.forked import output

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

START = """
import tilewright, torch
tilewright.torch.enable()
from torch._inductor import config
config.compile_threads = 1
config.triton.autotune_pointwise = False
import triton, triton.language as tl
"""


def _output(code: str) -> str:
    """What a program prints."""
    pytest.importorskip("torch", minversion="2.9")
    return output(START + code)


MUTATIONS = """
from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors
from torch._subclasses.fake_tensor import FakeTensorMode

@triton.jit
def move(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(n):
        tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)
        x += BLOCK
        out += BLOCK
    if n > 8:
        tl.atomic_add(y, 1.0)

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))

with FakeTensorMode():
    x, y, out = (torch.empty(64) for _ in range(3))
for kernel in (move, add):
    found = identify_accessed_tensors(kernel, dict(x=x, y=y, out=out, n=4, BLOCK=16), {})
    for deps in (found.read_writes.reads, found.read_writes.writes):
        print([dep.name for dep in deps], end=" ")
    print(found.can_fuse_epilogue)
"""


def test_mutated_arguments() -> None:
    assert _output(MUTATIONS).splitlines() == [
        "['x', 'y'] ['y', 'out'] False",
        "['x', 'y'] ['out'] True",
    ]


KERNELS = """
from triton.language import load, maximum
from triton.language.extra.libdevice import tanh

@triton.jit
def add_tanh(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = maximum(tanh(load(x + i, mask=i < n)), -2.0) + tl.load(y + i, mask=i < n)
    tl.store(out + i, value, mask=i < n)

def plain(x, y):
    out = torch.empty_like(x)
    add_tanh[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out.relu()

@torch.library.triton_op("tests::add_tanh", mutates_args={})
def operator(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = torch.library.wrap_triton(add_tanh)
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out

x, y = torch.randn(2, 1000)
for f in (plain, lambda x, y: 2 * operator(x, y)):
    for n in (1000, 500, 300):  # the last two have a symbolic size
        found = torch.compile(f, fullgraph=True)(x[:n], y[:n])
        print(torch.equal(found, f(x[:n], y[:n])))
print(tl.load.__module__, tl.constexpr.__module__)
"""


def test_kernels_that_import_names_of_the_language() -> None:
    lines = _output(KERNELS).splitlines()
    assert lines == ["True"] * 6 + ["triton.language triton.language"]


SCALARS = """
config.force_disable_caches = True  # so that kernels are generated
x, y = (torch.tensor(value, requires_grad=True) for value in (0.7, -2.0))

def f(x, y):
    return torch.copysign(x, y) * torch.logsumexp(x, 0)

found, expected = (torch.autograd.grad(g(x, y), [x, y]) for g in (torch.compile(f), f))
print(torch.allclose(found[0], expected[0]) and torch.allclose(found[1], expected[1]))
"""


def test_results_are_not_placed_in_inputs_that_are_passed_as_numbers() -> None:
    assert _output(SCALARS) == "True"


SHORT_INTEGERS = """
a, b, c = (torch.arange(8).to(t) for t in (torch.int8, torch.uint8, torch.int16))
i = torch.tensor([1, 1, 5, 7])

def f(a, b, c, i):
    return (
        a.index_add(0, i, a[:4]),
        c.index_put((i,), c[:4], accumulate=True),
        b.scatter_add(0, i, b[:4]),
        b.scatter_reduce(0, i, b[:4], "mean"),
        a.scatter(0, i, 3, reduce="add"),
    )

found, expected = (g(a, b, c, i) for g in (torch.compile(f), f))
print([torch.equal(x, y) for x, y in zip(found, expected)])
"""


def test_sums_by_index_of_integers_without_atomic_additions() -> None:
    assert _output(SHORT_INTEGERS) == str([True] * 5)


AUTOTUNED = """
config.max_autotune_gemm_backends = "ATEN,TRITON"
config.autotune_num_choices_displayed = 0
a, b = torch.randn(32, 48), torch.randn(48, 16)

def f(a, b):
    return torch.relu(a @ b)

found = torch.compile(f, mode="max-autotune-no-cudagraphs")(a, b)
print(torch.allclose(found, f(a, b), atol=1e-5))
"""


def test_max_autotune_measures_templates() -> None:
    assert _output(AUTOTUNED).splitlines()[-1] == "True"


TEMPLATES = """
config.max_autotune_gemm_backends = "TRITON"
config.test_configs.max_mm_configs = 1
config.autotune_num_choices_displayed = 0
config.force_disable_caches = True
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from tilewright.interop.torch_kernels import adapt_autotuner
adapt_autotuner()
create, found = CachingAutotuner._create_compile_options, []
def create_compile_options(self, config, meta, *rest):
    options = create(self, config, meta, *rest)
    names, given = list(meta["signature"]), meta["configs"][0]
    classes = {names[i]: dict(pairs).get("tw.alias") for (i,), pairs in given.items()}
    found.append((self.fn.__name__, classes, options["debug"]))
    return options
CachingAutotuner._create_compile_options = create_compile_options

def replace(a, b):
    a.copy_(a @ b)
    return a + 1

def add(a, b):
    b.add_(a @ b + b.T)
    return b

for f in (replace, add):
    ours = list(torch.randn(2, 32, 32))
    theirs = [t.clone() for t in ours]
    compiled = torch.compile(f, mode="max-autotune-no-cudagraphs")
    found_now, expected = (compiled(*ours), *ours), (f(*theirs), *theirs)
    torch.testing.assert_close(found_now, expected, atol=1e-4, rtol=1e-4)
template = [entry for entry in found if "tem_fused" in entry[0]][-1]
print(sorted(template[1]), len(set(template[1].values())), template[2])

def gather(a, i):
    return a[i]

torch.compile(gather)(torch.randn(64), torch.arange(8))
print(found[-1][2])
"""


def test_templates_have_alias_classes_and_no_checks_of_their_assumptions() -> None:
    """Kernels with assertions, such as those that load by an index, keep all checks."""
    pytest.importorskip("torch", minversion="2.13")
    template, gather = _output(TEMPLATES).splitlines()[-2:]
    assert template == "['arg_A', 'arg_B', 'out_ptr0'] 3 False"
    assert gather == "True"
