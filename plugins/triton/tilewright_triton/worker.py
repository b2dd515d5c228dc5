"""The process in which Triton compiles. It runs in the environment that has Triton, and imports
nothing of tilewright: both provide a package `triton`, and a failed assertion of MLIR ends the
process.

Each line of the input is a request in JSON, each line of the output its answer. `client.py` is the
other side.
"""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import os
import sys
import tempfile
import types
from typing import Any

WIDTHS = (8, 16, 32, 64)  # bits of the operands of products


def tupled(value: Any) -> Any:
    """A value of JSON with tuples instead of lists, as Triton's options have to be hashable."""
    return tuple(tupled(v) for v in value) if isinstance(value, list) else value


class Backend:
    """One back end of Triton, for one architecture."""

    def __init__(self, name: str, arch: str, lanes: int) -> None:
        backends = importlib.import_module("triton.backends").backends
        compilers = importlib.import_module("triton.backends.compiler")
        self.target = compilers.GPUTarget(name, int(arch) if arch.isdigit() else arch, lanes)
        classes = [b.compiler for b in backends.values() if b.compiler.supports_target(self.target)]
        if len(classes) != 1:
            raise ValueError(
                f"{len(classes)} back ends of Triton support {name}/{arch}; there are "
                f"{', '.join(sorted(backends)) or 'none'}"
            )
        self.compiler = classes[0](self.target)

    def options(self, given: dict[str, Any]) -> Any:
        return self.compiler.parse_options({k: tupled(v) for k, v in given.items()})

    def describe(self) -> dict[str, Any]:
        options = self.options({})
        dots = self.compiler.get_codegen_implementation(options).get("min_dot_size")
        least = {bits: dots(operand(bits), operand(bits)) if dots else (1, 1, 1) for bits in WIDTHS}
        return {
            "hash": self.compiler.hash(),
            "options": dict(vars(options)),
            "binary": self.compiler.binary_ext,
            "dots": least,
        }

    def parse(self, text: str) -> Any:
        """The module of a text, verified."""
        ir = importlib.import_module("triton._C.libtriton").ir
        context = ir.context()
        ir.load_dialects(context)
        self.compiler.load_dialects(context)
        with tempfile.NamedTemporaryFile("w", suffix=".ttir", delete=False) as file:
            file.write(text)
        try:
            module = ir.parse_mlir_module(file.name, context)
        finally:
            os.unlink(file.name)
        module.context = context
        return module

    def verify(self, text: str) -> dict[str, Any]:
        return {"valid": self.parse(text).verify()}

    def compile(self, text: str, given: dict[str, Any]) -> dict[str, Any]:
        """All stages, and the metadata."""
        options, module = self.options(given), self.parse(text)
        metadata = {"target": self.target, **vars(options)}
        made: dict[str, str | bytes] = {}
        for name, stage in stages_of(self.compiler, options).items():
            module = stage(module, metadata)
            made[name] = module if isinstance(module, bytes) else str(module)
        return {"stages": {n: encoded(s) for n, s in made.items()}, "metadata": metadata}


def operand(bits: int) -> Any:
    """The attributes of an operand's type that `min_dot_size` reads."""
    scalar: Any = types.SimpleNamespace(primitive_bitwidth=bits, is_int8=lambda: bits == 8)
    scalar.is_fp8 = scalar.is_fp64 = scalar.is_bf16 = lambda: False
    return types.SimpleNamespace(scalar=scalar, primitive_bitwidth=bits)


def stages_of(compiler: Any, options: Any) -> dict[str, Any]:
    """The stages by name; older versions have no language besides Triton."""
    stages: dict[str, Any] = {}
    if len(inspect.signature(compiler.add_stages).parameters) < 3:
        compiler.add_stages(stages, options)
    else:
        languages = importlib.import_module("triton.backends.compiler").Language
        compiler.add_stages(stages, options, languages.TRITON)
    return stages


def encoded(stage: str | bytes) -> dict[str, str]:
    if isinstance(stage, bytes):
        return {"base64": base64.b64encode(stage).decode()}
    return {"text": stage}


def plain(value: Any) -> Any:
    """A representation in JSON of sets, and of Triton's `GPUTarget`."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return dict(vars(value)) if hasattr(value, "__dict__") else repr(value)


def answer(request: dict[str, Any], known: dict[Any, Backend]) -> dict[str, Any]:
    """The answer to one request."""
    what = request["what"]
    if what == "version":
        triton = importlib.import_module("triton")
        return {"version": triton.__version__, "file": triton.__file__}
    if what == "backends":
        return {"backends": sorted(importlib.import_module("triton.backends").backends)}
    key = tuple(request["target"])
    if key not in known:
        known[key] = Backend(*key)
    backend = known[key]
    if what == "describe":
        return backend.describe()
    if what == "verify":
        return backend.verify(request["text"])
    if what == "options":
        return {"options": dict(vars(backend.options(request["given"])))}
    return backend.compile(request["text"], request["given"])


def main() -> None:
    # What Triton and its tools print must not mix with the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    known: dict[Any, Backend] = {}
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            before = os.dup(2)
            os.dup2(log.fileno(), 2)
            try:
                found = answer(json.loads(line), known)
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            log.seek(0)
            found["log"] = log.read()[-20000:]
        out.write(json.dumps(found, default=plain) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
