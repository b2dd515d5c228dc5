"""Compile a kernel ahead of time to files that a C or C++ program is built with.

python -m tilewright compile k.py::add -s "*fp32:16, *fp32:16, i32, 1024" -g "(n + 1023) / 1024"
python -m tilewright compile k.py -n add -s "x=*fp32, n=i32" -c BLOCK=1024 -t cuda:90 -o build/add

For a GPU, writes a header and a source file with the embedded binary; for the CPU, a header and an
object file. docs/ahead-of-time.md describes their use. `python -m tilewright link` combines several
variants into one function.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.runtime import driver
from tilewright.tools.aot import export_kernel
from tilewright.tools.command import run_command
from tilewright.tools.load import find_kernel, usage_errors
from tilewright.tools.signature import UsageError, parse_pairs, parse_value, typed_source

HELP = "compile a kernel ahead of time, for a program in C"


@dataclass
class CompileArgs:
    """The arguments of `compile_kernel`, which are those of the command line.

    Attributes:
        path: the Python file.
        kernel_name: the kernel in it; "" for the only one.
        signature: types and compile-time values, such as ``"*fp32:16, i32, 1024"``.
        grid: C expressions for the extents of the grid, comma-separated; None: callers pass them.
        target: such as ``"cuda:90:32"`` or ``"cpu"``; None for the current device.
        num_warps, num_stages: compile options; None for the target's default.
        out_name: name of the launch function, before a hash; None for the kernel's.
        out_path: folder and prefix of the files; None for `out_name` in the current folder.
        constexprs: values of compile-time parameters that are not in the signature.
        options: other compile options.
        disjoint: assume that array arguments do not overlap, which enables optimisations.
    """

    path: str | Path = ""
    kernel_name: str = ""
    signature: str = ""
    grid: str | None = None
    target: str | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    out_name: str | None = None
    out_path: str | Path | None = None
    constexprs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    disjoint: bool = False


def compile_kernel(args: CompileArgs) -> tuple[str, list[Path]]:
    """Compile a kernel to files; returns the name of the launch function and the files.

    Raises:
        UsageError: invalid arguments.
        CompilationError: the kernel is invalid.
    """
    fn, _ = find_kernel(f"{args.path}::{args.kernel_name}")
    typed = typed_source(fn, args.signature, args.constexprs, disjoint=args.disjoint)
    given = {"num_warps": args.num_warps, "num_stages": args.num_stages}
    options = {name: value for name, value in given.items() if value is not None} | args.options
    base = args.out_name or fn.__name__
    if not base.isidentifier() or not base.isascii():
        raise UsageError(f"{base!r} is not a name of a function in C: give another --out-name")
    path = Path(args.out_path or base)
    target = args.target or driver.active.get_current_target()
    with usage_errors():
        exported = export_kernel(
            typed, target, options=options, grid=args.grid, base=base, file=path.name
        )
    return exported.symbol, exported.write(path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", metavar="FILE[::KERNEL]", help="a Python file, and the kernel in it")
    add("--kernel-name", "-n", default="", metavar="NAME", help="the kernel in the file")
    add("--signature", "-s", required=True, help='as "*fp32:16, i32, 1024" or "x=*fp32:16, n=i32"')
    add(
        *("--constexpr", "-c"),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a compile-time parameter that is not in the signature",
    )
    add("--grid", "-g", help='the grid, as "(n + 1023) / 1024, 1, 1" (default: callers pass it)')
    add("--target", "-t", help="such as cpu, cuda:90 or cuda:90:32 (default: the current device)")
    add("--num-warps", "-w", type=int, help="warps per program")
    add("--num-stages", "-ns", type=int, help="stages of software pipelining")
    add("--out-name", "-on", metavar="NAME", help="name of the function (default: the kernel's)")
    add("--out-path", "-o", metavar="PATH", help="prefix of the files (default: --out-name)")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="a compile option")
    add("--disjoint", action="store_true", help="assume that no two arrays overlap")


def execute(args: argparse.Namespace) -> int:
    file, _, name = args.path.partition("::")
    if name and args.kernel_name not in ("", name):
        raise UsageError(f"two kernels are specified: {name} and {args.kernel_name}")
    values = parse_pairs(args.constexpr, "--constexpr")
    options = parse_pairs(args.option, "--option")
    _, files = compile_kernel(
        CompileArgs(
            path=file,
            kernel_name=name or args.kernel_name,
            signature=args.signature,
            grid=args.grid,
            target=args.target,
            num_warps=args.num_warps,
            num_stages=args.num_stages,
            out_name=args.out_name,
            out_path=args.out_path,
            constexprs={key: parse_value(text) for key, text in values.items()},
            options={key: parse_value(text) for key, text in options.items()},
            disjoint=args.disjoint,
        )
    )
    for path in files:
        print(path)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command as a script: ``python -m triton.tools.compile …``."""
    argv = sys.argv[1:] if argv is None else argv
    return run_command({"compile": sys.modules[__name__]}, ["compile", *argv])


if __name__ == "__main__":
    sys.exit(main())
