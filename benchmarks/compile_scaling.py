"""How compile time grows with the length of a kernel, for the CPU and for sm_90.

python -m benchmarks.compile_scaling                        all forms, 100 to 10,000 ops
python -m benchmarks.compile_scaling --only chain,newton --sizes 100,1000
python -m benchmarks.compile_scaling --json FILE --write-docs    and write docs/compile-time.md
python -m benchmarks.compile_scaling --read FILE --write-docs    of an earlier run

Each measurement is a separate process. The forms are in `compile_forms.py`. No GPU is needed: for
sm_90 the kernel is compiled to a cubin if an assembler is found, otherwise to PTX.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import ROOT, child_environment, compile_page, page
from benchmarks.compile_forms import FORMS, TARGETS
from tilewright.targets.nvidia.assemble import find_assembler

SIZES = (100, 300, 1000, 3000, 10000)

SCALED = ("chain", "copies", "sums", "shapes", "ifs", "newton", "rounds")

BARS = {
    "flips": 14, "reshapes": 14, "gathers": 14, "joins": 14, "newton": 14, "rounds": 64,
    "fourier": 10, "chain": 1250,
}  # fmt: skip
"""Steps of the kernels that must compile in under five seconds."""

Row = dict[str, Any]


def measure_in_a_process(form: str, steps: int, target: str, limit: float) -> Row:
    """One measurement, in a process of its own.

    Args:
        limit: seconds after which the process is killed.

    Returns:
        The form, its ``ops`` and the target; ``seconds`` as returned by `compile_forms.measure`,
        or ``missing``, the reason why there are none.
    """
    row: Row = {"form": form, "steps": steps, "ops": steps * FORMS[form].ops, "target": target}
    command = [sys.executable, "-m", "benchmarks.compile_forms", form, str(steps), target]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=child_environment(),
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=max(limit, 0.1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its assembler too
            return {**row, "missing": f"> {round(limit, 1):g} s"}
    if process.returncode:
        return {**row, "missing": (errors.strip().splitlines() or ["failed"])[-1]}
    return {**row, "seconds": json.loads(out)}


def measure_all(
    forms: Sequence[str], sizes: Sequence[int], targets: Sequence[str], each: float, limit: float
) -> Iterable[Row]:
    """Rows of all forms, in order of size, so that the time limit omits the longest kernels.

    A form that takes longer than `each` seconds is not measured with more ops.

    Args:
        each: limit for one measurement, in seconds.
        limit: limit for all measurements, in seconds.
    """
    end, slow = perf_counter() + limit, set[tuple[str, str]]()
    for size in sizes:
        for form in forms:
            for target in targets:
                left = end - perf_counter()
                if left <= 0 or (form, target) in slow:
                    continue
                steps = max(1, round(size / FORMS[form].ops))
                row = measure_in_a_process(form, steps, target, min(each, left))
                if "missing" in row:
                    slow.add((form, target))
                yield {**row, "size": size}


def measure_bars(bars: dict[str, int], targets: Sequence[str], each: float) -> Iterable[Row]:
    """Rows of the kernels with a limit."""
    for form, steps in bars.items():
        for target in targets:
            yield measure_in_a_process(form, steps, target, each)


def describe(row: Row) -> str:
    """A row as a line of text."""
    where = f"{row['target']:<8} {row['form']:<9} {row['ops']:>6} ops"
    if "missing" in row:
        return f"{where}  {row['missing']}"
    parts = (f"{part} {seconds:.3f}" for part, seconds in row["seconds"].items())
    return f"{where}  {'  '.join(parts)}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compile_scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", help=f"forms, of {','.join(SCALED)} (default all)")
    parser.add_argument("--targets", default=",".join(TARGETS), help="default %(default)s")
    parser.add_argument("--sizes", help="numbers of ops (default 100 to 10,000)")
    parser.add_argument("--each-seconds", type=float, default=60, help="for one (default 60)")
    parser.add_argument("--limit-seconds", type=float, default=900, help="for all (default 900)")
    parser.add_argument("--read", type=Path, metavar="FILE", help="results that --json wrote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    parser.add_argument("--write-docs", action="store_true", help="write docs/compile-time.md")
    args = parser.parse_args()
    args.forms = args.only.split(",") if args.only else list(SCALED)
    args.ops = [int(size) for size in args.sizes.split(",")] if args.sizes else list(SIZES)
    if unknown := set(args.forms) - set(FORMS):
        parser.error(f"there is no form {', '.join(sorted(unknown))}; forms: {', '.join(FORMS)}")
    if args.write_docs and (args.only or args.sizes):
        parser.error("--write-docs takes all forms and sizes")
    return args


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def machine() -> dict[str, str]:
    """The hardware and software that the results depend on."""
    assembler = find_assembler()
    named = f"{assembler.name} {assembler.version()}" if assembler else "none, so PTX is the end"
    return {**page.machine(), "assembler": named, "priority": f"nice {os.nice(0)}"}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All results of the page; each row is printed when it has been measured."""
    targets, rows, bars = args.targets.split(","), list[Row](), list[Row]()
    for target in targets:  # caches the bytecode of all modules
        measure_in_a_process("fourier", 1, target, args.each_seconds)
    start, before = perf_counter(), _load()
    if not args.only:
        for row in measure_bars(BARS, targets, args.each_seconds):
            print(describe(row), flush=True)
            bars.append(row)
    left = args.limit_seconds - (perf_counter() - start)
    for row in measure_all(args.forms, args.ops, targets, args.each_seconds, left):
        print(describe(row), flush=True)
        rows.append(row)
    return {"machine": machine(), "rows": rows, "bars": bars, "load": [before, _load()]}


def main() -> None:
    args = _parse()
    results = json.loads(args.read.read_text("utf-8")) if args.read else measure(args)
    for line in compile_page.tables(results["rows"]):
        print(line)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    if args.write_docs:
        compile_page.write(results)


if __name__ == "__main__":
    main()
