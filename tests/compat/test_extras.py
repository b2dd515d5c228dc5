"""Names that libraries read from modules of `triton`, with their values."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.backends import BaseBackend, backends
from tilewright.backends.compiler import GPUTarget
from tilewright.base import knobs
from tilewright.compat import compiling, managers, utils
from tilewright.compat.extras import EXTRAS, add_extras
from tilewright.compiler import make_backend
from tilewright.runtime import driver
from tilewright.runtime.cache import digest
from tilewright.tools import disasm

ROOT = Path(__file__).parents[2]


@tw.jit
def scale_kernel(x_ptr, n, factor, flag: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(x_ptr + i, tl.load(x_ptr + i, i < n) * factor, i < n)


# What libraries import.
READ = """
from triton.backends import BaseBackend, backends
from triton.backends.compiler import BaseBackend, GPUTarget
from triton import knobs
import triton.knobs
from triton._utils import find_paths_if, get_iterable_path
from triton.compiler import LazyDict, get_cache_key, make_backend, max_shared_mem
from triton.compiler.compiler import GPUTarget, LazyDict, get_cache_key, max_shared_mem
from triton.language.core import _unwrap_if_constexpr, constexpr_function, float8e4nv, int32, math
from triton.language.core import semantic, tensor_descriptor_base
from triton.language.standard import _is_power_of_two, _log2, ravel, zeros, zeros_like
from triton.runtime.cache import CacheManager, FileCacheManager, _base32, get_cache_key
from triton.runtime.cache import get_cache_manager, get_dump_manager, get_override_manager
from triton.runtime.cache import knobs, make_so_cache_key, triton_key
from triton.runtime.jit import KernelInterface, KernelParam, T, get_jit_fn_file_line, mangle_type
from triton.runtime.jit import compute_cache_key, native_specialize_impl
from triton.runtime.jit import serialize_specialization_data
from triton.tools.disasm import get_sass
"""

# Submodules that programs access without importing them.
ACCESSED = """
triton.experimental.gluon
triton.tools.disasm, triton.tools.tensor_descriptor.TensorDescriptor
"""


def test_names_exist_and_the_import_stays_light() -> None:
    code = f"""
import sys
import tilewright
tilewright.install_as_triton()
import triton
heavy = ("llvmlite", "torch", "tilewright.compat.managers")
early = [name for name in sys.modules if name.startswith(heavy)]
{ACCESSED}
{READ}
assert not early, early
assert knobs is triton.knobs and knobs.HookChain
assert GPUTarget is triton.backends.compiler.GPUTarget
assert issubclass(FileCacheManager, CacheManager)
for module in (triton.language.core, triton.runtime.cache, triton.compiler):
    try:
        module._nothing
    except AttributeError as error:
        assert error.name == "_nothing"
    else:
        assert False
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, extras in EXTRAS.items() for name in extras]
)
def test_each_extra_is_defined(module: str, name: str) -> None:
    importlib.import_module(f"tilewright.{module}")
    assert EXTRAS[module][name]() is not None


def test_adding_twice_changes_nothing() -> None:
    add_extras("tilewright")
    before = vars(tl.core)["__getattr__"]
    add_extras("tilewright")
    assert vars(tl.core)["__getattr__"] is before


# -- types and keys of arguments ------------------------------------------------------------------


class Duck:
    """All that a pointer needs."""

    def __init__(self, address: int) -> None:
        self.dtype, self._address = tl.float16, address

    def data_ptr(self) -> int:
        return self._address


@pytest.mark.parametrize(
    ("value", "mangled", "spec"),
    [
        (np.zeros(4, np.float32), "*fp32", ("*fp32", "D")),
        (Duck(32), "*fp16", ("*fp16", "D")),
        (Duck(33), "*fp16", ("*fp16", "")),
        (1, "i32", ("constexpr", 1)),
        (32, "i32", ("i32", "D")),
        (1 << 40, "i64", ("i64", "D")),
        (3.0, "fp32", ("fp32", None)),
        (True, "u1", ("u1", None)),
        (None, "constexpr", ("constexpr", None)),
        ((2, 3.0), ("i32", "fp32"), (("i32", "fp32"), ("", None))),
    ],
)
def test_types_of_arguments(value: Any, mangled: Any, spec: Any) -> None:
    if isinstance(value, np.ndarray):
        value = np.zeros(64, np.float32)[-value.ctypes.data // 4 % 4 :]  # aligned
        spec = (spec[0], "D" if value.ctypes.data % 16 == 0 else "")
    assert compiling.mangle_type(value) == mangled
    assert compiling.native_specialize_impl(BaseBackend, value, False, True, True) == spec


def test_const_pointer_without_alignment() -> None:
    assert compiling.native_specialize_impl(None, Duck(32), True, True, False) == ("*kfp16", "")


def test_unsupported_argument_has_no_type() -> None:
    with pytest.raises(TypeError, match="failed to specialize argument of type: set"):
        compiling.mangle_type({1})


def test_paths() -> None:
    values = ["D", ("", ("D",)), 3]
    paths = utils.find_paths_if(values, lambda path, x: x == "D" and len(path) < 4)
    assert paths == [(0,), (1, 1, 0)]
    assert [utils.get_iterable_path(values, path) for path in paths] == ["D", "D"]
    utils.set_iterable_path(values, (2,), 4)
    assert values[2] == 4


def test_place_of_a_kernel() -> None:
    file, number = compiling.get_jit_fn_file_line(tw.autotune([], [])(scale_kernel))
    assert Path(file).samefile(__file__)
    assert "def scale_kernel" in Path(file).read_text("utf-8").splitlines()[number - 1]


def test_logarithms_are_compile_time_values() -> None:
    @tw.jit
    def kernel(out, N: tl.constexpr):
        tl.store(out, log2(N))
        tl.store(out + 1, is_power_of_two(N))

    out = np.zeros(2, np.int32)
    for n, found in ((64, [6, 1]), (48, [5, 0])):
        kernel[(1,)](out, N=n)
        assert out.tolist() == found


log2: Any = EXTRAS["language.standard"]["_log2"]()
is_power_of_two: Any = EXTRAS["language.standard"]["_is_power_of_two"]()


# -- targets and keys -----------------------------------------------------------------------------


def test_backends_have_a_compiler_and_a_driver() -> None:
    assert list(backends) == ["cpu", "nvidia", "amd"]
    cpu = backends["cpu"]
    assert cpu.driver.is_active()
    assert cpu.driver().get_current_target() == GPUTarget("cpu")
    assert isinstance(driver.active, cpu.driver) or driver.active.device_type != "cpu"
    assert cpu.compiler("").parse_options({}).__dict__["num_warps"] == 4
    assert isinstance(backends["nvidia"].driver.is_active(), bool)
    for backend in backends.values():
        assert issubclass(backend.compiler, BaseBackend)


@pytest.mark.parametrize("target", [GPUTarget("cpu", "", 32), GPUTarget("cuda", 90, 32)])
def test_backend_answers_programs(target: GPUTarget) -> None:
    backend: Any = make_backend(target)
    assert isinstance(backend, BaseBackend)
    assert backend.supports_target(target)
    assert not backend.supports_target(GPUTarget("interpreter"))
    assert int(backend.hash(), 16)
    assert backend.hash() == backend.hash()
    assert (backend.parse_attr("D"), backend.parse_attr("")) == ([["tt.divisibility", 16]], [])


def test_cache_key_depends_on_every_part() -> None:
    def key(type: str = "*fp32", arch: int = 90, warps: int = 4, **env: str) -> str:
        source = tw.compiler.ASTSource(
            scale_kernel, {"x_ptr": type, "n": "i32", "factor": "fp32"}, {"flag": True}
        )
        backend: Any = make_backend(GPUTarget("cuda", arch, 32))
        return compiling.get_cache_key(
            source, backend, backend.parse_options({"num_warps": warps}), env
        )

    keys = [key(), key("*fp16"), key(arch=80), key(warps=8), key(SETTING="1")]
    assert len(set(keys)) == 5
    assert key() == keys[0]
    assert managers.base32(keys[0])


def test_shared_memory_of_the_device() -> None:
    assert compiling.max_shared_mem(0) >= 48 << 10


def test_lazy_dict_computes_once_and_on_demand() -> None:
    calls: list[int] = []

    def more(n: int) -> dict[str, int]:
        calls.append(n)
        return {"bytes": n}

    facts = compiling.LazyDict({"name": "add"})
    facts.add(more, (12,))
    assert calls == []
    assert facts.get() == facts.get() == {"name": "add", "bytes": 12}
    assert calls == [12]


def test_sass_of_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "head\n.text.one:\n  EXIT\n.text.two:\n  BRA\n"
    monkeypatch.setattr(disasm, "_sass", lambda cubin: text)
    assert disasm.get_sass(b"") == text
    assert disasm.get_sass(b"", "one") == ".text.one:\n  EXIT\n"
    assert disasm.get_sass(b"", "two") == ".text.two:\n  BRA\n"
    with pytest.raises(ValueError, match="no kernel 'three' in this cubin; its kernels: one, two"):
        disasm.get_sass(b"", "three")


def test_sass_of_a_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"x_ptr": "*fp32", "n": "i32", "factor": "fp32"}
    source = tw.compiler.ASTSource(scale_kernel, types, {"flag": True})
    stages = tw.compile(source, GPUTarget("cuda", 90, 32)).asm
    if "cubin" in stages and "sass" in stages:
        assert "EXIT" in disasm.get_sass(stages["cubin"], "scale_kernel")
    monkeypatch.setattr("tilewright.targets.nvidia.disassemble.find_disassembler", lambda: None)
    with pytest.raises(FileNotFoundError, match="pip install nvidia-cuda-nvdisasm"):
        disasm.get_sass(b"")


# -- files next to kernels ------------------------------------------------------------------------

KEY = digest("something")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_files_of_a_key(folder: Path) -> None:
    manager = managers.get_cache_manager(KEY)
    assert manager.get_file("a.json") is None
    path = manager.put("text é", "a.json", binary=False)
    assert Path(path).parent == folder / managers.base32(KEY)
    assert Path(path).read_bytes() == "text é".encode()
    assert managers.get_cache_manager(KEY).get_file("a.json") == path
    assert Path(manager.put(b"\x00\xff", "b")).read_bytes() == b"\x00\xff"
    assert sorted(os.listdir(Path(path).parent)) == ["a.json", "b"]
    assert managers.get_cache_manager(digest("other")).get_file("a.json") is None


def test_group_of_files(folder: Path) -> None:
    manager = managers.FileCacheManager("key")
    assert manager.get_group("kernel.json") is None
    paths = {name: manager.put(name, name) for name in ("kernel.ptx", "kernel.cubin")}
    path = manager.put_group("kernel.json", {**paths, "gone": "/nowhere/gone"})
    assert json.loads(Path(path).read_text())["child_paths"]
    assert manager.get_group("kernel.json") == paths


def test_other_folders_must_be_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"knobs\.cache\.dump_dir is unset"):
        managers.get_dump_manager(KEY)
    monkeypatch.setattr(knobs.cache, "dump_dir", str(folder / "dump"))
    monkeypatch.setattr(knobs.cache, "override_dir", str(folder / "other"))
    assert managers.get_dump_manager(KEY).put("", "x").startswith(str(folder / "dump"))
    assert managers.get_override_manager(KEY).get_file("x") is None


def test_keys_of_libraries_differ() -> None:
    keys = {
        managers.make_so_cache_key("v", {0: "*fp32"}, {}, ids, flag=flag)
        for ids in ((0,), (1,))
        for flag in (True, False)
    }
    assert len(keys) == 4


class Kept(managers.FileCacheManager):
    """A manager of a program's own."""


def test_setting_names_the_manager(folder: Path) -> None:
    with knobs.cache.scope():
        knobs.cache.manager_class = f"{__name__}:Kept"
        assert type(managers.get_cache_manager(KEY)) is Kept
        for wrong, why in (("Kept", "must be as `module:Class`"), ("os:Nothing", "Nothing")):
            knobs.cache.manager_class = wrong
            with pytest.raises(ValueError, match=why):
                managers.get_cache_manager(KEY)


def test_serialised_variant_is_compiled_by_preload() -> None:
    target = driver.active.get_current_target()
    options = make_backend(target).parse_options({"num_warps": 2})
    signature = {"x_ptr": "*fp32", "n": "i32", "factor": "fp32", "flag": "constexpr"}
    for flag in (True, object()):
        text = compiling.serialize_specialization_data(
            "scale_kernel", signature, {(3,): flag}, {}, options, "key"
        )
        if flag is True:
            assert scale_kernel.preload(text).metadata.num_warps == 2
        else:
            assert text == ""
