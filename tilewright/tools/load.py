"""Shared by the commands: kernels, types, values and targets on the command line, IR files."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import traceback
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from tilewright.base.diagnostics import TritonError
from tilewright.compiler.source import ASTSource
from tilewright.frontend.source import SourceFunction
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.verify import verify_module
from tilewright.runtime.tensors import CPU
from tilewright.targets import registry
from tilewright.targets.protocol import Target, UnknownOptionError
from tilewright.tools.signature import UsageError, parse_pairs, parse_value, source_of

SIGNATURES = "__tilewright_signatures__"


class ScriptError(UsageError):
    """Importing a script for its kernels failed."""


def read_ir(path: Path) -> Module:
    """The verified module in a file; `-` is standard input."""
    text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    module = parse_module(text, str(path))
    verify_module(module)
    return module


def import_script(path: Path) -> Any:
    """Import a script by its path as a module; `__name__` is not "__main__".

    Raises:
        UsageError: there is no such file, or it is not Python.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    if not path.exists():
        raise UsageError(f"no such file: {path}")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look up a class's module in sys.modules.
    sys.modules[path.stem] = module
    # As under `python SCRIPT`, modules in the script's folder can be imported.
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def failure_of(error: BaseException, path: Path) -> str:
    """The exception of a script and the script's line, as the end of a sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if Path(f.filename).resolve() == path.resolve()]
    return f"{f' in line {lines[-1]}' if lines else ''}: {type(error).__name__}: {error}"


def kernels_of(module: Any) -> dict[str, SourceFunction]:
    """The kernels of a module by name; wrappers such as an autotuner are unwrapped."""
    result: dict[str, SourceFunction] = {}
    for name, value in vars(module).items():
        inner = value
        while inner is not None and not isinstance(inner, SourceFunction):
            inner = vars(inner).get("fn") if hasattr(inner, "__dict__") else None
        if inner is not None:
            result[name] = inner
    return result


def find_kernel(place: str) -> tuple[SourceFunction, Any]:
    """The kernel ``FILE::KERNEL``, or the only one of ``FILE``, and its module.

    Raises:
        UsageError: there is no such file or kernel, or the name is ambiguous.
        ScriptError: importing the file failed.
    """
    file, _, name = place.partition("::")
    try:
        module = import_script(Path(file))
    except (UsageError, TritonError):
        raise
    except (Exception, SystemExit) as error:  # any error of the script
        raise ScriptError(f"importing {file} failed{failure_of(error, Path(file))}") from error
    kernels = kernels_of(module)
    if not name and len(kernels) == 1:
        return next(iter(kernels.values())), module
    if name not in kernels:
        has = ", ".join(kernels) or "none"
        raise UsageError(f"write {file}::KERNEL; its kernels: {has}")
    return kernels[name], module


def add_kernel_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that `kernel_source` reads."""
    parser.add_argument("kernel", metavar="FILE::KERNEL", help="a kernel in a Python file")
    parser.add_argument(
        "--signature",
        "-s",
        help='types of the arguments, as "x=*fp32:16,n=i32"; :16 means a multiple of 16',
    )
    parser.add_argument(
        "--constexpr",
        "-c",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a compile-time parameter",
    )


def kernel_source(args: argparse.Namespace) -> ASTSource:
    """The kernel with its types, from the arguments of `add_kernel_arguments`.

    Without ``--signature``, it is looked up by the kernel's name in the module's
    ``__tilewright_signatures__``: ``{"add": ("x=*fp32:16,n=i32", {"BLOCK": 1024})}``. A
    compile-time value that is the name of a global of the module, such as a function, denotes that
    global.

    Raises:
        UsageError: there is no such kernel, or its types are missing or invalid.
    """
    fn, module = find_kernel(args.kernel)
    constants = parse_pairs(args.constexpr, "--constexpr")
    constexprs: dict[str, Any] = {
        name: getattr(module, text, None) or parse_value(text) for name, text in constants.items()
    }
    signature: str | None = args.signature
    if signature is None:
        known = getattr(module, SIGNATURES, {})
        if fn.__name__ not in known:
            raise UsageError(
                f"give the types of {fn.__name__}({', '.join(fn.arg_names)}), as with "
                f'--signature "x=*fp32:16,n=i32" --constexpr BLOCK=128, or in the file: '
                f"{SIGNATURES} = "
                f'{{"{fn.__name__}": ("x=*fp32:16,n=i32", {{"BLOCK": 128}})}}'
            )
        signature, defaults = known[fn.__name__]
        constexprs = {**defaults, **constexprs}
    # As at a launch: the runtime detects overlap of tensors only if it knows their extents, which
    # it does on the CPU.
    with usage_errors():
        disjoint = registry.described(args.target).backend == CPU
    return source_of(fn, signature or "", constexprs, disjoint=disjoint)


def parse_options(items: Iterable[str]) -> dict[str, Any]:
    """Compile options from ``NAME=VALUE`` texts."""
    return {name: parse_value(text) for name, text in parse_pairs(items, "--option").items()}


@contextlib.contextmanager
def usage_errors() -> Generator[None]:
    """Convert the errors for unknown targets and invalid options to `UsageError`."""
    try:
        yield
    except UnknownOptionError as error:
        raise UsageError(str(error)) from error
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise UsageError(str(error.args[0] if error.args else error)) from error


def target_of(args: argparse.Namespace) -> tuple[Target, Any]:
    """The target and its parsed options, from the arguments of `add_target_arguments`."""
    with usage_errors():
        target = registry.target(args.target)
        return target, registry.parsed_options(target, parse_options(args.option))


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--target`` and ``--option``."""
    parser.add_argument(
        "--target", "-t", default="cpu", help="target, such as cpu or sm_90 (default: cpu)"
    )
    parser.add_argument(
        "--option",
        "-o",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a compile option, such as num_warps=8",
    )
