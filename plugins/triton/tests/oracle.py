"""Compares kernels that Triton's back end compiles with the interpreter, on a GPU.

    PYTHONPATH=.:examples python plugins/triton/tests/oracle.py --family kernels --every 8

The jobs are those of `tests/gpu`, which compare the code of the target `cuda` in the same way: a
job that fails here and not there is a difference between the two code generators, of the same tile
IR. Needs the plug-in installed, and Triton in this environment.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass

from tests.fuzz.products import random_options, random_products
from tests.gpu import examples, harness, programs, test_blocks, test_fuzz, test_kernels
from tests.gpu.harness import Preparable
from tests.gpu.programs import Prepared, prepare
from tests.gpu.test_fuzz import FuzzJob
from tests.gpu.test_programs import ProgramJob
from tilewright.targets.protocol import GPUTarget


@dataclass(frozen=True)
class Products:
    """A random loop of products, with random options that Triton has."""

    seed: int

    @property
    def name(self) -> str:
        return f"products of seed {self.seed}"

    def prepare(self) -> Prepared:
        given = random_options(self.seed)
        options = {name: given[name] for name in ("num_warps", "num_stages")}
        return prepare(random_products(self.seed), f"{self.name}, {options}", options)


FAMILIES: dict[str, Callable[[range], Sequence[Preparable]]] = {
    "examples": lambda seeds: list(examples.jobs()),
    "kernels": lambda seeds: test_kernels.JOBS,
    "blocks": lambda seeds: test_blocks.JOBS,
    "programs": lambda seeds: [ProgramJob(seed) for seed in seeds],
    "modules": lambda seeds: [FuzzJob(seed) for seed in seeds],
    "products": lambda seeds: [Products(seed) for seed in seeds],
}
"""The jobs by family; the last three are random, one for each seed."""


def prepared(job: Preparable, arch: str) -> Prepared | str:
    """The job compiled by Triton's back end, and what it must leave in memory; or why not."""
    programs.HOPPER = test_fuzz.HOPPER = GPUTarget("triton", arch, 32)
    try:
        return job.prepare()
    except Exception as error:
        message = str(getattr(error, "error_message", None) or error).splitlines()
        return f"{type(error).__name__}: {(message or ['?'])[0][:150]}"


def outcome(found: Prepared | str) -> str:
    """ "" for a right result."""
    if isinstance(found, str):
        return f"compile: {found}"
    try:
        harness.run(found)
    except Exception as error:
        return f"run: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), default=[])
    parser.add_argument("--arch", default="cuda/90")
    parser.add_argument("--seeds", type=int, default=1000, help="of a random family")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--every", type=int, default=1, help="take each N-th job of a family")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--processes", type=int, default=24)
    parser.add_argument("--lines", type=int, default=40, help="of failures to print")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds)
    families = [FAMILIES[name](seeds) for name in args.family or FAMILIES]
    jobs = [job for family in families for job in family[:: args.every]]
    begin, right, problems = time.perf_counter(), 0, Counter[str]()
    first: dict[str, str] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.processes, mp_context=context) as pool:
        waiting: dict[Future[Prepared | str], Preparable] = {}
        left = iter(jobs)
        while time.perf_counter() - begin < args.seconds:
            for job in left:
                waiting[pool.submit(prepared, job, args.arch)] = job
                if len(waiting) >= 2 * args.processes:
                    break
            if not waiting:
                break
            done, _ = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                name = waiting.pop(future).name
                problem = outcome(future.result())
                right += not problem
                if problem:
                    kind = problem.replace(name, "JOB")
                    problems[kind] += 1
                    first.setdefault(kind, name)
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(pool._processes.values()) if pool._processes else []:
            process.terminate()
    failed = sum(problems.values())
    seconds = time.perf_counter() - begin
    print(f"{right + failed} of {len(jobs)} jobs in {seconds:.0f} s: {failed} failed")
    wrong = sum(count for kind, count in problems.items() if kind.startswith("run"))
    print(f"{wrong} of these compiled, and ran otherwise than they must")
    ordered = sorted(problems, key=lambda kind: (kind.startswith("compile"), -problems[kind]))
    for kind in ordered[: args.lines]:
        print(f"{problems[kind]} {first[kind]}: {kind}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
