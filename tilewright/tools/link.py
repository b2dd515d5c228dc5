"""Generate a C function that dispatches to variants of a kernel compiled ahead of time.

python -m tilewright link build/*.h -o build/add

Writes add.h and add.c. An algorithm is a set of compile-time values and options. For variants of a
kernel `add`, the functions are

    add(…, algo_id)       call the variant of algorithm `algo_id` that fits the arguments
    add_default(…)        the same for the first algorithm
    add_get_num_algos()   the number of algorithms
    load_add, unload_add  load or unload all variants, on targets that have modules to load

Among the variants of an algorithm whose hints, such as alignment, hold for the arguments, the one
with the most hints is called.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tilewright.targets.export import (
    DIRECTIVE,
    LINKAGE_BEGIN,
    LINKAGE_END,
    Interface,
    condition,
    guarded,
    listed,
)
from tilewright.tools.command import run_command
from tilewright.tools.signature import UsageError

HELP = "generate a C function that dispatches to compiled variants of a kernel"


def read_header(path: Path) -> Interface:
    """Parse the interface of a variant from its header.

    Raises:
        UsageError: not a header written by `tilewright compile`.
    """
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(DIRECTIVE):
            try:
                return Interface.read(line)
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(
                    f"{path}: its line {line[:60]}… was written by another version: compile the "
                    "kernel again"
                ) from error
    raise UsageError(
        f"{path} was not written by `tilewright compile`: it has no line {DIRECTIVE!r}"
    )


def link(headers: Sequence[Path], out: Path, prefix: str = "") -> list[Path]:
    """Write the source and the header of the dispatching functions; returns their paths.

    Args:
        headers: of the variants; algorithms are numbered in order of first occurrence.
        out: path of both files, without suffix.
        prefix: prefix of the functions' names.

    Raises:
        UsageError: variants of one name have different parameters, or a variant occurs twice.
    """
    header, source = out.with_name(f"{out.name}.h"), out.with_name(f"{out.name}.c")
    # In a second build, a glob such as *.h also matches the header written by the first.
    headers = [path for path in headers if path.resolve() != header.resolve()]
    found: dict[str, list[tuple[Path, Interface]]] = {}
    for path in headers:
        face = read_header(path)
        found.setdefault(face.base, []).append((path, face))
    for variants in found.values():
        _check(variants)
    functions = {
        f"{prefix}{base}": [face for _, face in variants] for base, variants in found.items()
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    names = [os.path.relpath(path, out.parent).replace(os.sep, "/") for path in headers]
    header.write_text(_header(out.name, names, functions), "utf-8")
    source.write_text(_source(header.name, functions), "utf-8")
    return [source, header]


def _check(variants: Sequence[tuple[Path, Interface]]) -> None:
    """Raise UsageError unless one function can dispatch to all variants."""
    first_path, first = variants[0]
    seen: dict[tuple[str, str], Path] = {}
    for path, face in variants:
        if (face.target, face.parameters) != (first.target, first.parameters):
            raise UsageError(
                f"{face.base} is ({listed(first.parameters)}) for {first.target} in {first_path}, "
                f"and ({listed(face.parameters)}) for {face.target} in {path}: compile one of them "
                "with another --out-name"
            )
        before = seen.setdefault((face.algorithm, str(sorted(face.hints.items()))), path)
        if before != path or sum(path == other for other, _ in variants) > 1:
            raise UsageError(f"{before} and {path} are the same variant of {face.base}")


# -- output ---------------------------------------------------------------------------------------


def _algorithms(variants: Iterable[Interface]) -> dict[str, list[Interface]]:
    """Variants by algorithm, those with the most hints first."""
    found: dict[str, list[Interface]] = {}
    for face in variants:
        found.setdefault(face.algorithm, []).append(face)
    for faces in found.values():
        faces.sort(key=lambda face: (-len(face.hints), face.symbol))
    return found


def _header(name: str, includes: Sequence[str], functions: dict[str, list[Interface]]) -> str:
    lines = [f'#include "{include}"' for include in includes]
    lines += ["", LINKAGE_BEGIN]
    for function, variants in functions.items():
        face = variants[0]
        numbered = [*face.parameters, ("int", "algo_id")]
        lines += ["", f"/* Calls the variant of {face.base} that takes the arguments; algorithms:"]
        lines += [f" *   {i}: {name}" for i, name in enumerate(_algorithms(variants))]
        lines += [" */", f"{face.result} {function}({listed(numbered)});"]
        lines += ["", "/* The same, of algorithm 0. */"]
        lines += [f"{face.result} {function}_default({listed(face.parameters)});"]
        lines += ["", f"int {function}_get_num_algos(void);"]
        lines += [f"{face.result} {verb}{function}(void);" for verb in face.lifecycle]
    return guarded(name, "\n".join([*lines, "", LINKAGE_END]))


def _source(header: str, functions: dict[str, list[Interface]]) -> str:
    parts = [f'#include "{header}"']
    for function, variants in functions.items():
        algorithms = _algorithms(variants)
        for i, faces in enumerate(algorithms.values()):
            parts.append(_choose(f"{function}_algorithm_{i}", faces))
        parts.append(_by_number(function, len(algorithms), variants[0]))
        parts += [_all_variants(verb, function, variants) for verb in variants[0].lifecycle]
    return "\n\n".join(parts) + "\n"


def _choose(name: str, faces: Sequence[Interface]) -> str:
    """A function that calls the first variant whose hints hold for the arguments."""
    face = faces[0]
    lines = [f"static {face.result} {name}({listed(face.parameters)}) {{"]
    for each in faces:
        types = {parameter: type for type, parameter in each.parameters}
        tests = [
            condition(parameter, hint, types[parameter].endswith("*"), True)
            for parameter, hint in each.hints.items()
        ]
        lines += [f"  if ({' && '.join(tests)})"] if tests else []
        indent = "    " if tests else "  "
        lines.append(f"{indent}return {each.symbol}({_names(each)});")
    if face.hints and all(each.hints for each in faces):
        lines.append(f"  return {face.failure};")
    return "\n".join([*lines, "}"])


def _names(face: Interface) -> str:
    return ", ".join(name for _, name in face.parameters)


def _by_number(function: str, count: int, face: Interface) -> str:
    """The functions that select the algorithm."""
    parameters = listed([*face.parameters, ("int", "algo_id")])
    lines = [f"{face.result} {function}({parameters}) {{", "  switch (algo_id) {"]
    lines += [
        f"    case {i}: return {function}_algorithm_{i}({_names(face)});" for i in range(count)
    ]
    lines += [f"    default: return {face.failure};", "  }", "}", ""]
    lines += [f"{face.result} {function}_default({listed(face.parameters)}) {{"]
    lines += [f"  return {function}_algorithm_0({_names(face)});", "}", ""]
    lines += [f"int {function}_get_num_algos(void) {{ return {count}; }}"]
    return "\n".join(lines)


def _all_variants(verb: str, function: str, variants: Sequence[Interface]) -> str:
    """A function that loads or unloads all variants and returns the first failure."""
    result = variants[0].result
    lines = [f"{result} {verb}{function}(void) {{", f"  {result} status = ({result})0, one;"]
    for face in variants:
        lines += [f"  one = {verb}{face.symbol}();", f"  if (status == ({result})0) status = one;"]
    return "\n".join([*lines, "  return status;", "}"])


# -- the command ----------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "headers", nargs="+", type=Path, metavar="HEADER", help="headers of the variants"
    )
    parser.add_argument(
        "--out",
        "-o",
        required=True,
        type=Path,
        metavar="PATH",
        help="path of the files, without suffix",
    )
    parser.add_argument("--prefix", default="", help="prefix of the functions' names")


def execute(args: argparse.Namespace) -> int:
    for path in link(args.headers, args.out, args.prefix):
        print(path)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command as a script: ``python -m triton.tools.link …``."""
    argv = sys.argv[1:] if argv is None else argv
    return run_command({"link": sys.modules[__name__]}, ["link", *argv])


if __name__ == "__main__":
    sys.exit(main())
