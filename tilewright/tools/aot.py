"""Ahead-of-time compilation: from a kernel and its argument types to files for C.

    typed = typed_source(kernel, "*fp32:16, *fp32:16, i32, 1024", {}, disjoint=False)
    exported = export_kernel(typed, "cuda:90", grid="(n + 1023) / 1024", base="add")
    for file in exported.write(Path("build/add")): print(file)

Output is reproducible: the files contain no times, paths or random names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile_source, device_of
from tilewright.compiler.source import ArgPath, ASTSource, digest, runtime_arguments
from tilewright.frontend.constant_key import constant_key
from tilewright.language.types import DescriptorLeaf, str_to_ty, tensor_descriptor_type
from tilewright.targets import registry
from tilewright.targets.export import (
    ALIGNED,
    ONE,
    Export,
    Exporter,
    ExportError,
    Parameter,
    c_name,
    parse_grid,
)
from tilewright.targets.protocol import GPUTarget, options_dict
from tilewright.tools.signature import Typed, UsageError

HASH_DIGITS = 8
_LETTERS = {ONE: "c"}  # suffix of each hint in names; "d" for every other hint


@dataclass(frozen=True)
class Exported:
    """A kernel exported to files.

    Attributes:
        symbol: the name of the launch function.
        stem: the common suffix of the file names, before their extensions.
        files: contents by extension.
        kernel: the compiled kernel.
    """

    symbol: str
    stem: str
    files: Mapping[str, bytes]
    kernel: CompiledKernel

    def write(self, path: Path) -> list[Path]:
        """Write the files ``PATH.STEM.SUFFIX``; returns their paths."""
        path.parent.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        for suffix, content in sorted(self.files.items()):
            file = path.with_name(f"{path.name}.{self.stem}{suffix}")
            file.write_bytes(content)
            written.append(file)
        return written


def export_kernel(
    typed: Typed,
    target: GPUTarget | str,
    *,
    options: Mapping[str, Any] | None = None,
    grid: str | None = None,
    base: str = "",
    file: str = "",
) -> Exported:
    """Compile a kernel and generate its C files. No device is needed.

    Args:
        typed: the kernel with the types of its arguments.
        target: the target, such as ``"cuda:90"``.
        options: compile options.
        grid: C expressions for the extents of the grid; None if callers pass them.
        base: the name of the launch function, to which a hash and the hints are appended; by
            default the name of the kernel.
        file: the name of the files, with the same suffix; by default that of the function.

    Raises:
        UsageError: the kernel or the target cannot be exported, or the grid is invalid.
        CompilationError: the kernel is invalid.
        KeyError, ValueError, AssertionError: invalid options.
    """
    compiler = registry.target(target)
    source, device = typed.source, device_of(target, compiler)
    exporter: Exporter | None = getattr(compiler, "export", None)
    if exporter is None:
        raise UsageError(
            f"kernels for {device.backend} cannot be called from C; those for "
            f"{', '.join(registry.exporting())} can"
        )
    without: Mapping[str, Any] = getattr(compiler, "export_options", {})
    parsed = registry.parsed_options(compiler, {**without, **(options or {})})
    base = base or source.name
    parameters = _parameters(typed)
    stem = _stem(typed, parameters, str(sorted(options_dict(parsed).items())), compiler.key())
    constants = _numbers(source)
    known = [p.name for p in parameters if not p.is_pointer] + list(constants)
    try:
        export = Export(
            kernel=source.name,
            base=base,
            symbol=f"{base}_{stem}",
            header=f"{file or base}.{stem}.h",
            parameters=parameters,
            constants=constants,
            grid=None if grid is None else parse_grid(grid, known),
            algorithm=_algorithm(typed, options_dict(parsed)),
        )
        kernel = compile_source(source, device, parsed)
        files = exporter(kernel.asm, kernel.metadata, export)
    except ExportError as error:
        raise UsageError(str(error)) from error
    return Exported(export.symbol, stem, files, kernel)


def _parameters(typed: Typed) -> tuple[Parameter, ...]:
    """The arguments that are passed from C, in the kernel's order."""
    source = typed.source
    names, types = list(source.signature), list(source.signature.values())
    for position, type in typed.ones.items():
        types[position] = type
    return tuple(
        Parameter(
            _name_at(path, names, types), _plain(type), _hint(source, path, types, typed.ones)
        )
        for path, type in runtime_arguments(types)
    )


def _plain(type: str) -> str:
    """The canonical spelling of a type: ``i32`` for ``int32``."""
    stars = len(type) - len(type.lstrip("*"))
    if stars:
        return type
    return getattr(str_to_ty(type), "short", type)


def _leaf(path: ArgPath, types: list[Any]) -> DescriptorLeaf | None:
    """The part of a descriptor at a path; None for other arguments."""
    at: Any = types
    for i, index in enumerate(path):
        at = at[index]
        found = str_to_ty(at) if isinstance(at, str) and at.startswith("tensordesc") else None
        if isinstance(found, tensor_descriptor_type):
            part = path[i + 1]
            return next(leaf for leaf in found.leaves() if leaf.place == part)
    return None


def _name_at(path: ArgPath, names: list[str], types: list[Any]) -> str:
    """The C name of an argument: with the index for a tuple element, and with the name of the part
    for a descriptor."""
    leaf = _leaf(path, types)
    inner = [str(i) for i in (path[1:] if leaf is None else path[1:-1])]
    if leaf is not None and leaf.name:
        inner += leaf.name.split(".")
    return c_name("_".join([names[path[0]], *inner]))


def _hint(source: ASTSource, path: ArgPath, types: list[Any], ones: Mapping[int, str]) -> int:
    """The multiple that callers guarantee of an argument: `ONE`, `ALIGNED`, the divisibility of a
    part of a descriptor, or 0 for none."""
    if path[0] in ones:
        return ONE
    leaf = _leaf(path, types)
    if any(name == "tt.divisibility" for name, _ in source.attrs.get(path, [])):
        return ALIGNED
    return leaf.divisibility if leaf is not None and leaf.divisibility > 1 else 0


def _numbers(source: ASTSource) -> dict[str, int | float]:
    """Numeric compile-time parameters by their C names."""
    names = list(source.signature)
    values = ((path, getattr(value, "value", value)) for path, value in source.constants.items())
    return {
        c_name(names[path[0]]): value
        for path, value in values
        if len(path) == 1 and type(value) in (int, float)
    }


def _constants(typed: Typed) -> list[tuple[str, Any]]:
    """Compile-time parameters by name, except arguments specialised for 1."""
    source = typed.source
    names = list(source.signature)
    return [
        ("_".join([names[path[0]], *map(str, path[1:])]), value)
        for path, value in sorted(source.constants.items())
        if path[0] not in typed.ones
    ]


def _algorithm(typed: Typed, options: Mapping[str, Any]) -> str:
    """A description of the options and compile-time values that distinguish this variant from
    others with the same arguments."""
    shown = [f"warps{options['num_warps']}xstages{options['num_stages']}"]
    shown += [f"{name}={getattr(value, 'value', value)!r}" for name, value in _constants(typed)]
    return ",".join(shown)


def _stem(typed: Typed, parameters: tuple[Parameter, ...], *more: str) -> str:
    """A hash of the inputs of the code, and the hints: ``3fa9c21b_0d1d2``."""
    types = ", ".join(f"{p.name}: {p.type}" for p in parameters)
    constants = ", ".join(f"{name}={constant_key(value)!r}" for name, value in _constants(typed))
    hints = "".join(
        f"{i}{_LETTERS.get(p.hint, 'd') if p.hint else ''}" for i, p in enumerate(parameters)
    )
    key = digest(typed.source.fn.cache_key, types, constants, str(typed.source.attrs), *more)
    return f"{key[:HASH_DIGITS]}_{hints}"
