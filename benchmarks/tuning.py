"""Duration of autotuning a matrix product, with a cold and a warm cache, against Triton.

python -m benchmarks.tuning                     on the GPU, 24 configurations
python -m benchmarks.tuning --device cpu        tilewright alone, a small product
python -m benchmarks.tuning --json out.json     also write all results

The kernel is `gpu/kernels/matmul.py`, with the same source and configurations for both. Each run of
a compiler starts with an empty cache and has two consecutive processes: a cold one, and a warm one
that uses the cache of the first. The time is that of the first call of the tuned kernel, up to its
result; modules are imported, the device is initialised (torch has run a product on it) and the
arguments exist before. Both compilers cache tuning results on disk; for Triton,
TRITON_CACHE_AUTOTUNING is set.

Limits: cold, under half of Triton's time; the warm process neither compiles nor measures. Compilers
alternate, and the minimum of the runs counts. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import ROOT, child_environment
from benchmarks.gpu import dialect

PROGRAM = "benchmarks.tuning"
PROCESS_SECONDS = 300
"""A process that takes longer is killed."""

BAR = 0.5
"""The limit of cold tuning, as a fraction of Triton's time."""

SIZES = {"cuda": 4096, "cpu": 512}

TILES = {
    "cuda": (
        (128, 256, 64, 8), (256, 128, 64, 8), (128, 128, 64, 4), (128, 128, 64, 8),
        (128, 64, 64, 4), (64, 128, 64, 4), (64, 256, 64, 4), (256, 64, 64, 4),
        (64, 64, 64, 4), (128, 128, 32, 4), (128, 256, 32, 8), (64, 64, 32, 4),
    ),
    "cpu": (
        (64, 64, 64, 4), (32, 64, 64, 4), (64, 32, 64, 4), (128, 64, 64, 4),
        (64, 128, 64, 4), (128, 128, 64, 4), (64, 64, 32, 4), (64, 64, 128, 4),
        (32, 128, 64, 4), (128, 32, 64, 4), (32, 32, 64, 4), (128, 128, 128, 4),
    ),
}  # fmt: skip
"""BLOCK_M, BLOCK_N, BLOCK_K and num_warps."""

DEPTHS = ((3, 8), (4, 4))
"""num_stages and GROUP: each tile with the first of these, then each with the second."""

Found = dict[str, Any]


# -- the process that tunes ------------------------------------------------------------------------


def configurations(device: str, count: int, module: Any) -> list[Any]:
    """The first `count` configurations, as `Config` objects of a compiler."""
    every = [
        module.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": group},
            num_warps=warps,
            num_stages=stages,
        )
        for stages, group in DEPTHS
        for m, n, k, warps in TILES[device]
    ]
    return every[:count]


def _counted(module: Any, tuned: Any) -> dict[str, int]:
    """Install hooks that count compilations (without cache hits) and measured configurations."""
    counts = {"compiled": 0, "measured": 0}

    def compiled(*args: Any, cache_hit: bool = False, **rest: Any) -> None:
        counts["compiled"] += not cache_hit

    module.knobs.compilation.listener = compiled
    if module.__name__ == "triton":
        bench = tuned._bench

        def counting(*args: Any, **kwargs: Any) -> Any:
            counts["measured"] += 1
            return bench(*args, **kwargs)

        tuned._bench = counting
    else:

        def chosen(*, configs_timings: Any, cache_hit: bool, **rest: Any) -> None:
            counts["measured"] += 0 if cache_hit else len(configs_timings)

        module.knobs.autotuning.listener = chosen
    return counts


def tune(name: str, device: str, count: int) -> Found:
    """Tune once, in this process, with the current state of the caches.

    Returns:
        seconds of the import and of the first call; the numbers of configurations compiled,
        measured and failed; the best one, and its time in microseconds.
    """
    import torch

    begin = perf_counter()
    module = importlib.import_module(name)
    kernel = dialect.load("matmul", name).matmul_kernel
    imported = perf_counter() - begin
    n = SIZES[device]
    torch.manual_seed(0)
    dtype = torch.float16 if device == "cuda" else torch.float32
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    expected, c = a @ b, torch.empty(n, n, device=device, dtype=dtype)
    tuned = module.autotune(configurations(device, count, module), key=["m", "n", "k"])(kernel)
    counts = _counted(module, tuned)

    def grid(meta: Any) -> tuple[int]:
        return (-(-n // meta["BLOCK_M"]) * -(-n // meta["BLOCK_N"]),)

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    wait()
    begin = perf_counter()
    tuned[grid](a, b, c, n, n, n, n, 1, n, 1, n, 1, PRECISION="tf32")
    wait()
    seconds = perf_counter() - begin
    error = (c.float() - expected.float()).abs().max() / expected.float().abs().max()
    assert error < 1e-2, f"the product is wrong by {error:.2g} of its largest element"
    times = {config: t if isinstance(t, float) else t[0] for config, t in _timings(tuned).items()}
    return {
        "import": imported,
        "seconds": seconds,
        **counts,
        "failed": sum(time == float("inf") for time in times.values()),
        "best": str(tuned.best_config),
        "best_us": 1e3 * min(times.values(), default=float("nan")),
    }


def _timings(tuned: Any) -> dict[Any, Any]:
    return getattr(tuned, "configs_timings", None) or {}


# -- the program that compares ---------------------------------------------------------------------


def _process(name: str, device: str, count: int, cache: str) -> Found:
    """The result of `tune` in a process of its own, or `{"why": …}` if it fails."""
    settings = {
        "TILEWRIGHT_CACHE_DIR": cache,
        "TRITON_CACHE_DIR": cache,
        "TRITON_CACHE_AUTOTUNING": "1",
    }
    environment = child_environment(**settings)
    command = [sys.executable, "-m", PROGRAM, "--process", name]
    command += ["--device", device, "--configs", str(count)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
            timeout=PROCESS_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"why": f"ended after {PROCESS_SECONDS} s"}
    if done.returncode:
        return {"why": f"the process ended with status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def measure(modules: list[str], device: str, count: int, runs: int) -> dict[str, list[Found]]:
    """The runs of each module: the cold process's result, with that of the warm one under
    "warm"."""
    found: dict[str, list[Found]] = {name: [] for name in modules}
    for run in range(runs):
        for name in modules:
            with tempfile.TemporaryDirectory() as cache:
                cold = _process(name, device, count, cache)
                warm = _process(name, device, count, cache) if "why" not in cold else cold
            found[name].append({**cold, "warm": warm})
            print(f"run {run + 1}  {_line(name, cold)}", flush=True)
            print(f"{'':7}{_line('  again', warm)}", flush=True)
    return found


def _line(name: str, found: Found) -> str:
    if "why" in found:
        return f"{name:<11} failed: {found['why']}"
    return (
        f"{name:<11}{found['seconds']:>8.3f} s  compiled {found['compiled']}, measured "
        f"{found['measured']}, failed {found['failed']}; import {found['import']:.3f} s; "
        f"best {found['best_us']:.1f} us: {found['best']}"
    )


def least(runs: list[Found], warm: bool = False) -> float:
    """The minimum of the seconds of successful runs; NaN if there are none."""
    ended = [run["warm"] if warm else run for run in runs]
    return min((run["seconds"] for run in ended if "why" not in run), default=float("nan"))


def _report(found: dict[str, list[Found]]) -> None:
    print()
    for name, runs in found.items():
        cold, warm = least(runs), least(runs, warm=True)
        print(f"{name:<11} from nothing {cold:>8.3f} s, again {warm:>8.3f} s")
    ours = found["tilewright"]
    again = [run["warm"] for run in ours]
    idle = all(run.get("compiled") == run.get("measured") == 0 for run in again)
    print(f"the second process compiles and measures nothing: {'holds' if idle else 'MISSED'}")
    if "triton" in found:
        ratio = least(ours) / least(found["triton"])
        verdict = "holds" if ratio < BAR else "MISSED"
        print(f"of Triton's time from nothing: {ratio:.2f}, under {BAR}  {verdict}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=sorted(SIZES), help="default: cuda where there is one")
    parser.add_argument("--configs", type=int, default=24, help="how many, at most 24 (default 24)")
    parser.add_argument("--runs", type=int, default=3, help="of each compiler (default 3)")
    parser.add_argument("--module", choices=dialect.MODULES, help="only this compiler")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all numbers there")
    parser.add_argument("--process", choices=dialect.MODULES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    device: str = args.device or _device()
    if args.process:
        with redirect_stdout(sys.stderr):  # what a compiler prints is not the result
            found = tune(args.process, device, args.configs)
        print(json.dumps(found), flush=True)
        return 0
    modules = [args.module] if args.module else [m for m in dialect.MODULES if _able(m, device)]
    results = measure(modules, device, args.configs, args.runs)
    if "tilewright" in results:
        _report(results)
    if args.json:
        args.json.write_text(json.dumps({"device": device, "runs": results}, indent=1) + "\n")
    return int(any("why" in run or "why" in run["warm"] for r in results.values() for run in r))


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _able(name: str, device: str) -> bool:
    """Whether a compiler is installed and supports the device."""
    reason = "it has no CPU" if name == "triton" and device == "cpu" else dialect.missing(name)
    if reason:
        print(f"without {name}: {reason}")
    return not reason


if __name__ == "__main__":
    sys.exit(main())
