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
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.gpu import examples, harness, programs, test_blocks, test_kernels
from tests.gpu.programs import Job, Prepared
from tilewright.targets.protocol import GPUTarget

FAMILIES: dict[str, Sequence[Job]] = {
    "examples": list(examples.jobs()),
    "kernels": test_kernels.JOBS,
    "blocks": test_blocks.JOBS,
}


def prepared(job: Job, arch: str) -> Prepared | str:
    """The job compiled by Triton's back end, and what it must leave in memory; or why not."""
    programs.HOPPER = GPUTarget("triton", arch, 32)
    try:
        return job.prepare()
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {(lines or ['?'])[-1].strip()[:150]}"


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
    parser.add_argument("--every", type=int, default=1, help="take each N-th job of a family")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--processes", type=int, default=24)
    parser.add_argument("--lines", type=int, default=40, help="of failures to print")
    args = parser.parse_args()
    jobs = [job for name in args.family or FAMILIES for job in FAMILIES[name][:: args.every]]
    begin, right, problems = time.perf_counter(), 0, Counter[str]()
    first: dict[str, str] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.processes, mp_context=context) as pool:
        waiting: dict[Future[Prepared | str], Job] = {}
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
    for kind, count in problems.most_common(args.lines):
        print(f"{count} {first[kind]}: {kind}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
