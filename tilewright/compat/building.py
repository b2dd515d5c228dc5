"""Python modules in C that programs build at run time, the interface of `triton.runtime.build`.

tilewright itself builds none: its kernels and launchers are made without a C compiler.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.base import knobs
from tilewright.compat.managers import get_cache_manager
from tilewright.runtime.cache import digest


def platform_key() -> str:
    """The dependencies of a compiled module other than its source: machine, system, Python."""
    return f"{platform.machine()}-{platform.system()}-{sys.implementation.cache_tag}"


def build(
    name: str,
    src: str,
    srcdir: str,
    library_dirs: Sequence[str],
    include_dirs: Sequence[str],
    libraries: Sequence[str],
    ccflags: Sequence[str] = (),
) -> str:
    """Compile a C file into an extension module in `srcdir`; returns its path.

    Raises:
        RuntimeError: there is no C compiler.
        subprocess.CalledProcessError: it failed.
    """
    settings: Any = knobs.triton_group("build")
    chosen = settings.cc
    compiler = chosen or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError(
            f"{name} is in C: install a C compiler, or set knobs.build.cc to its path"
        )
    path = Path(srcdir) / (name + (sysconfig.get_config_var("EXT_SUFFIX") or ".so"))
    includes = [*include_dirs, sysconfig.get_paths()["include"], srcdir]
    subprocess.run(
        [
            *(compiler, src, "-O2", "-shared", "-fPIC", "-o", str(path)),
            *ccflags,
            *(f"-I{folder}" for folder in includes),
            *(f"-L{folder}" for folder in library_dirs),
            *(f"-l{library}" for library in libraries),
        ],
        check=True,
    )
    return str(path)


def compile_module_from_src(
    src: str,
    name: str,
    library_dirs: Sequence[str] | None = None,
    include_dirs: Sequence[str] | None = None,
    libraries: Sequence[str] | None = None,
    ccflags: Sequence[str] | None = None,
) -> ModuleType:
    """Compile C source into a Python module and import it; the cache keeps the file.

    Raises: as `build`; ImportError if the module does not load.
    """
    parts = [library_dirs or (), include_dirs or (), libraries or (), ccflags or ()]
    cache = get_cache_manager(digest(platform_key(), src, name, repr([list(p) for p in parts])))
    file = name + (sysconfig.get_config_var("EXT_SUFFIX") or ".so")
    path = cache.get_file(file)
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "main.c"
            source.write_text(src, "utf-8")
            made = build(name, str(source), folder, *parts)
            path = cache.put(Path(made).read_bytes(), file, binary=True)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_build = build  # Triton's name of it
