"""Check this installation and its devices, and suggest fixes.

    python -m tilewright doctor             human-readable
    python -m tilewright doctor --json      machine-readable

It compiles a small kernel and runs it on each device. The exit status is 1 if something present
does not work: a kernel fails, or a setting is invalid. Absent components, such as a GPU, are
reported but are not failures.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tilewright.base import knobs, plug_ins
from tilewright.base.child import python_command, signal_name
from tilewright.base.findings import NOTE, OK, PROBLEM, Finding
from tilewright.compiler.version import PACKAGE, VERSION, compiler_key
from tilewright.runtime import driver
from tilewright.runtime.cache import digest, disk_cache, lock_of
from tilewright.runtime.cache_entries import InvalidEntry, decode, entries, read_entry
from tilewright.targets import registry
from tilewright.tools.cache import size_text

HELP = "check the installation and its devices"

CHILD_SECONDS = 120.0
LOAD_SECONDS = 30.0  # for the import of plug-ins
_PROBE = "from tilewright.tools.probe import main; main({what!r})"
_LITTLE_SPACE = 256 << 20
_PLUG_IN = "Update or uninstall the plug-in; everything else works without it."
_REINSTALL = "Run `pip install --force-reinstall llvmlite` to reinstall LLVM for this system."


Check = Callable[[], Iterable[Finding]]


# -- installation ---------------------------------------------------------------------------------


def _installed() -> Iterator[Finding]:
    yield Finding(OK, "tilewright", f"{VERSION}, in {PACKAGE}")
    yield Finding(OK, "Python", f"{platform.python_version()}, {sys.executable}")
    yield Finding(OK, "system", platform.platform())
    for name in ("numpy", "ml_dtypes"):
        yield Finding(OK, name, _version_of(name) or "unknown version")
    yield Finding(OK, "llvmlite", _version_of("llvmlite") or "unknown version")
    torch = _version_of("torch")
    yield Finding(OK, "torch", torch or "not installed (optional)")
    yield _triton()


def _version_of(name: str) -> str:
    """The version of a package, without importing it; "" if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _triton() -> Finding:
    found = _version_of("triton")
    if not found:
        summary = "not installed; `python -m tilewright run SCRIPT` runs programs that import it"
    else:
        summary = f"{found}; `import triton` imports it, except under `python -m tilewright run`"
    return Finding(OK, "triton", summary)


# -- compilers ------------------------------------------------------------------------------------


def _compilers() -> Iterator[Finding]:
    for name in registry.names():
        try:
            findings: Iterable[Finding] = getattr(registry.target(name), "examine", lambda: ())()
            yield from findings
        except Exception as error:
            summary = _cause(error)
            advice = _REINSTALL if registry.is_built_in(name) else _PLUG_IN
            yield Finding(PROBLEM, f"target {name}", summary, advice)


def _plug_ins() -> Iterator[Finding]:
    points = [point for group in plug_ins.GROUPS for point in plug_ins.plug_ins(group).values()]
    if not points:
        yield Finding(OK, "plug-ins", "none")
    _reject_crashing(points)
    for point in points:
        try:
            plug_ins.load_plug_in(point.group, point.name)
        except plug_ins.PlugInError as error:
            yield Finding(PROBLEM, point.name, str(error), _PLUG_IN)
        else:
            yield Finding(OK, point.name, plug_ins.describe(point))


def _reject_crashing(points: Sequence[Any]) -> None:
    """Reject the plug-ins that end or hang the process that imports them.

    One child process imports all. If it fails, another continues with the plug-in at which it
    failed, which is rejected if it is the first one of a process, so that it is not blamed for the
    time that others took.
    """
    left = list(points)
    while left:
        what = " ".join(f"{point.group} {point.name}" for point in left)
        lines, answer = _output_of(f"plug-ins {what}", LOAD_SECONDS)
        imported = sum(line.startswith('{"imported":') for line in lines)
        if imported == 0:
            plug_ins.reject(left[0], answer["error"])
        left = left[max(imported, 1) :]


# -- devices --------------------------------------------------------------------------------------


def _cause(error: Exception) -> str:
    """The reason for which a target or a driver cannot be used."""
    if isinstance(error, plug_ins.PlugInError):
        return str(error)
    return f"cannot be used: {type(error).__name__}: {error}"


EXAMINED = ("cpu", "cuda")
"""The types of devices with findings of their own."""


def _processor() -> Iterator[Finding]:
    from tilewright.runtime.devices.cpu import thread_count

    cores = os.cpu_count() or 1
    summary = f"{thread_count()} per launch, {cores} cores"
    few = thread_count() < cores
    advice = (
        "The process is restricted to some cores, or TILEWRIGHT_CPU_THREADS is set." if few else ""
    )
    yield Finding(NOTE if few else OK, "threads", summary, advice)
    yield _trial("cpu")


def _gpus() -> Iterator[Finding]:
    answer = ask("cuda")
    if "missing" in answer:
        advice = "For NVIDIA's GPUs, install NVIDIA's driver. Others are listed below."
        yield Finding(NOTE, "CUDA driver", f"none ({answer['missing']})", advice)
        return
    if "error" in answer:
        yield Finding(PROBLEM, "CUDA driver", answer["error"])
        return
    yield Finding(OK, "CUDA driver", f"for {answer['driver']}")
    for index, gpu in enumerate(answer["gpus"]):
        major, minor = gpu["capability"]
        yield Finding(
            OK,
            f"cuda:{index}",
            f"{gpu['name']}, capability {major}.{minor}, {size_text(gpu['memory'])}, "
            f"{gpu['multiprocessors']} multiprocessors",
        )
        yield _trial(f"cuda:{index}")


def _other_devices() -> Iterator[Finding]:
    """Devices of other types: GPUs of other vendors if there are any, and those of plug-ins."""
    ours = [n for n in driver.DRIVERS if n not in EXAMINED and driver.driver_of(n).is_active()]
    names = [*ours, *sorted(plug_ins.plug_ins(plug_ins.DRIVERS))]
    if not names:
        yield Finding(OK, "devices", "none")
    for name in names:
        try:
            usable = driver.is_usable(name)
        except Exception as error:
            summary = _cause(error)
            yield Finding(PROBLEM, name, summary, _PLUG_IN)
            continue
        if usable:
            yield _trial(f"{name}:0")
        else:
            yield Finding(NOTE, name, "no device")


def _trial(device: str) -> Finding:
    """Whether a kernel runs on a device and computes the expected result."""
    what, answer = f"kernel on {device}", ask(device)
    if "error" in answer:
        advice = answer.get("advice", "")
        return Finding(PROBLEM, what, answer["error"], advice)
    if not answer["right"]:
        advice = "Report this, with the output of `python -m tilewright doctor --json`."
        return Finding(PROBLEM, what, "compiles and runs, but its result is wrong", advice)
    return Finding(OK, what, f"compiled and ran in {answer['seconds']:.1f} s; correct result")


def ask(what: str, seconds: float = CHILD_SECONDS) -> dict[str, Any]:
    """The output of `tools/probe.py`, run in a child process so that a crash of a driver or of a
    kernel is reported as a finding instead of ending this process."""
    return _output_of(what, seconds)[1]


def _output_of(what: str, seconds: float) -> tuple[list[str], dict[str, Any]]:
    """The lines that a child process printed, and its result; see `ask`."""
    command = python_command(_PROBE.format(what=what))
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as expired:
        printed = (expired.stdout or b"").decode("utf-8", "replace")
        return printed.splitlines(), {"error": f"timed out after {seconds:.0f} s"}
    except OSError as error:
        return [], {"error": f"the child process cannot be started: {error}"}
    lines = ended.stdout.splitlines()
    if ended.returncode < 0:
        return lines, _died(-ended.returncode)
    try:
        return lines, json.loads(lines[-1])
    except (ValueError, IndexError):
        last = ended.stderr.strip().splitlines()[-1:] or ["no output"]
        return lines, {"error": f"the process ended with status {ended.returncode}: {last[0]}"}


def _died(number: int) -> dict[str, Any]:
    name = signal_name(number)
    answer = {"error": f"the process was killed by {name}"}
    if name == "SIGILL":
        answer["advice"] = (
            "The code uses instructions that this processor does not have: check "
            "TILEWRIGHT_CPU_NAME and TILEWRIGHT_CPU_FEATURES."
        )
    return answer


# -- the cache ------------------------------------------------------------------------------------


def _cache() -> Iterator[Finding]:
    cache = disk_cache()
    if cache.root is None:
        advice = "Set TILEWRIGHT_CACHE_DIR to a writable folder."
        yield Finding(NOTE, "folder", "none: the user has no home folder", advice)
        return
    found = list(entries(cache.root))
    bound = f" of {size_text(cache.bound)}" if cache.bound else ", unbounded"
    size = size_text(sum(entry.size for entry in found))
    yield Finding(OK, "folder", f"{cache.root}, {len(found)} entries, {size}{bound}")
    fault = _write_fault()
    if fault:
        advice = (
            "Every process compiles its kernels. Set TILEWRIGHT_CACHE_DIR to a writable folder."
        )
        yield Finding(PROBLEM, "writing", fault, advice)
        return
    yield Finding(OK, "writing", "an entry was written, read back and removed")
    if not _can_lock():
        advice = "Concurrent processes may compile the same kernel; results are not affected."
        yield Finding(NOTE, "locks", "the file system has no hard links", advice)
    else:
        yield Finding(OK, "locks", "supported: one process compiles a kernel, others wait for it")
    free = shutil.disk_usage(cache.root).free
    level, advice = OK, ""
    if free < _LITTLE_SPACE:
        level = NOTE
        advice = "Run `python -m tilewright cache clear --unused 7` to remove old entries."
    yield Finding(level, "disk", f"{size_text(free)} free", advice)


def _write_fault() -> str:
    """The reason for which an entry cannot be written or read back; "" if it can."""
    cache = disk_cache()
    key, files = digest("doctor", str(os.getpid())), {"doctor": b"well"}
    path = cache.path(key)
    assert path is not None
    try:
        fault = cache.try_put(key, files)
        if fault:
            return str(fault)
        if decode(key, read_entry(path)) != files:
            return "an entry read back differs from what was written"
        return ""
    except (OSError, InvalidEntry) as error:
        return f"an entry cannot be read back: {error}"
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _can_lock() -> bool:
    cache = disk_cache()
    key = digest("doctor lock", str(os.getpid()))
    path = cache.path(key)
    assert path is not None
    with cache.compiling(key):
        return os.path.exists(lock_of(path))


# -- settings -------------------------------------------------------------------------------------


def _settings() -> Iterator[Finding]:
    known = {
        variable: (group_name, name)
        for group_name, group in knobs.GROUPS.items()
        for name, knob in group.table().items()
        for variable in knob.names
    }
    any_set = False
    for variable, text in knobs.variables().items():
        any_set = True
        if variable not in known:
            near = difflib.get_close_matches(variable, known, 1, 0.8)
            if variable.startswith("TILEWRIGHT_"):
                advice = f"Did you mean {near[0]}?" if near else "docs/knobs.md lists all settings."
                yield Finding(NOTE, variable, f"{text!r}: unknown setting", advice)
            else:
                yield Finding(OK, variable, f"{text!r}: a setting of Triton, ignored here")
            continue
        group_name, name = known[variable]
        try:
            value = getattr(knobs.GROUPS[group_name], name)
        except ValueError as error:
            yield Finding(PROBLEM, variable, str(error), "Unset it, or correct it.")
            continue
        yield Finding(OK, variable, f"{group_name}.{name} = {value!r}")
    if not any_set:
        yield Finding(OK, "settings", "all at their defaults")


# -- all checks -----------------------------------------------------------------------------------

CHECKS: dict[str, Check] = {
    "installed": _installed,
    "settings": _settings,
    "plug-ins": _plug_ins,  # before all that loads them here
    "compilers": _compilers,
    "CPU": _processor,
    "GPUs": _gpus,
    "other devices": _other_devices,
    "cache": _cache,
}


def examine() -> dict[str, list[Finding]]:
    """All findings, by the title of their check. An exception of a check is a finding."""
    result: dict[str, list[Finding]] = {}
    for title, check in CHECKS.items():
        findings = result.setdefault(title, [])
        try:
            findings.extend(check())
        except Exception as error:
            summary = f"the check failed: {type(error).__name__}: {error}"
            findings.append(Finding(PROBLEM, title, summary))
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def execute(args: argparse.Namespace) -> int:
    found = examine()
    every = [finding for findings in found.values() for finding in findings]
    problems = sum(finding.level == PROBLEM for finding in every)
    if args.json:
        plain = {title: [asdict(f) for f in findings] for title, findings in found.items()}
        key = compiler_key()
        print(json.dumps({"healthy": not problems, "compiler": key, "checks": plain}, indent=1))
    else:
        _print(found)
        notes = sum(finding.level == NOTE for finding in every)
        print(f"\n{_count(problems, 'problem')}, {_count(notes, 'note')}")
    return 1 if problems else 0


def _print(found: dict[str, list[Finding]]) -> None:
    marks = {OK: " ", NOTE: "-", PROBLEM: "!"}
    for title, findings in found.items():
        print(title)
        for finding in findings:
            print(f" {marks[finding.level]} {finding.what:<16} {finding.summary}")
            if finding.advice:
                print(f"   {'':<16} {finding.advice}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
