"""The table of the public names of Triton 3.7, and what each does in tilewright.

    python -m tests.compat.surface

writes `docs/triton-names.md` from `triton-3.7.json`, which has the names and signatures, and from
what is importable here.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any, NamedTuple

import tilewright
from tilewright.compat.missing import Missing

PAGE = Path(__file__).parents[2] / "docs/triton-names.md"
FACTS = Path(__file__).with_name("triton-3.7.json")
HIDDEN = ("_semantic", "_generator", "_path", "self")

DIFFERS = {
    "triton.FutureKernel": "made by `AsyncCompileMode` alone",
    "triton.InterpreterError": "wraps the error of the kernel",
    "triton.backends.Backend": "takes a name; `compiler` and `driver` are attributes",
    "triton.backends.BaseBackend": "a target has its architecture from `GPUTarget`",
    "triton.backends.compiler.BaseBackend": "a target has its architecture from `GPUTarget`",
    "triton.compiler.CompiledKernel": "made by `compile` alone",
    "triton.compiler.compiler.CompiledKernel": "made by `compile` alone",
    "triton.compiler.compiler.IRSource": "reads tile IR, tilewright's own",
    "triton.compiler.IRSource": "reads tile IR, tilewright's own",
    "triton.knobs.CompileTimes": "times of tilewright's own steps",
    "triton.language.make_block_ptr": "not deprecated",
    "triton.language.target_info.current_target": "takes no argument in kernels",
    "triton.language.tensor_descriptor": "made by `make_tensor_descriptor` alone",
    "triton.language.tuple": "made by Python's tuples",
    "triton.runtime.InterpreterError": "wraps the error of the kernel",
    "triton.runtime.errors.AutotunerError": "takes the message",
    "triton.runtime.errors.InterpreterError": "wraps the error of the kernel",
    "triton.runtime.errors.PTXASError": "has the log and the file apart",
    "triton.runtime.jit.KernelParam": "made by `jit` alone",
    "triton.tools.disasm.get_sass": "reads cubins by `nvdisasm`",
}
"""Names that exist, with other parameters or another meaning."""

ABSENT = {
    "triton": "in `triton.compiler`",
    "triton.backends": "in `triton.backends.driver`",
    "triton.backends.compiler": "for back ends of Triton",
    "triton.compiler.compiler": "an internal of Triton's compiler",
    "triton.knobs": "how Triton declares settings",
    "triton.language.dtype": "an internal of Triton's compiler",
    "triton.runtime": "the cache is a folder",
    "triton.runtime.driver": "an internal of Triton's driver",
    "triton.runtime.jit": "an internal of Triton's launches",
    "triton.testing": "needs NVIDIA's `compute-sanitizer`",
    "triton.tools.disasm": "an internal of Triton's disassembler",
    "triton.tools.ragged_tma": "an internal of the module",
}
"""Why names of a module are not there."""


class Row(NamedTuple):
    """A name, its kind or parameters in Triton, and what it does here."""

    name: str
    signature: str
    here: str


def facts() -> dict[str, dict[str, str]]:
    """The public names of Triton by module, with parameters, or their kind."""
    return json.loads(FACTS.read_text("utf-8"))


def owner(module: str) -> Any:
    """The module, or the class of the language, that has the names."""
    if module in ("triton.language.tensor", "triton.language.dtype"):
        return getattr(importlib.import_module("triton.language"), module.rpartition(".")[2])
    return importlib.import_module(module)


def parameters(function: Any) -> list[str] | None:
    """Names of the parameters of a function; None if it has no signature."""
    try:
        found = inspect.signature(getattr(function, "fn", function)).parameters.values()
    except (TypeError, ValueError):
        return None
    return [
        ("*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else "") + p.name
        for p in found
        if p.name not in HIDDEN
    ]


def takes(function: Any, signature: str, *, method: bool) -> bool:
    """Whether a function takes what Triton's does."""
    ours = parameters(function)
    if ours is None or not signature.startswith("("):
        return True
    theirs = [p.partition("=")[0] for p in signature[1:-1].split(", ") if p not in ("", "*")]
    if method and ours[: len(theirs)] != theirs:
        ours = ours[1:]
    return ours[: len(theirs)] == theirs or set(theirs) <= set(ours) or "**options" in ours


def row(module: str, name: str, signature: str) -> Row:
    """What a name does here."""
    full = f"{module}.{name}"
    try:
        found = getattr(owner(module), name)
    except (AttributeError, RuntimeError):
        return Row(name, signature, f"absent: {ABSENT[module]}")
    if isinstance(found, Missing):
        return Row(name, signature, "may be imported; its use raises NotImplementedError")
    if full in DIFFERS:
        return Row(name, signature, f"differs: {DIFFERS[full]}")
    if module.endswith("libdevice") or takes(found, signature, method=module.endswith("tensor")):
        return Row(name, signature, "supported")
    return Row(name, signature, f"differs: takes ({', '.join(parameters(found) or [])})")


def rows(module: str) -> list[Row]:
    return [row(module, name, signature) for name, signature in facts()[module].items()]


def render() -> str:
    """The text of the page."""
    tilewright.install_as_triton()
    lines = [
        "# The public names of Triton 3.7",
        "",
        "Generated by `python -m tests.compat.surface`. For each name its parameters in Triton, "
        "and what it does under `import triton` ([code that imports it](existing-code.md)). "
        "Functions of the language without a note take the same parameters; which element types "
        "they take is [a page of its own](support.md). What goes beyond Triton is in "
        "[beyond Triton](beyond-triton.md).",
    ]
    for module in facts():
        found = rows(module)
        lines += ["", f"## `{module}`", ""]
        same = [r for r in found if r.here == "supported"]
        lines.append(f"{len(same)} of {len(found)} are supported.")
        if module.endswith("libdevice"):
            lines += ["", ", ".join(f"`{r.name}{r.signature}`" for r in same)]
            found = [r for r in found if r.here != "supported"]
        if found:
            lines += ["", "| name | in Triton | here |", "|---|---|---|"]
            lines += [f"| `{r.name}` | `{r.signature}` | {r.here} |" for r in found]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
