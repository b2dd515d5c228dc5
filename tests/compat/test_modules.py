"""Modules of Triton that public programs import: which work, and which raise a clear error."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.base import knobs, triton_knobs
from tilewright.compat import building, drivers, generating, tools, utils
from tilewright.compat import functions as combine
from tilewright.compat.native_compiler import libtriton
from tilewright.compat.nvidia import compiler as nvidia_compiler
from tilewright.compat.nvidia import driver as nvidia_driver
from tilewright.runtime import driver
from tilewright.targets.nvidia import target
from tilewright.targets.protocol import GPUTarget
from tilewright.tools.mxfp import MXFP4Tensor

ROOT = Path(__file__).parents[2]

IMPORTS = """
import triton._C, triton._C.libtriton
from triton._C.libtriton import get_cache_invalidating_env_vars, ir, native_specialize_impl, nvidia
import triton.backends.nvidia, triton.backends.driver
from triton.backends.driver import Benchmarker, DriverBase, GPUDriver
from triton.backends.nvidia.compiler import CUDABackend, CUDAOptions, get_ptxas, ptx_get_version
from triton.backends.nvidia.driver import CudaDriver, CudaUtils, libcuda_dirs, ty_to_cpp
from triton.compiler.code_generator import CodeGenerator, ast_to_ttir
from triton.compiler.compiler import get_cache_invalidating_env_vars, get_cache_manager
from triton.runtime.build import _build, compile_module_from_src, platform_key
from triton.runtime.cache import RedisRemoteCacheBackend, RemoteCacheBackend, RemoteCacheManager
from triton.tools.disasm import extract, get_sass
from triton.knobs import CompilationListener, CompileTimes, JITHook, JITHookCompileInfo, LaunchHook
from triton.knobs import InitHandleHook, NvidiaTool, base_knobs, runtime_knobs, nvidia_knobs
from triton.knobs import amd_knobs, autotuning_knobs, build_knobs, cache_knobs, compilation_knobs
from triton.knobs import language_knobs, proton_knobs, redis_knobs
from triton.language.core import CONSTEXPR_0, _constexpr_to_value, _tensor_member_fn, _unwrap_shape
from triton.language.extra.cuda.gdc import gdc_launch_dependents, gdc_wait
from triton.language.extra.cuda.utils import globaltimer, smid
from triton.language.standard import _elementwise_max, _elementwise_min, _sum_combine, _xor_combine
from triton._utils import BITWIDTH_DICT, apply_with_path, canonicalize_dtype, is_namedtuple
from triton._utils import canonicalize_ptr_dtype, get_primitive_bitwidth, validate_block_shape
"""


def test_public_imports_work_and_load_nothing_heavy() -> None:
    code = f"""
import sys, tilewright
tilewright.install_as_triton()
import triton
assert "tilewright.compat.building" not in sys.modules
assert not [name for name in sys.modules if name.startswith(("llvmlite", "torch"))]
{IMPORTS}
import triton.language as tl
assert triton._C.libtriton.ir is not None
assert CONSTEXPR_0.value == 0 and triton.language.core.CONSTEXPR_0 is CONSTEXPR_0
assert issubclass(runtime_knobs, base_knobs) and type(triton.knobs.runtime) is runtime_knobs
assert gdc_wait is tl.extra.cuda.gdc_wait
assert not hasattr(triton._C.libtriton, "nothing")
for name in ("triton.tools.experimental_descriptor", "triton.language.extra.tlx"):
    try:
        __import__(name)
    except ImportError:
        continue
    assert False, f"torch looks whether there is {{name}}"
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True)


def test_compiler_of_the_backends_is_an_attribute_after_importing_triton() -> None:
    text = (
        "import tilewright; tilewright.install_as_triton(); import triton; "
        "print(triton.backends.compiler.GPUTarget('cuda', 90, 32).arch)"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "90\n"


@pytest.mark.parametrize(
    "use",
    [
        lambda: libtriton.ir.builder(None),
        lambda: libtriton.passes.common.add_cse(None),
        lambda: generating.ast_to_ttir(None),
        lambda: nvidia_driver.CudaLauncher(None, None),
    ],
)
def test_missing_name_error_lists_the_existing_ones(use: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"triton\..* is not available in tilewright: "):
        use()
    assert repr(libtriton.ir.builder) == "<missing triton._C.libtriton.ir.builder>"


def test_gluon_is_imported_and_its_kernels_are_rejected_at_their_launch(tmp_path: Path) -> None:
    code = """
import tilewright
tilewright.install_as_triton()
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
import triton, triton.language as tl

assert gl.constexpr is tl.constexpr and gl.float16 is tl.float16
WIDTH = gl.constexpr(4)
TILE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
ROW: gl.constexpr = gl.SliceLayout(1, gl.amd.AMDWMMALayout(3, True, TILE))
RING = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)

@gluon.jit
def copy(x, layout: gl.constexpr, barrier: mbarrier.MBarrierLayout):
    gl.store(x, gl.load(x))

@gluon.jit(noinline=True)
def helper(x):
    return x

@triton.autotune([triton.Config({"WIDTH": 4})], key=["n"])
@gluon.jit
def tuned(x, n, WIDTH: gl.constexpr):
    gl.store(x, n)

assert tuned.arg_names == ["x", "n", "WIDTH"] and tuned.fn.is_gluon()

assert gluon.constexpr_function is triton.constexpr_function
for use, name in (
    (lambda: copy[(1,)](None, TILE, None), "the Gluon kernel copy"),
    (lambda: copy.warmup(None, TILE, None, grid=(1,)), "the Gluon kernel copy"),
    (lambda: tuned[(1,)](None, 1), "the Gluon kernel tuned"),
    (lambda: RING[0], "gluon.language.NVMMASharedLayout.get_default_for"),
    (lambda: tma.async_copy(None), "nvidia.hopper.tma.async_copy"),
    (lambda: TensorDescriptor.from_tensor(None), "gluon.nvidia.hopper.TensorDescriptor"),
):
    try:
        use()
    except NotImplementedError as error:
        assert name in str(error), error
    else:
        assert False, name
"""
    (script := tmp_path / "kernels.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-W", "error", script], env=environment, check=True)


@pytest.mark.parametrize("name", ["RemoteCacheManager", "RedisRemoteCacheBackend"])
def test_remote_cache_error_names_the_alternative(name: str) -> None:
    with pytest.raises(NotImplementedError, match="the cache is a folder"):
        importlib.import_module("tilewright.compat.extras").EXTRAS["runtime.cache"][name]()("key")


SOURCE = r"""
#include <Python.h>
static PyObject* answer(PyObject* self, PyObject* args) { return PyLong_FromLong(ANSWER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "answers", NULL, -1, methods};
PyMODINIT_FUNC PyInit_answers(void) { return PyModule_Create(&def); }
"""


def test_modules_in_c_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def compile(command: list[str], check: bool) -> None:
        """A stand-in for the compiler, which not every machine has."""
        commands.append(command)
        Path(command[command.index("-o") + 1]).write_bytes(b"no code")

    monkeypatch.setattr(building.subprocess, "run", compile)
    with knobs.cache.scope(), knobs.triton_group("build").scope():
        knobs.cache.dir = str(tmp_path)
        knobs.triton_group("build").cc = "some-cc"
        for _ in range(2):
            with pytest.raises(ImportError):  # it is no library
                building.compile_module_from_src(SOURCE, "answers", libraries=["m"])
    (command,) = commands
    assert command[0] == "some-cc"
    assert command[-1] == "-lm"
    assert building._build is building.build
    assert building.platform_key() == building.platform_key()


def test_a_missing_c_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"answers is in C: install a C compiler, or set knobs"):
        building.build("answers", "main.c", ".", [], [], [])


def test_ptxas_has_a_path_and_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"ptxas": "/cuda/bin/ptxas"}
    monkeypatch.setattr(target, "find_program", lambda name, given=None: given or found.get(name))
    monkeypatch.setattr(target.Ptxas, "version", lambda self: "12.8.93")
    assert tools.tool("ptxas") == tools.NvidiaTool("/cuda/bin/ptxas", "12.8")
    assert nvidia_compiler.get_ptxas_version() == "12.8"
    monkeypatch.setitem(triton_knobs.TOOLS, ("nvidia", "ptxas"), lambda: tools.tool("ptxas"))
    assert getattr(knobs.nvidia, "ptxas").path == "/cuda/bin/ptxas"  # noqa: B009
    with pytest.raises(RuntimeError, match="Cannot find cuobjdump"):
        tools.tool("cuobjdump")


def test_names_of_nvidia() -> None:
    versions = {"11.8": 78, "12.5": 85, "12.6": 85, "12.9": 88, "13.0": 90}
    assert {v: nvidia_compiler.ptx_get_version(v) for v in versions} == versions
    with pytest.raises(RuntimeError, match=r"no PTX version for CUDA 9\.0"):
        nvidia_compiler.ptx_get_version("9.0")
    names = [nvidia_compiler.sm_arch_from_capability(c) for c in (75, 80, 90, 100)]
    assert names == ["sm_75", "sm_80", "sm_90a", "sm_100a"]
    types = {"*fp32": "CUdeviceptr", "i64": "int64_t", "u8": "uint8_t", "u1": "uint8_t",
             "i1": "int8_t", "fp16": "double"}  # fmt: skip
    assert {t: nvidia_driver.ty_to_cpp(t) for t in types} == types
    backend = nvidia_compiler.CUDABackend(GPUTarget("cuda", 80, 32))
    assert isinstance(backend.parse_options({}), nvidia_compiler.CUDAOptions)
    assert backend.parse_options({}).arch == "sm80"
    assert nvidia_compiler.min_dot_size(GPUTarget("cuda", 90, 32))(tl.int8, tl.int8) == (1, 1, 32)


def test_folder_of_the_gpu_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_driver, "FOLDERS", (str(tmp_path),))
    with pytest.raises(AssertionError, match=r"libcuda\.so\.1 was not found"):
        nvidia_driver.libcuda_dirs()
    (tmp_path / "libcuda.so.1").touch()
    assert nvidia_driver.libcuda_dirs() == [str(tmp_path)]
    with knobs.nvidia.scope():
        knobs.nvidia.libcuda_path = "/here"
        assert nvidia_driver.libcuda_dirs() == ["/here"]


def test_a_program_may_have_its_own_driver() -> None:
    class Mine(drivers.DriverBase):
        device_type = "cpu"

        @classmethod
        def is_active(cls) -> bool:
            return True

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cpu")

        def get_active_torch_device(self) -> Any:
            return torch.device("cpu")

        def get_benchmarker(self) -> drivers.Benchmarker:
            return lambda kernel_call, *, quantiles, **kwargs: [0.5] * len(quantiles)

    driver.set_active(Mine())  # pyright: ignore[reportArgumentType]
    assert driver.active.get_benchmarker()(print, quantiles=(0.5, 0.2)) == [0.5, 0.5]
    driver.reset_active()
    with pytest.raises(TypeError, match="abstract"):
        drivers.DriverBase()  # pyright: ignore[reportAbstractUsage]
    assert drivers.GPUDriver.__init__ is not None


COMBINED = {
    "sum_combine": 6, "elementwise_max": 3, "elementwise_min": 0, "xor_combine": 0,
    "or_combine": 3,
}  # fmt: skip


@tw.jit
def reduce_with(out, fn: tl.constexpr):
    tl.store(out, tl.reduce(tl.arange(0, 4), 0, fn))


@pytest.mark.parametrize("name", COMBINED)
def test_combine_functions(name: str) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    reduce_with[(1,)](out, getattr(combine, name))
    assert out.item() == COMBINED[name]


def test_utilities() -> None:
    seen: list[Any] = []
    utils.apply_with_path((1, (2, [3])), lambda path, leaf: seen.append((path, leaf)))
    assert seen == [((0,), 1), ((1, 0), 2), ((1, 1, 0), 3)]
    assert [utils.is_iterable(x) for x in ((1,), [1], "a", {1})] == [True, True, False, False]
    assert utils.canonicalize_dtype(torch.float16) == utils.canonicalize_dtype("half") == "fp16"
    assert utils.canonicalize_ptr_dtype("fp16", True) == "*kfp16"
    bits = {"fp16": 16, "i1": 1, "u1": 1, "bfloat16": 16, "float8_e5m2": 8, "int64": 64, "void": 0}
    assert {name: utils.get_primitive_bitwidth(name) for name in bits} == bits
    assert [utils.is_power_of_two(x) for x in (0, 1, 3, 4)] == [True, True, False, True]
    assert utils.validate_block_shape([4, 8]) == 32


def test_mxfp4_takes_integers_and_checks_the_axis() -> None:
    x = MXFP4Tensor(data=torch.tensor([0, 1, -2, 7], dtype=torch.int8))
    assert x.to(torch.float32).tolist() == [0, 1, -2, 6]
    with pytest.raises(AssertionError, match="dim 3 is outside a tensor of rank 1"):
        x.to_packed_tensor(dim=3)
    with pytest.raises(TypeError, match=r"a tensor of real numbers, not torch\.complex64"):
        MXFP4Tensor(data=torch.zeros(2, dtype=torch.complex64))
