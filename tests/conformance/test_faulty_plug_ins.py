"""Faulty plug-ins are named by the command, by errors and by `doctor`, and the rest goes on."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.conformance.plug_in import install
from tilewright.base.diagnostics import InternalCompilerError
from tilewright.base.plug_ins import PlugInError, plug_ins
from tilewright.compiler.source import ASTSource
from tilewright.conformance.claims import claims_of
from tilewright.runtime import driver, launch
from tilewright.runtime.device_array import DeviceArray
from tilewright.targets import registry
from tilewright.tools.cli import main

ROOT = Path(__file__).parents[2]

GOOD = """
from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.drivers.cpu import CpuDriver
from tilewright.runtime.launchers.interpreter import InterpreterLaunch
from tilewright.targets.interpreter.target import InterpreterTarget
from tilewright.targets.protocol import Claims, GPUTarget, Lowered


class Driver(CpuDriver):
    device_type = "NAME"

    def get_current_target(self):
        return GPUTarget("NAME")


class Target(InterpreterTarget):
    name = "NAME"


class Launcher(InterpreterLaunch):
    pass
"""
HANGING = """
class Launcher(InterpreterLaunch):
    def start(self, grid, values, slots):
        import time
        if grid[0] == 5:
            time.sleep(1000)
        super().start(grid, values, slots)
"""
CRASHING = """
class Launcher(InterpreterLaunch):
    def start(self, grid, values, slots):
        import os, signal
        if grid[0] == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        super().start(grid, values, slots)
"""
WRONG_METADATA = """
class Target(InterpreterTarget):
    name = "NAME"

    def compile(self, module, ctx, options):
        found = super().compile(module, ctx, options)
        return Lowered(found.stages, {"where": object()})
"""
NOT_JSON = """
class Target(InterpreterTarget):
    name = "NAME"

    def compile(self, module, ctx, options):
        found = super().compile(module, ctx, options)
        return Lowered(found.stages, found.metadata | {"where": object()})
"""
CLAIMS_TOO_MUCH = """
class Target(InterpreterTarget):
    name = "NAME"

    def claims(self):
        return Claims(levels=("1",), types=("i32", "fp32", "i1"))

    def compile(self, module, ctx, options):
        from tilewright.base.located import error_at
        from tilewright.ops.arith import Mul
        for op in module.walk():
            if isinstance(op, Mul):
                raise error_at(op.loc, f"{op.name} is not supported")
        return super().compile(module, ctx, options)
"""
OTHER_VERSION = """
class Target(InterpreterTarget):
    name = "NAME"
    interface = 7
"""
INCOMPLETE = """
class Target:
    name = "NAME"

    def key(self):
        return "1"
"""
RAISING = """
class Target(InterpreterTarget):
    def __init__(self, arch=""):
        raise OSError("no licence")
"""
ABORTING = "import os; os.abort()\n"

BROKEN = """
class Target(InterpreterTarget):
    name = "NAME"

    def compile(self, module, ctx, options):
        return 1 // 0
"""


def put(
    folder: Path, name: str, code: str = "", kinds: Sequence[str] = ("Target", "Driver", "Launcher")
) -> Path:
    """Install a plug-in with classes of these kinds. `doctor` starts a process for each."""
    entries = {f"{kind.lower()}s": kind for kind in kinds}
    return install(folder, name, (GOOD + code).replace("NAME", name), **entries)


def command(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "tilewright", *args],
        env=os.environ | {"PYTHONPATH": path, "TILEWRIGHT_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def conformance(
    folder: Path, target: str, *args: str, status: int
) -> subprocess.CompletedProcess[str]:
    found = command(folder, "conformance", "--target", target, "-j1", *args)
    assert found.returncode == status, found.stdout + found.stderr
    return found


UNUSABLE = {
    "lacking": ("raise ImportError('no library')\n", "cannot be loaded: ImportError: no library"),
    "leaving": (
        "import sys; sys.exit('no device')\n",
        "cannot be loaded: SystemExit: no device",
    ),
    "other": (
        OTHER_VERSION,
        "is written for version 7 of the interface of targets; this version of",
    ),
    "partial": (
        INCOMPLETE,
        "is not a target: it has no features, parse_options, frontend_options",
    ),
    "raising": (RAISING, "cannot be used: OSError: no licence"),
}


def test_good_plug_in_passes(tmp_path: Path) -> None:
    """Whatever else is installed."""
    put(tmp_path, "good")
    for name, (code, _) in UNUSABLE.items():
        put(tmp_path, name, code)
    report = tmp_path / "results.json"
    found = conformance(
        tmp_path, "good", "--level", "0,1,R", "--part", "3/40", "--json", str(report), status=0
    )
    assert "# Conformance of `good`, on good:0" in found.stdout
    plain = json.loads(report.read_text())
    assert plain["conformant"]
    assert set(plain["levels"]) == {"0", "1"} or set(plain["levels"]) == {"0", "1", "R"}


@pytest.mark.parametrize(
    ("code", "cause"),
    [(HANGING, "timed out after 6 s"), (CRASHING, "the process was killed by SIGKILL")],
)
def test_hang_and_crash_of_a_launch_are_named_and_the_rest_runs(
    code: str, cause: str, tmp_path: Path
) -> None:
    put(tmp_path, "bad", code)
    only = ("--only", "1/grid", "--timeout", "6", "--level", "1")
    found = conformance(tmp_path, "bad", *only, status=1)
    assert f"FAILED 1/grid/5: {cause}" in found.stderr
    assert "| 1 elementwise | 6 |  |  |  | 1 |" in found.stdout


def test_doctor_names_plug_ins_that_are_faulty(tmp_path: Path) -> None:
    """Each by itself, though all are installed: the others are used."""
    for name, (code, _) in UNUSABLE.items():
        put(tmp_path, name, code, ["Target"])
    put(tmp_path, "aborting", ABORTING, ["Target"])
    put(tmp_path, "faulty", _faulty("Driver", "target_of", NONE), ["Driver"])
    put(tmp_path, "silent", _faulty("Driver", "is_active", NONE), ["Driver"])
    put(tmp_path, "good")
    doctor = command(tmp_path, "doctor")
    assert doctor.returncode == 1
    for name, (_, cause) in UNUSABLE.items():
        assert f"of {name} 1.5 {cause}" in doctor.stdout
    killed = "of aborting 1.5 cannot be loaded: the process was killed by SIGABRT"
    assert killed in doctor.stdout
    for name, member in (("faulty", "target_of"), ("silent", "is_active")):
        provider = f"the plug-in tilewright.drivers: {name} = {name}:Driver, of {name} 1.5"
        assert f" {provider} is not a driver: its `{member}` returns None" in doctor.stdout
    assert "PlugInError" not in doctor.stdout
    assert "kernel on cpu    compiled and ran" in doctor.stdout
    assert "kernel on good:0 compiled and ran in" in doctor.stdout, doctor.stdout


def test_plug_in_that_ends_the_process_is_named(tmp_path: Path) -> None:
    put(tmp_path, "bad", ABORTING)
    found = conformance(tmp_path, "bad", status=-signal.SIGABRT)
    assert f'File "{tmp_path / "bad.py"}"' in found.stderr


def test_wrong_metadata_is_named(tmp_path: Path) -> None:
    put(tmp_path, "bad", WRONG_METADATA)
    put(tmp_path, "worse", NOT_JSON)
    cause = "`compile` of the target bad returns metadata without `name`"
    found = conformance(tmp_path, "bad", "--only", "0/compilation/kernel has", status=1)
    assert cause in found.stderr
    found = conformance(tmp_path, "worse", "--only", "0/compilation/kernel has", status=1)
    assert "the metadata is not JSON: Object of type object" in found.stderr


def test_claim_that_does_not_hold_is_named(tmp_path: Path) -> None:
    put(tmp_path, "bad", CLAIMS_TOO_MUCH)
    found = conformance(tmp_path, "bad", "--only", "1/x * y", status=1)
    assert "FAILED 1/x * y/i32: rejected: at " in found.stderr
    assert "FAILED 1/x * y/fp32: rejected: at " in found.stderr
    assert "FAILED 1/x * y/i8" not in found.stderr
    assert "arith.mul is not supported" in found.stdout.partition("## Rejected")[2]


@tw.jit
def one(x):
    tl.store(x, 1)


def test_plug_in_that_disappears_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = put(tmp_path, "fleeting")
    monkeypatch.syspath_prepend(str(tmp_path))
    plug_ins.cache_clear()
    source = ASTSource(one, {"x": "*i32"})
    stored = pickle.dumps(tw.compile(source, target="fleeting"))
    # The next process finds its metadata, but not its module; or neither.
    (tmp_path / "fleeting.py").unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    _forget("fleeting")
    with pytest.raises(PlugInError, match=r"of fleeting 1\.5 cannot be loaded: ModuleNotFound"):
        tw.compile(source, target="fleeting")
    shutil.rmtree(facts)
    _forget("fleeting")
    with pytest.raises(ValueError, match="there is no target 'fleeting'; there are cpu, cuda"):
        tw.compile(source, target="fleeting")
    with pytest.raises(RuntimeError, match="compiled for 'fleeting', whose kernels cannot be laun"):
        pickle.loads(stored).load()
    assert not driver.has_driver("fleeting")
    x = np.zeros(1, np.int32)
    one[(1,)](x)
    assert x[0] == 1


@pytest.fixture(autouse=True)
def _other_tests_see_no_plug_ins() -> Iterator[None]:
    yield
    plug_ins.cache_clear()


def _forget(name: str) -> None:
    """What a new process does not know."""
    plug_ins.cache_clear()
    sys.modules.pop(name, None)
    driver._new_driver.cache_clear()
    launch.LOADERS.pop(name, None)
    for key in [key for key in registry._INSTANCES if key[0] == name]:
        del registry._INSTANCES[key]


Discover = Callable[[str, str], None]


@pytest.fixture
def discover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Discover:
    """Installs a plug-in with a name and code, as a new process finds it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def found(name: str, code: str) -> None:
        shutil.rmtree(tmp_path / f"{name}-1.5.dist-info", ignore_errors=True)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        put(tmp_path, name, code)
        _forget(name)

    return found


@pytest.mark.parametrize("name", UNUSABLE)
def test_plug_ins_that_cannot_be_used_are_named(
    name: str, discover: Discover, capsys: pytest.CaptureFixture[str]
) -> None:
    code, cause = UNUSABLE[name]
    discover(name, code)
    assert main(["conformance", "--target", name, "-j1"]) == 2
    found = capsys.readouterr().err
    assert f"the plug-in tilewright.targets: {name} = {name}:Target, of {name} 1.5 " in found
    assert cause in found
    assert "Traceback" not in found


RAISE, NONE = "raise OSError('no licence')", "return None"
"""What a faulty member does."""


def _faulty(kind: str, member: str, body: str) -> str:
    """A class of a plug-in that is right but for one member."""
    bases = {"Target": "InterpreterTarget", "Driver": "CpuDriver", "Launcher": "InterpreterLaunch"}
    same = {"Target": 'name = "NAME"', "Driver": 'device_type = "NAME"'}.get(kind, "pass")
    return f"""
class {kind}({bases[kind]}):
    {same}

    def {member}(self, *args, **kwargs):
        {body}
"""


def _named(kind: str, cause: str) -> str:
    return rf"faulty = faulty:{kind}, of faulty 1\.5 {cause}"


@pytest.mark.parametrize(
    ("member", "returned"),
    [
        ("key", "text"),
        ("features", "a set of names"),
        ("parse_options", "a dataclass"),
        ("frontend_options", "a FrontendOptions"),
        ("steps", "a sequence of steps"),
    ],
)
def test_members_of_targets_that_are_faulty_are_named(
    member: str, returned: str, discover: Discover
) -> None:
    source = ASTSource(one, {"x": "*i32"})
    for body, cause in (
        (RAISE, "cannot be used: OSError: no licence"),
        (NONE, f"is not a target: its `{member}` returns None, not {returned}"),
    ):
        discover("faulty", _faulty("Target", member, body))
        with pytest.raises(PlugInError, match=_named("Target", cause)):
            tw.compile(source, target="faulty")


def test_options_at_which_a_plug_in_fails_are_named(discover: Discover) -> None:
    body = "return super().parse_options(args[0]) if not args[0] else 1 // 0"
    discover("faulty", _faulty("Target", "parse_options", body))
    source = ASTSource(one, {"x": "*i32"})
    assert tw.compile(source, target="faulty")
    with pytest.raises(PlugInError, match=_named("Target", "cannot be used: ZeroDivisionError")):
        tw.compile(source, target="faulty", options={"num_warps": 2})


def test_stages_at_which_a_plug_in_fails_are_named(discover: Discover) -> None:
    for body, cause in ((RAISE, "cannot be used"), (NONE, "is not a target: its `derive` returns")):
        discover("faulty", _faulty("Target", "derive", body))
        kernel = tw.compile(ASTSource(one, {"x": "*i32"}), target="faulty")
        with pytest.raises(PlugInError, match=_named("Target", cause)):
            kernel.asm["assembly"]


def test_claims_at_which_a_plug_in_fails_are_named(discover: Discover) -> None:
    discover("faulty", _faulty("Target", "claims", RAISE))
    with pytest.raises(PlugInError, match=_named("Target", "cannot be used: OSError")):
        claims_of(registry.target("faulty"))


ASKED: dict[str, tuple[str, Callable[[], object]]] = {
    "is_active": ("True or False", lambda: driver.is_usable("faulty")),
    "target_of": ("a GPUTarget", lambda: driver.target_of("faulty:0")),
    "get_current_device": ("an integer", lambda: driver.name_of(driver.driver_of("faulty"))),
    "get_current_stream": ("an integer", lambda: driver.current_stream("faulty:0")),
    "allocate": ("an Allocation", lambda: DeviceArray("faulty:0", np.zeros(1))),
}


@pytest.mark.parametrize("member", ASKED)
def test_members_of_drivers_that_are_faulty_are_named(member: str, discover: Discover) -> None:
    returned, ask = ASKED[member]
    for body, cause in (
        (RAISE, "cannot be used: OSError: no licence"),
        (NONE, f"is not a driver: its `{member}` returns None, not {returned}"),
    ):
        discover("faulty", _faulty("Driver", member, body))
        with pytest.raises(PlugInError, match=_named("Driver", cause)):
            ask()


def test_launchers_that_are_faulty_are_named(discover: Discover) -> None:
    for body, cause in (
        (RAISE, "cannot be used: OSError: no licence"),
        (NONE, "is not a launcher: it returns .*, which has no handle"),
    ):
        discover("faulty", _faulty("Launcher", "__init__", body))
        kernel = tw.compile(ASTSource(one, {"x": "*i32"}), target="faulty")
        with pytest.raises(PlugInError, match=_named("Launcher", cause)):
            kernel.load()


def test_kernels_of_plug_ins_with_equal_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two plug-ins that derive from one target have: those of one were stored for both."""
    for name in ("first", "second"):
        put(tmp_path, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("first", "second"):
        _forget(name)
        kernel = tw.compile(ASTSource(one, {"x": "*i32"}), target=name)
        assert kernel.metadata.target.backend == name


DRIVERLESS = """
class Driver(CpuDriver):
    device_type = "NAME"

    def __init__(self):
        raise OSError("no /dev/npu0")
"""


def test_driver_that_cannot_be_created_is_named(discover: Discover) -> None:
    discover("absent", DRIVERLESS)
    with pytest.raises(PlugInError, match=r"absent:Driver, of absent 1\.5 cannot be used: OSError"):
        driver.driver_of("absent")


WRONG_RESULTS = {
    "a stage `x` that is neither text nor bytes": "found.stages | {'x': object()}, found.metadata",
    "metadata that is no dictionary, but None": "found.stages, None",
    "metadata without `name`": "found.stages, found.metadata | {'name': 5}",
}


@pytest.mark.parametrize("fault", WRONG_RESULTS)
def test_wrong_results_of_a_compiler_are_named(fault: str, discover: Discover) -> None:
    given = 'found.stages, {"where": object()}'
    discover("wrong", WRONG_METADATA.replace(given, WRONG_RESULTS[fault]))
    with pytest.raises(InternalCompilerError, match=f"of the target wrong returns {fault}"):
        tw.compile(ASTSource(one, {"x": "*i32"}), target="wrong")


def test_failure_of_a_compiler_names_its_plug_in(discover: Discover) -> None:
    discover("broken", BROKEN)
    provider = r"the plug-in tilewright\.targets: broken = broken:Target, of broken 1\.5"
    with pytest.raises(InternalCompilerError, match=f"This is a fault of {provider}, not of the"):
        tw.compile(ASTSource(one, {"x": "*i32"}), target="broken")
