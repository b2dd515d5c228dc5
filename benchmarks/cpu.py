"""Measures kernels on the CPU against torch, in the same run.

python -m benchmarks.cpu                                  everything, with one thread and with two
python -m benchmarks.cpu --only softmax --threads 1       families with "softmax" in their name
python -m benchmarks.cpu --json out.json --write-docs     and write docs/benchmarks.md

A ratio is torch's time over ours: above 1, tilewright is faster. Each line shows the target ratio.
Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import compile_time, page
from benchmarks.cases import FAMILIES, Case
from benchmarks.kernels import five_arguments_kernel
from benchmarks.timing import keep_freed_memory, medians
from tilewright.base import knobs

Row = dict[str, Any]


def _measure(family: str, case: Case, threads: int, seconds: float) -> Row:
    case.verify()
    times = medians({"tilewright": case.ours, **case.rivals}, seconds)
    ours = times.pop("tilewright")
    rival = min(times, key=lambda name: times[name])
    return {
        "family": family,
        "case": case.name,
        "threads": threads,
        "ours_us": ours * 1e6,
        "rival": f"torch, {rival}",
        "rival_us": times[rival] * 1e6,
        "ratio": times[rival] / ours,
        "aim": case.aim,
    }


def _against_torch(only: str, threads: list[int], seconds: float) -> Iterator[Row]:
    for key, family in FAMILIES.items():
        if only not in key:
            continue
        if reason := family.missing():
            print(f"{family.title}: not measured, {reason}")
            continue
        for case in family.cases():
            for count in threads:
                if family.threads is None or count in family.threads:
                    torch.set_num_threads(count)
                    knobs.runtime.cpu_threads = count
                    yield _measure(family.title, case, count, seconds)


def _launches(seconds: float) -> Iterator[Row]:
    """Launch overhead: the time of a launch of a compiled kernel with minimal work."""
    knobs.runtime.cpu_threads = 1
    arrays = [np.ones(16, np.float32) for _ in range(3)]
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    launch = partial(five_arguments_kernel[(1,)], BLOCK=16)
    runs = {
        "NumPy arrays": lambda: launch(*arrays, 0, 16),
        "torch tensors": lambda: launch(*tensors, 0, 16),
        "torch.add": lambda: torch.add(*tensors[:2], out=tensors[2]),
    }
    times = medians(runs, seconds)
    rival = times.pop("torch.add") * 1e6
    for name, ours in times.items():
        yield {
            "family": "launch of a kernel with five arguments",
            "case": name,
            "threads": 1,
            "ours_us": ours * 1e6,
            "rival": "torch.add of 16 elements",
            "rival_us": rival,
            "limit_us": 10,
        }


def _compiles(processes: int) -> Iterator[Row]:
    for name, limit in compile_time.BARS_MS.items():
        times = compile_time.measure(name, processes)
        yield {
            "family": "first compile",
            "case": name,
            "threads": 1,
            "ours_us": times["LLVM loaded"] * 1e3,
            "limit_us": limit * 1e3,
            "parts_ms": times,
        }


def _describe(row: Row) -> str:
    where = f"{row['family']:<40} {row['case']:<26} {row['threads']} thr "
    ours = f"{row['ours_us']:>11.1f} us"
    if "ratio" in row:
        aim, ratio = row["aim"], row["ratio"]
        verdict = "" if aim is None else f"  aim {aim:.1f}  {'ok' if ratio >= aim else 'MISSED'}"
        return f"{where}{ours} {row['rival_us']:>11.1f} us  ratio {ratio:5.2f}{verdict}"
    verdict = "ok" if row["ours_us"] <= row["limit_us"] else "MISSED"
    parts = row.get("parts_ms", {})
    detail = "".join(f"  {name} {ms:.0f}" for name, ms in parts.items() if name != "LLVM loaded")
    return (
        f"{where}{ours}  limit {row['limit_us']:.0f} us  {verdict}{detail and f'  (ms:{detail})'}"
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join([*FAMILIES, "launch", "compile"])
    parser.add_argument("--only", default="", metavar="TEXT", help=f"one of, or a part of: {names}")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default 1,2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--quick", action="store_true", help="measure shortly, for a first look")
    args = parser.parse_args()
    if args.write_docs and (args.only or args.quick or args.threads != "1,2"):
        parser.error("--write-docs takes all of it, measured in full")
    return args


def main() -> None:
    args = _parse()
    threads = [int(n) for n in args.threads.split(",")]
    seconds, processes = (0.05, 1) if args.quick else (0.4, 5)
    keep_freed_memory()
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    parts = [_against_torch(args.only, threads, seconds)]
    if args.only in "launch":
        parts.append(_launches(seconds))
    if args.only in "compile":
        parts.append(_compiles(processes))
    rows: list[Row] = []
    for part in parts:
        for row in part:
            print(_describe(row), flush=True)
            rows.append(row)
    results = {"machine": page.machine(), "results": rows}
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    if args.write_docs:
        page.write(results)


if __name__ == "__main__":
    main()
