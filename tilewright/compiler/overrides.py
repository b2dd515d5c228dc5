"""Stages of a kernel that a file replaces: what the compiler wrote, edited by hand.

    TILEWRIGHT_KERNEL_DUMP=1 TILEWRIGHT_DUMP_DIR=stages python program.py
    ...                                     # stages/<folder>/add.llir is edited, the others removed
    TILEWRIGHT_KERNEL_OVERRIDE=1 TILEWRIGHT_OVERRIDE_DIR=stages python program.py

Both folders have the same names in them: what the kernel, its types and compile-time values, the
target and the options give, whatever the version of the compiler and the other settings. What is
made of a replaced stage is made anew; later stages that are there as well replace that again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.base import knobs
from tilewright.base.diagnostics import TritonError
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.source import MAX_NAME, Source, digest
from tilewright.targets.protocol import GPUTarget

NOT_OVERRIDABLE = frozenset({"source"})
"""What is written, but not read back: the kernel's source is in the program."""


class StageOverrideError(TritonError):
    """What a file replaces a stage with does not compile, or there is no such stage."""


def stages_name(source: Source, device: GPUTarget, options: Any) -> str:
    """The name of the folder of a kernel's stages."""
    return digest(source.hash(), f"{device.backend} {device.arch}", repr(options))


def dump(kernel: CompiledKernel, source: Source, device: GPUTarget, options: Any) -> Path:
    """Write the stages of a kernel to a folder of its own below the knob `cache.dump_dir`."""
    root = knobs.cache.dump_dir
    folder = Path(root) if root else knobs.cache.folder() / "dump"
    folder = folder / stages_name(source, device, options)
    folder.mkdir(parents=True, exist_ok=True)
    for stage, content in kernel.asm.items():
        path = folder / f"{kernel.metadata.source_name}.{stage}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def stage_overrides(source: Source, device: GPUTarget, options: Any) -> dict[str, bytes]:
    """What replaces stages of a kernel, by their names: files ``<kernel>.<stage>`` in its folder
    below the knob `cache.override_dir`. Nothing unless the knob `compilation.override` is set."""
    folder = override_folder(source, device, options)
    if folder is None or not folder.is_dir():
        return {}
    files = folder.glob(f"{source.name[:MAX_NAME]}.*")
    found = {path.suffix[1:]: path.read_bytes() for path in sorted(files) if path.is_file()}
    return {stage: content for stage, content in found.items() if stage not in NOT_OVERRIDABLE}


def override_folder(source: Source, device: GPUTarget, options: Any) -> Path | None:
    """Where a kernel's replaced stages are looked for; None where the settings want none.

    Raises:
        StageOverrideError: stages are to be replaced, but no folder is set.
    """
    if not knobs.compilation.override:
        return None
    root = knobs.cache.override_dir
    if not root:
        raise StageOverrideError(
            "the setting compilation.override (TILEWRIGHT_KERNEL_OVERRIDE) replaces stages of "
            "kernels by those in cache.override_dir (TILEWRIGHT_OVERRIDE_DIR), which is not set"
        )
    return Path(root) / stages_name(source, device, options)
