"""Measures models under torch.compile on the CPU: tilewright against the C++ back end of Inductor.

python -m benchmarks.torch_compile                          all models, with one thread and with two
python -m benchmarks.torch_compile --only MLP --threads 1   models with "MLP" in their name

A ratio is tilewright's time over that of the C++ back end, in the same run: below 1, tilewright is
faster. Compile times are of a fresh process's first calls, without caches, per back end: Python's
part of torch.compile is in both. Needs a C++ compiler. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch

import tilewright
from benchmarks import ROOT
from benchmarks.timing import medians
from benchmarks.torch_models import MODELS, Model

BACKENDS = {"tilewright": "triton", "C++": "cpp"}

Row = dict[str, Any]
Step = Callable[[], Any]


def _step(model: Model, backend: str, train: bool) -> Step:
    """A call of the compiled model: a forward pass, or a training step without an optimiser."""
    torch.manual_seed(0)
    module = model.make().train(train)
    x = model.input()
    compiled: Any = torch.compile(module, options={"cpu_backend": backend})
    if not train:

        def infer() -> Any:
            with torch.no_grad():
                return compiled(x)

        return infer

    def learn() -> Any:
        loss = compiled(x).square().mean()
        module.zero_grad()
        loss.backward()
        return loss

    return learn


def _measure(model: Model, train: bool, threads: int, seconds: float, minima: bool) -> Row:
    torch.set_num_threads(threads)
    torch.compiler.reset()  # the C++ back end compiles for the number of threads
    steps = {name: _step(model, backend, train) for name, backend in BACKENDS.items()}
    ours, theirs = (float(step().detach().double().mean()) for step in steps.values())
    if abs(ours - theirs) > 1e-3 * max(1.0, abs(theirs)):
        raise AssertionError(f"{model.name}: the back ends disagree: {ours}, {theirs}")
    times = medians(steps, seconds, min if minima else median)
    return {
        "model": model.name,
        "mode": "train" if train else "inference",
        "threads": threads,
        **{f"{name} us": 1e6 * seconds for name, seconds in times.items()},
        "ratio": times["tilewright"] / times["C++"],
    }


def _compile_seconds(model: Model, backend: str, train: bool) -> float:
    """Seconds of the first call in a fresh process with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
        command = [sys.executable, "-m", "benchmarks.torch_compile", "--one", model.name, backend]
        command += ["train"] if train else ["inference"]
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=True
        )
    return float(done.stdout.split()[-1])


def _print_compile_seconds(name: str, backend: str, mode: str) -> None:
    (model,) = [m for m in MODELS if m.name == name]
    tilewright.torch.enable(cpu=False)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))  # imports are no compile time
    start = time.perf_counter()
    _step(model, backend, mode == "train")()
    print(time.perf_counter() - start)


def _rows(args: argparse.Namespace) -> Iterator[Row]:
    tilewright.torch.enable(cpu=False)
    for model in [m for m in MODELS if args.only in m.name]:
        for train in (False, True) if model.trains else (False,):
            for threads in args.threads:
                row = _measure(model, train, threads, args.seconds, args.minima)
                if args.compile_time and threads == args.threads[0]:
                    for name, backend in BACKENDS.items():
                        row[f"{name} compile s"] = _compile_seconds(model, backend, train)
                yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the model's name")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=1.0, help="per back end and measurement")
    parser.add_argument("--minima", action="store_true", help="not medians: on a busy machine")
    parser.add_argument("--compile-time", action="store_true", help="measure compile times, too")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        _print_compile_seconds(*args.one)
        return
    rows: list[Row] = []
    for row in _rows(args):
        rows.append(row)
        times = ", ".join(
            f"{key} {value:,.1f}" for key, value in row.items() if key.endswith((" us", " s"))
        )
        print(
            f"{row['model']}, {row['mode']}, {row['threads']} threads: {row['ratio']:.2f} ({times})"
        )
        sys.stdout.flush()
    print(f"geometric mean {geometric_mean(row['ratio'] for row in rows):.2f}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
