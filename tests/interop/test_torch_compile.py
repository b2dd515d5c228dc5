"""`tilewright.torch.enable`, which sets up torch.compile, in processes of their own.

They are fresh where the order of imports matters.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.interop.forked import PLAIN, output, run_text
from tilewright.interop.torch_kernels import (
    LONGEST_COLUMN,
    USUAL_REGISTERS,
    blocks_on_cpu,
    keep_blocks,
)
from tilewright.targets.nvidia.occupancy import ROOMY_REGISTERS

ROOT = Path(__file__).parents[2]

START = PLAIN


def _run(code: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh process.

    Args:
        path: a folder with packages that take precedence over the installed ones.
    """
    folders = [*([str(path)] if path else []), str(ROOT)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def _error(code: str, path: Path | None = None) -> str:
    run = _run(code, path)
    assert run.returncode != 0
    return run.stderr.strip().splitlines()[-1]


def _package(folder: Path, name: str, text: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)
    return folder


ENABLE_AND_DISABLE = (
    START
    + """
import multiprocessing
from torch._inductor import config
import torch._dynamo.utils as dynamo
starts = []
for cpu in (True, True, False):
    tilewright.torch.enable(cpu=cpu)
    print(config.cpu_backend)
    sys.modules["torch._inductor.async_compile"].maybe_warm_pool = lambda: starts.append(1)
import triton
from torch._inductor.runtime import triton_compat
print(triton.jit is tilewright.jit, triton_compat.JITFunction is tilewright.JITFunction)
print(triton.language.dtype in dynamo.common_constant_types)
for _ in range(2):
    tilewright.torch.disable()
    print(config.cpu_backend)
with config.patch(worker_start_method="fork"):
    tilewright.torch.enable(cpu=False)
multiprocessing.parent_process = lambda: "a parent"
tilewright.torch.enable(cpu=False)
print(config.cpu_backend, len(starts))
"""
)


def test_enable_is_idempotent_and_disable_restores_the_setting() -> None:
    pytest.importorskip("torch", minversion="2.9")
    expected = "triton triton triton True True True cpp cpp cpp 2"
    assert output(ENABLE_AND_DISABLE, PLAIN).split() == expected.split()


def test_enable_leaves_what_only_compilations_need_to_these() -> None:
    pytest.importorskip("torch", minversion="2.9")
    code = START + "tilewright.torch.enable()\nprint('torch._inductor.lowering' in sys.modules)"
    assert output(code, PLAIN) == "False"


OPTION = (
    START
    + """
tilewright.torch.enable(cpu=False)
from torch._inductor import config
config.compile_threads = 1
config.triton.autotune_pointwise = False
launches = []
tilewright.knobs.runtime.launch_enter_hook.add(lambda data: launches.append(data.get()["name"]))
f = torch.compile(lambda x, y: torch.relu(x + y), options={"cpu_backend": "triton"})
x, y = torch.randn(2, 1000)
print(torch.equal(f(x, y), torch.relu(x + y)), launches)
"""
)


def test_option_of_one_function() -> None:
    pytest.importorskip("torch", minversion="2.9")
    assert output(OPTION) == "True ['triton_poi_fused_add_relu_0']"


def test_settings_of_inductor_were_imported_before() -> None:
    """Without a Triton, as on a machine with no other one."""
    pytest.importorskip("torch", minversion="2.9")
    early = (
        "sys.modules['triton'] = None\nimport torch._inductor.config\ndel sys.modules['triton']\n"
    )
    program = START + early + OPTION.removeprefix(START)
    assert output(program, PLAIN) == "True ['triton_poi_fused_add_relu_0']"


MISSING = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: name != "torch" and find_spec(name, *rest) or None
import tilewright
tilewright.torch.enable()
"""


def test_torch_is_missing() -> None:
    assert _error(MISSING).startswith("ImportError: torch is not installed")


def test_torch_is_too_old(tmp_path: Path) -> None:
    path = _package(tmp_path, "torch", "__version__ = '2.8.1'")
    text = _error("import tilewright; tilewright.torch.enable()", path)
    assert text.startswith("ImportError: torch 2.8.1 is installed;")
    assert "needs 2.9 or newer" in text


def test_torch_is_too_new(tmp_path: Path) -> None:
    path = _package(tmp_path, "torch", "__version__ = '4.0'")
    text = _error("import tilewright; tilewright.torch.enable()", path)
    assert text == (
        "RuntimeError: torch 4.0 has no torch._inductor, which "
        "tilewright.torch.enable() uses; it is tested with torch 2.13. Install that, or a newer "
        "tilewright"
    )


def test_another_triton_was_imported_first(tmp_path: Path) -> None:
    pytest.importorskip("torch", minversion="2.9")
    path = _package(tmp_path, "triton", "__version__ = '3.5.0'")
    text = _error("import triton, tilewright; tilewright.torch.enable()", path)
    assert text.startswith("RuntimeError: 'triton' has already been imported, from")


def test_torch_has_looked_for_triton_before() -> None:
    pytest.importorskip("torch", minversion="2.9")
    late = "import torch._inductor.runtime.triton_compat\ntilewright.torch.enable()"
    run = run_text(START + "sys.modules['triton'] = None\n" + late, PLAIN)
    assert run.returncode != 0
    assert "\nRuntimeError: torch.compile has already been used" in run.stderr


THREADS = (
    START
    + """
import torch.nn.functional as F
tilewright.torch.enable(cpu=False)
from torch._inductor import config
config.force_disable_caches = True
config.compile_threads = {workers}
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
create = CachingAutotuner._make_launchers
found = set()
def make(self):
    result = create(self)
    for made in self.compile_results:
        found.add((bool(self.inductor_meta.get("atomic_add_found")),
                   made.kernel.metadata.single_threaded))
    return result
CachingAutotuner._make_launchers = make

def f(x):
    return F.max_pool2d(x, 2) * 2

x = torch.randn(2, 3, 8, 8, requires_grad=True)
want, = torch.autograd.grad(f(x).sum(), x)
for threads in (1, 2):
    torch.set_num_threads(threads)
    torch.compiler.reset()
    found.clear()
    y = torch.compile(f, options={{"cpu_backend": "triton"}})(x)
    got, = torch.autograd.grad(y.sum(), x)
    print(torch.allclose(got, want), sorted(found))
"""
)


@pytest.mark.parametrize("workers", [1, 2])
def test_kernels_for_one_thread_add_without_atomics(workers: int) -> None:
    """Also if they are compiled in other processes."""
    pytest.importorskip("torch", minversion="2.13")
    assert output(THREADS.format(workers=workers)).splitlines() == [
        "True [(False, False), (True, True)]",
        "True [(False, False)]",  # Inductor leaves the gradient to torch
    ]


LAUNCHES = (
    START
    + """
tilewright.torch.enable(cpu=False)
from torch._inductor import config
config.compile_threads = 1
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.codecache import PyCodeCache
from torch.profiler import profile
from torch.utils._debug_mode import DebugMode
kernels, slow = set(), []
original = CachingAutotuner.run
def run(self, *args, **named):
    kernels.add(self)
    slow.append(self)
    return original(self, *args, **named)
CachingAutotuner.run = run
f = torch.compile(lambda x, y: torch.relu(x + y), options={"cpu_backend": "triton"})
x, y = torch.randn(2, 1000)
def call():
    slow.clear()
    assert torch.equal(f(x, y), torch.relu(x + y))
    return len(slow)
call()
kernel, = kernels
print(call(), call())
with profile() as events:
    print(call())
print(kernel.fn.__name__ in [event.key for event in events.key_averages()], call())
run = kernel.run
kernel._cached_launcher = None  # as after its configurations have changed
print(call(), call(), kernel.run is run, type(kernel.run) is type(run) is type(len))
with DebugMode():
    print(call())
modules = [vars(m) for m in PyCodeCache.modules]
print(any("stream=None" in open(m["__file__"]).read() for m in modules if "__file__" in m))
"""
)


def test_kernels_that_have_been_launched_are_launched_at_once() -> None:
    """By native code, unless the launch is profiled, or the kernel has another launcher. Modules
    ask for no stream."""
    pytest.importorskip("torch", minversion="2.13")
    assert output(LAUNCHES).replace("\n", " ") == ("0 0 1 True 0 1 0 False True 1 True")


@pytest.mark.parametrize(("registers", "scaled"), [((40, None), 0), ((32, 41), 1)])
def test_blocks_are_not_halved_for_registers_of_all_kernels(
    registers: tuple[int | None, ...], scaled: int
) -> None:
    assert USUAL_REGISTERS == ROOMY_REGISTERS

    class Autotuner:
        """A kernel, with how often it was to be compiled with half the block."""

        def __init__(self) -> None:
            self.launchers = [SimpleNamespace(n_regs=number) for number in registers]
            self.scaled = 0

        def _dynamic_scale_rblock(self) -> None:
            self.scaled += 1

        def precompile(self) -> None:
            self._dynamic_scale_rblock()

    for _ in range(2):
        keep_blocks(Autotuner)
    kernel = Autotuner()
    kernel.precompile()
    assert kernel.scaled == scaled


@pytest.mark.parametrize(
    ("blocks", "sizes", "expected"),
    [
        ({"XBLOCK": 2, "R0_BLOCK": 64}, {"x": 256, "r0_": 512}, {"XBLOCK": 16, "R0_BLOCK": 512}),
        ({"XBLOCK": 2, "R0_BLOCK": 64}, {"x": 8, "r0_": 128}, {"XBLOCK": 8, "R0_BLOCK": 128}),
        (
            {"XBLOCK": 1, "YBLOCK": 16, "R0_BLOCK": 32},
            {"y": 16, "x": 16, "r0_": 512},
            {"XBLOCK": 1, "YBLOCK": 16, "R0_BLOCK": 512},
        ),
        ({"XBLOCK": 1, "R0_BLOCK": 2048}, {"x": 16, "r0_": 8192}, {"R0_BLOCK": 512}),
        ({"XBLOCK": 1, "R0_BLOCK": 128}, {"x": 16, "r0_": 8192}, {}),
        ({"XBLOCK": 64, "R0_BLOCK": 64}, {"x": 512, "r0_": 512}, {}),
        ({"XBLOCK": 512}, {"x": 65536}, {}),
        ({"XBLOCK": 256}, {"x": 4096}, {"XBLOCK": 4096}),
        ({"XBLOCK": 32, "YBLOCK": 32}, {"x": 64, "y": 64}, {}),
        ({"XBLOCK": 1, "R0_BLOCK": 64, "RSPLIT": 2}, {"x": 1, "r0_": 512}, {}),
    ],
)
def test_blocks_on_the_cpu(
    blocks: dict[str, int], sizes: dict[str, int], expected: dict[str, int]
) -> None:
    assert blocks_on_cpu(blocks, sizes) == expected


@pytest.mark.parametrize(("length", "has_loop"), [(LONGEST_COLUMN, False), (1 << 20, True)])
def test_blocks_of_long_columns(length: int, has_loop: bool) -> None:
    blocks, sizes = {"XBLOCK": 2, "R0_BLOCK": 64}, {"x": 256, "r0_": length}
    expected = {} if has_loop else {"XBLOCK": 16, "R0_BLOCK": length}
    assert blocks_on_cpu(blocks, sizes, is_column=True) == expected


BLOCKS = (
    START
    + """
tilewright.torch.enable(cpu=False)
from torch._inductor import config
config.compile_threads = 1
config.force_disable_caches = True
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
initialise, found = CachingAutotuner.__init__, []
def initialised(self, *rest, **named):
    initialise(self, *rest, **named)
    found.append([c.kwargs for c in self.configs])
CachingAutotuner.__init__ = initialised
x, y = torch.randn(8, 300, 40), torch.randn(2000, 300)
f = torch.compile(lambda x: x.var(-2), options={"cpu_backend": "triton"}, dynamic=False)
for given in x, y:
    print(torch.allclose(f(given), given.var(-2), atol=1e-5), found[-1])
"""
)


def test_short_reductions_and_those_of_columns_have_no_loop() -> None:
    pytest.importorskip("torch", minversion="2.13")
    assert output(BLOCKS).splitlines() == [
        "True [{'XBLOCK': 16, 'R0_BLOCK': 512}]",
        "True [{'XBLOCK': 16, 'R0_BLOCK': 2048}]",
    ]


DEVICES = (
    START
    + """
tilewright.torch.enable(cpu=False)
from torch._inductor.codegen import common
registered = common.get_device_op_overrides("cpu")
print({"cpu", "cuda"} <= common.device_op_overrides_dict.keys())
print(registered.import_get_raw_stream_as("stream_of"))
"""
)


def test_code_of_all_devices_is_registered_at_once() -> None:
    """Torch 2.11 takes that of the CPU for a GPU if that of the CPU is registered on its own."""
    pytest.importorskip("torch", minversion="2.9")
    assert output(DEVICES).splitlines() == ["True", "stream_of = lambda _: 0"]


TAGGED = """
import tilewright, torch
{set_up}
from tilewright.interop.torch_kernels import adapt_autotuner
adapt_autotuner()
from torch.compiler import config
print(config.cache_key_tag)
"""


def test_compile_workers_name_files_of_caches_as_the_program_does() -> None:
    """Otherwise a warm start does not find the fastest configurations of kernels that a worker has
    compiled, and measures all configurations again."""
    pytest.importorskip("torch", minversion="2.9")
    program, worker = (
        output(TAGGED.format(set_up=text), PLAIN)
        for text in ("tilewright.torch.enable()", "tilewright.install_as_triton()")
    )
    assert "tilewright" in program
    assert worker == program


OVERLAPS = (
    START
    + """
tilewright.torch.enable()
from torch._inductor import config
config.compile_threads = 1
config.force_disable_caches = True
from tilewright.interop.torch_kernels import adapt_autotuner
adapt_autotuner()
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
create, found = CachingAutotuner._create_compile_meta, {}
def create_compile_meta(self, *rest):
    meta = create(self, *rest)
    names = list(meta["signature"])
    for (i,), pairs in meta["configs"][0].items():
        found.update({names[i]: value for key, value in pairs if key == "tw.alias"})
    return meta
CachingAutotuner._create_compile_meta = create_compile_meta

def replace(x, y):
    x.copy_(x.flip(0) * y)
    return x + 1

def shift(x, y):
    x[1:] = x[:-1] + y[1:]
    return x

def update(x, y):
    x.mul_(y)
    y.add_(x)
    return x.cumsum(0)

def join(x, y):
    return torch.cat([x.exp(), y.flip(0), x + y]).view(3, -1).sum(0) + x

def scatter(x, y):
    i = torch.arange(x.shape[0]).flip(0)
    return x.index_put_((i,), x[i // 2] * y, accumulate=True)

for f in (replace, shift, update, join, scatter):
    ours = list(torch.randn(2, 1000))
    theirs = [t.clone() for t in ours]
    torch.testing.assert_close((torch.compile(f)(*ours), *ours), (f(*theirs), *theirs))
found.clear()
torch.compiler.reset()
torch.compile(lambda x, y: x * 2 + y)(torch.randn(64), torch.randn(64))
print(sorted(found), len(set(found.values())))
found.clear()
torch.compiler.reset()
torch.compile(lambda x, y: x.copy_(y.relu() + x))(torch.randn(64), torch.randn(64))
print(sorted(found.items()))
"""
)


def test_arguments_of_kernels_are_apart_unless_they_share_memory() -> None:
    pytest.importorskip("torch", minversion="2.13")
    apart, shared = output(OVERLAPS).splitlines()
    assert apart == "['in_ptr0', 'in_ptr1', 'out_ptr0'] 3"
    assert shared == "[('in_ptr0', 1), ('in_ptr1', 0), ('out_ptr1', 0)]"


ONLY_CPP = (
    START
    + """
from types import SimpleNamespace
tilewright.torch.enable()
from torch._inductor import config, graph
from torch._inductor.codegen.cpp_wrapper_cpu import DeferredCpuTritonCallWrapper
from torch._inductor.virtualized import V
from torch.nn.attention.flex_attention import flex_attention

def run(*_):
    raise ValueError(f"{config.cpu_backend} {config.epilogue_fusion}.")

graph.GraphLowering.run = run
x = torch.zeros(1, 1, 16, 16)
with config.patch(force_disable_caches=True, compile_threads=1):
    for f, options in (
        (lambda x: x + 1, {}),
        (lambda x: x + 1, {"cpp_wrapper": True}),
        (lambda x: flex_attention(x, x, x) + 1, {}),
    ):
        try:
            torch.compile(f, options=options)(x)
        except Exception as error:
            print(str(error).partition("ValueError: ")[2].partition(".")[0])
call = SimpleNamespace(kernel_name="add_0")
with V.set_graph_handler(SimpleNamespace(aot_mode=False)):
    try:
        DeferredCpuTritonCallWrapper.generate(call, None)
    except RuntimeError as error:
        print(error)
"""
)


def test_what_torch_generates_only_in_cpp_is_generated_in_cpp() -> None:
    pytest.importorskip("torch", minversion="2.13")
    *backends, text = output(ONLY_CPP).splitlines()
    assert backends == ["triton True", "cpp True", "cpp False"]
    assert "such as add_0, but for AOTInductor. Compile this function without" in text
