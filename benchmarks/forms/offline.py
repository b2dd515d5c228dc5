"""Compiles forms for an H200 without one, and compares the machine code of both compilers.

python -m benchmarks.forms.offline                       all forms
python -m benchmarks.forms.offline --only paged,GEMV     forms by parts of their names
python -m benchmarks.forms.offline --dump FOLDER         also writes PTX and SASS there

For each kernel: instructions, registers, spilled bytes, shared memory, and milliseconds of
processor time of the compilation, assembler included. Both compilers take the same assembler if
TILEWRIGHT_PTXAS_PATH names Triton's. More instructions are a question, not an answer: loops may be
unrolled, and code after a loop may be long. Nothing is launched.
"""

from __future__ import annotations

import argparse
import importlib
import re
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.forms.form import Form
from benchmarks.forms.run import KERNELS
from benchmarks.forms.work import ALL, FIRST, chosen
from benchmarks.gpu import dialect
from benchmarks.gpu.case import Setting
from tilewright.runtime.descriptors import descriptor_type, is_descriptor
from tilewright.runtime.tensors import element_type
from tilewright.targets.nvidia.cubin import resources
from tilewright.targets.nvidia.disassemble import count_instructions, sass

TARGET = ("cuda", 90, 32)
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "launch_pdl")
SCALARS = {bool: "u1", float: "fp32"}


@dataclass
class Compiled:
    """What a compiler made of one launch."""

    instructions: int
    registers: int
    spilled: int
    shared: int
    ms: float

    def __str__(self) -> str:
        spills = f"/{self.spilled}B" if self.spilled else ""
        return (
            f"{self.instructions:5} r{self.registers}{spills} sh{self.shared // 1024}K "
            f"{self.ms:.0f}ms"
        )


@dataclass
class Launch:
    """A recorded launch: the kernel and its arguments by name."""

    kernel: Any
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]


class Recorder:
    """Stands for a file of kernels: launches of them are recorded instead of performed."""

    def __init__(self, kernels: Any) -> None:
        self.kernels = kernels
        self.launches: list[Launch] = []

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self.kernels, name)
        if not hasattr(kernel, "arg_names"):
            return kernel
        return _Launcher(lambda *given, **named: self._record(kernel, given, named))

    def _record(self, kernel: Any, given: Sequence[Any], named: dict[str, Any]) -> Any:
        options = {key: named.pop(key) for key in OPTIONS if key in named}
        arguments = {**dict(zip(kernel.arg_names, given, strict=False)), **named}
        for parameter in kernel.params:
            if parameter.name not in arguments:
                arguments[parameter.name] = parameter.default
        self.launches.append(Launch(kernel, arguments, options))
        return SimpleNamespace()


class _Launcher:
    def __init__(self, record: Callable[..., Any]) -> None:
        self.record = record

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.record


def launches(form: Form, module: str) -> Iterator[Launch]:
    """The launches of a form, with tensors that have no memory."""
    recorder = Recorder(dialect.load(form.file, module, KERNELS))
    form.prepare(Setting("meta", "full")).launch(recorder)
    yield from recorder.launches


def compile_launch(launch: Launch, module: str) -> tuple[Compiled, Any]:
    """Compile as a launch on the device would, for addresses that are multiples of 16."""
    compiler = importlib.import_module(f"{module}.compiler")
    types, constants, attributes = _specialised(launch, module)
    source = compiler.ASTSource(launch.kernel, types, constants, attributes)
    target = importlib.import_module(f"{module}.backends.compiler").GPUTarget(*TARGET)
    begin = _processor_ms()
    kernel = importlib.import_module(module).compile(source, target, dict(launch.options))
    ms = _processor_ms() - begin
    code = sass(kernel.asm["cubin"])
    count = sum(n for name, n in count_instructions(code).items() if "." not in name)
    used = resources(kernel.asm["cubin"], kernel.metadata.name)
    return Compiled(count, used.registers, used.local_bytes, kernel.metadata.shared, ms), kernel


def _specialised(launch: Launch, module: str) -> tuple[Any, Any, Any]:
    """Types, constants and attributes of the arguments, by the rules of launches."""
    types: dict[str, str] = {}
    constants: dict[Any, Any] = {}
    attributes: dict[Any, Any] = {}
    for i, parameter in enumerate(launch.kernel.params):
        value = launch.arguments[parameter.name]
        if parameter.is_constexpr or value is None or (type(value) is int and value == 1):
            types[parameter.name] = "constexpr"
            constants[i,] = value
            continue
        types[parameter.name] = _type_of(value)
        if not is_descriptor(value):
            attributes[i,] = _facts(value, i, module)
        elif module == dialect.WRITTEN_FOR:
            for at, part in enumerate(_base_and_extents(value)):
                attributes[i, at] = _facts(part, i, module)
    return types, constants, attributes


def _base_and_extents(descriptor: Any) -> Sequence[Any]:
    """The parts of a descriptor that have facts; those of the strides are known from its type."""
    return descriptor.base, *descriptor.shape


def _facts(value: Any, number: int, module: str) -> list[Any]:
    """The attributes of an argument."""
    facts: list[Any] = []
    if isinstance(value, torch.Tensor) or (type(value) is int and value % 16 == 0):
        facts.append(["tt.divisibility", 16])
    elif type(value) is int and value % 8 == 0 and module == dialect.WRITTEN_FOR:
        facts.append(["tt.divisibility", 8])
    if isinstance(value, torch.Tensor) and module == dialect.WRITTEN_FOR:
        facts.append(["tw.alias", number])  # no two of them overlap
    return facts


def _type_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "*" + element_type(value.dtype)
    if is_descriptor(value):
        return descriptor_type(value, element_type(value.base.dtype))
    if type(value) in SCALARS:
        return SCALARS[type(value)]
    assert type(value) is int, f"an argument of type {type(value)}"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def _processor_ms() -> float:
    """Processor time of this process and of programs that it ran."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(1000 * (one.ru_utime + one.ru_stime) for one in used)


def compare(form: Form, dump: Path | None) -> None:
    """Print a line for each kernel of a form."""
    for ours, theirs in zip(*(launches(form, m) for m in dialect.MODULES), strict=True):
        made: list[Compiled] = []
        for launch, module in zip((ours, theirs), dialect.MODULES, strict=True):
            compiled, kernel = compile_launch(launch, module)
            made.append(compiled)
            if dump is not None:
                stem = re.sub(r"\W+", "-", f"{form.name}-{launch.kernel.__name__}-{module}")
                (dump / f"{stem}.ptx").write_text(kernel.asm["ptx"])
                (dump / f"{stem}.sass").write_text(sass(kernel.asm["cubin"]))
        a, b = made
        print(
            f"{b.instructions / a.instructions:.2f} time {b.ms / a.ms:.2f} {form.name}: {a} | {b}",
            flush=True,
        )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT,…", help="parts of names of forms")
    parser.add_argument("--dump", type=Path, help="write PTX and SASS to this folder")
    args = parser.parse_args(arguments)
    if args.dump:
        args.dump.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with dialect.caches(Path(folder, "first")):
            for module in dialect.MODULES:  # imports and tables are not of any kernel
                compile_launch(next(launches(ALL[FIRST], module)), module)
        with dialect.caches(Path(folder)):
            for form in chosen(args.only):
                try:
                    compare(form, args.dump)
                except Exception as error:
                    print(f"{form.name}: {type(error).__name__}: {str(error)[-300:]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
