"""The names below `triton` are tilewright's own objects, and probes get sensible answers."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tilewright.compat import VERSION, search_path

ROOT = Path(__file__).parents[2]

START = "import tilewright\ntilewright.install_as_triton()\n"


def answer(code: str) -> Any:
    """What a fresh interpreter, in which tilewright is installed as triton, finds: its `found`."""
    text = f"{START}{code}\nimport json; print(json.dumps(found))"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


# What programs import -> the module that it is.
SAME = {
    "triton.backends": "tilewright.backends",
    "triton.backends.compiler": "tilewright.backends.compiler",
    "triton.compiler": "tilewright.compiler",
    "triton.compiler.compiler": "tilewright.compiler",
    "triton.compiler.errors": "tilewright.errors",
    "triton.errors": "tilewright.errors",
    "triton.knobs": "tilewright.base.knobs",
    "triton.language": "tilewright.language",
    "triton.language.core": "tilewright.language.core",
    "triton.language.extra": "tilewright.language.extra",
    "triton.language.extra.cuda": "tilewright.language.extra.cuda",
    "triton.language.extra.cuda.libdevice": "tilewright.language.extra.libdevice",
    "triton.language.extra.hip.libdevice": "tilewright.language.extra.libdevice",
    "triton.language.extra.libdevice": "tilewright.language.extra.libdevice",
    "triton.language.math": "tilewright.language.math",
    "triton.language.semantic": "tilewright.language.semantic",
    "triton.language.standard": "tilewright.language.standard",
    "triton.profiler": "tilewright.profiler",
    "triton.profiler.viewer": "tilewright.profiler.viewer",
    "triton.runtime": "tilewright.runtime",
    "triton.runtime._allocation": "tilewright.runtime._allocation",
    "triton.runtime.autotuner": "tilewright.runtime.autotuner",
    "triton.runtime.cache": "tilewright.runtime.cache",
    "triton.runtime.driver": "tilewright.runtime.driver",
    "triton.runtime.errors": "tilewright.errors",
    "triton.runtime.jit": "tilewright.runtime.jit",
    "triton.testing": "tilewright.testing",
    "triton.tools.tensor_descriptor": "tilewright.tools.tensor_descriptor",
}


def test_modules_are_the_same_objects() -> None:
    """Imported in either order of the names, and afterwards as they were."""
    code = f"""
from importlib import import_module
import sys
names = {SAME!r}
found = []
for name, ours in [*names.items(), *reversed(names.items())]:
    module = import_module(name)
    spec, parent = module.__spec__, name.rpartition(".")
    reached = getattr(import_module(parent[0]), parent[2])
    if not (module is reached is import_module(ours) and spec.name == module.__name__ == ours):
        found.append(name)
"""
    assert answer(code) == []


def test_each_module_is_loaded_from_its_file_once() -> None:
    code = f"""
from importlib import import_module
import sys
for name in {list(SAME)!r}:
    import_module(name)
files = {{}}
for module in set(sys.modules.values()):
    if getattr(module, "__file__", None) and "tilewright" in module.__file__:
        files.setdefault(module.__file__, []).append(module.__name__)
found = [names for names in files.values() if len(names) > 1]
"""
    assert answer(code) == []


def test_specifications() -> None:
    code = """
from importlib.util import find_spec
before = find_spec("triton").name
import triton.language
found = [before, find_spec("triton").name, triton.__spec__.name, find_spec("triton.testing2")]
for names in (("language", "tools.tensor_descriptor"), ("ops", "language.extra.tlx")):
    found.append([find_spec(f"triton.{n}") is not None for n in names])
"""
    assert answer(code) == ["triton", "triton", "triton", None, [True, True], [False, False]]


@pytest.mark.parametrize(
    "name",
    ["triton.ops", "triton.experimental.x", "triton.language.extra.tlx", "triton.language.x"],
)
def test_missing_module_is_reported_under_the_requested_name(name: str) -> None:
    code = f"""
try:
    import {name}
except ModuleNotFoundError as error:
    found = error.name
"""
    assert answer(code) == name


def test_version_is_the_same_through_every_name() -> None:
    code = """
import importlib.metadata, triton
found = [triton.__version__, importlib.metadata.version("triton"), tilewright.__version__]
"""
    version, recorded, own = answer(code)
    assert version == recorded == VERSION != own
    assert [p.name for p in Path(search_path()).glob("*.dist-info")] == [
        f"triton-{VERSION}.dist-info"
    ]
    assert version > "3.2.0"  # as text, the way some libraries compare


def test_public_names() -> None:
    code = """
import triton
bound = {}
exec("from triton import *", bound)
found = [bound["jit"] is tilewright.jit, bound["cdiv"](7, 2), bound["language"] is triton.language]
found += [n for n in tilewright.__all__ if not hasattr(triton, n)]
found += [n for n in ("ops", "frontend", "passes", "nothing") if hasattr(triton, n)]
"""
    assert answer(code) == [True, 4, True]


def test_modules_are_attributes_of_their_package() -> None:
    code = """
import triton
found = [
    triton.runtime.driver.active.get_current_target().backend,
    triton.runtime.jit.JITFunction is triton.JITFunction,
    triton.compiler.compiler.ASTSource is triton.compiler.ASTSource,
    triton.compiler.errors.CompilationError is triton.CompilationError,
    triton.runtime.errors.OutOfResources is triton.OutOfResources,
    triton.language.extra.libdevice.__name__,
    triton.tools.__name__,
]
"""
    libdevice = "tilewright.language.extra.libdevice"
    assert answer(code) == ["cpu", True, True, True, True, libdevice, "tilewright.tools"]


# Lines as libraries have them.
IMPORTS = """
from triton.compiler.compiler import ASTSource, CompiledKernel, make_backend, triton_key
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner, Config, Heuristics, OutOfResources, PTXASError
from triton.runtime.driver import driver
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import ConstexprFunction, JITFunction, TensorWrapper, reinterpret
from triton.testing import Benchmark, assert_close, do_bench, perf_report
from triton.tools.tensor_descriptor import TensorDescriptor
"""


def test_imports_of_libraries() -> None:
    code = f"""{IMPORTS}
import triton.runtime
from triton.runtime import driver as object_of_package
properties = driver.active.utils.get_device_properties(0)
found = [object_of_package.active is driver.active, properties["multiprocessor_count"] > 0]
found += [isinstance(triton_key(), str), reinterpret is triton.reinterpret]
"""
    assert answer(code) == [True] * 4


def test_installing_twice_changes_nothing() -> None:
    code = """
import os, sys
def state():
    return [sys.path, os.environ["PYTHONPATH"], [repr(type(f)) for f in sys.meta_path]]
before = repr(state())
tilewright.install_as_triton()
import triton
tilewright.install_as_triton()
found = before == repr(state())
"""
    assert answer(code) is True


def test_other_paths_of_the_environment_are_kept() -> None:
    code = "import os; os.environ['PYTHONPATH'] = '/a:/b'; tilewright.install_as_triton()\n"
    code += "found = os.environ['PYTHONPATH']"
    assert answer(code) == f"{search_path()}:/a:/b"


@pytest.mark.skipif(find_spec("triton") is not None, reason="Triton is installed too")
def test_torch_detects_triton_after_the_installation() -> None:
    code = f"""
import sys, os
from torch.utils._triton import has_triton_package
from tilewright.compat import names, install
sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, names.TritonFinder)]
sys.path.remove({search_path()!r})
found = [has_triton_package()]
tilewright.install_as_triton()
found.append(has_triton_package())
"""
    assert answer(code) == [False, True]
