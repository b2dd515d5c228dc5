"""`import tilewright` is light: heavy packages come with the first kernel that needs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("cupy", "jax", "llvmlite", "torch", "triton")

# The modules that `import tilewright` loads, by package. A program that defines kernels and
# launches them from the cache needs these; what only some programs use, and what only compilation
# needs, is imported lazily (docs/decisions/0023-lazy-imports.md).
EAGER = {
    "tilewright": "backends errors",
    "tilewright.base": "codes diagnostics digest fact_cache hooks knobs lazy lazy_import locks "
    "plug_ins record spelling triton_knobs",
    "tilewright.compat": "extras install names",
    "tilewright.compiler": "artifact driver overrides source version",
    "tilewright.frontend": "annotations captured constant_key definition dependencies source",
    "tilewright.ir": "types",
    "tilewright.language": "aggregate asm atomic block_pointer block_values core debug hints "
    "iteration math operators products random shape standard target_info tensor_descriptor types "
    "values",
    "tilewright.language.extra": "cpu cuda hip threads",
    "tilewright.language.semantic": "context",
    "tilewright.runtime": "_allocation async_compile cache cache_entries descriptors "
    "device_caches driver grid interface jit kinds launch observed_dict placement reachable slots "
    "specialization_data specialize tensors variants wrappers",
    "tilewright.runtime.drivers": "protocol",
    "tilewright.targets": "base_backend protocol registry",
}

# Which modules are loaded, and how long that took in a fresh interpreter.
PROBE = """
import json, sys, time
begin = time.perf_counter()
import {module}
seconds = time.perf_counter() - begin
print(json.dumps({{"seconds": seconds, "modules": sorted(sys.modules)}}))
"""


def _loaded_by(module: str) -> tuple[set[str], float]:
    """The modules that importing `module` loads, and the seconds that it takes."""
    command = [sys.executable, "-W", "error", "-c", PROBE.format(module=module)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    return set(answer["modules"]), answer["seconds"]


def _packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("module", ["tilewright", "tilewright.language"])
def test_import_loads_no_heavy_package(module: str) -> None:
    loaded, seconds = _loaded_by(module)
    # Printed, not asserted: the time depends on the machine and its load.
    print(f"import {module}: {seconds * 1e3:.0f} ms")
    assert not _packages(loaded) & set(HEAVY)


def test_import_loads_only_what_every_program_needs() -> None:
    expected = {f"{package}.{name}" for package, names in EAGER.items() for name in names.split()}
    loaded, _ = _loaded_by("tilewright")
    ours = {name for name in loaded if name.startswith("tilewright.")}
    assert ours - EAGER.keys() == expected


def test_import_loads_no_path_or_url_parsers() -> None:
    """`pathlib` imports `urllib.parse` in Python 3.11: together 3 to 4 ms."""
    loaded, _ = _loaded_by("tilewright")
    numpy, _ = _loaded_by("numpy")
    assert not _packages(loaded - numpy) & {"ipaddress", "pathlib", "urllib"}


@pytest.mark.parametrize("module", ["pipeline", "codegen"])
def test_compilation_for_the_cpu_loads_no_layouts(module: str) -> None:
    """Only on GPUs, tiles have layouts: a first compilation for the CPU does not wait for them."""
    loaded, _ = _loaded_by(f"tilewright.targets.cpu.{module}")
    gpu = ("tilewright.layout", "tilewright.lowering.simt", "tilewright.targets.gpu")
    assert not {name for name in loaded if name.startswith(gpu)}


def test_probe_lists_loaded_modules() -> None:
    loaded, _ = _loaded_by("llvmlite")
    assert "llvmlite" in _packages(loaded)
