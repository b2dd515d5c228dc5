"""Dumping the stages of a kernel, and overriding stages with edited files.

    TILEWRIGHT_KERNEL_DUMP=1 TILEWRIGHT_DUMP_DIR=stages python program.py
    ...                                     # edit stages/<folder>/add.llir, remove the other files
    TILEWRIGHT_KERNEL_OVERRIDE=1 TILEWRIGHT_OVERRIDE_DIR=stages python program.py

The folder name depends on the kernel, its types and compile-time values, the target and the
options, but not on other settings or the version of the compiler. The stages after an overridden
one are regenerated from it; a later stage that is also present overrides the regenerated one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.base import knobs
from tilewright.base.diagnostics import TritonError
from tilewright.base.lazy_import import lazy_import
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.source import MAX_NAME, Source, digest
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    import pathlib
else:
    pathlib = lazy_import("pathlib")

NOT_OVERRIDABLE = frozenset({"source"})
"""Dumped, but not read back: the source of the kernel is the program's."""


class StageOverrideError(TritonError):
    """An overriding stage does not compile, or the target has no such stage."""


def stages_name(source: Source, device: GPUTarget, options: Any) -> str:
    """The name of the folder for the stages of a kernel."""
    return digest(source.hash(), f"{device.backend} {device.arch}", repr(options))


def dump(kernel: CompiledKernel, source: Source, device: GPUTarget, options: Any) -> pathlib.Path:
    """Write the stages of a kernel to its folder below the setting `cache.dump_dir`."""
    root = knobs.cache.dump_dir
    folder = pathlib.Path(root or pathlib.Path(knobs.cache.folder(), "dump"))
    folder = folder / stages_name(source, device, options)
    folder.mkdir(parents=True, exist_ok=True)
    for stage, content in kernel.asm.items():
        path = folder / f"{kernel.metadata.source_name}.{stage}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def stage_overrides(source: Source, device: GPUTarget, options: Any) -> dict[str, bytes]:
    """The overriding stages of a kernel by name: the files ``<kernel>.<stage>`` in its folder below
    the setting `cache.override_dir`. Empty unless the setting `compilation.override` is on."""
    folder = override_folder(source, device, options)
    if folder is None or not folder.is_dir():
        return {}
    files = folder.glob(f"{source.name[:MAX_NAME]}.*")
    found = {path.suffix[1:]: path.read_bytes() for path in sorted(files) if path.is_file()}
    return {stage: content for stage, content in found.items() if stage not in NOT_OVERRIDABLE}


def override_folder(source: Source, device: GPUTarget, options: Any) -> pathlib.Path | None:
    """The folder of overriding stages of a kernel; None if overriding is off.

    Raises:
        StageOverrideError: overriding is on, but no folder is set.
    """
    if not knobs.compilation.override:
        return None
    root = knobs.cache.override_dir
    if not root:
        raise StageOverrideError(
            "the setting compilation.override (TILEWRIGHT_KERNEL_OVERRIDE) replaces stages of "
            "kernels by those in cache.override_dir (TILEWRIGHT_OVERRIDE_DIR), which is not set"
        )
    return pathlib.Path(root) / stages_name(source, device, options)
