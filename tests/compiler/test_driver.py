"""The compiler driver: the cache, its key, failures and reproducers; without the front end."""

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tilewright.base import knobs
from tilewright.base.diagnostics import InternalCompilerError, IRError, OutOfResources
from tilewright.compiler import driver
from tilewright.compiler.driver import cache_key
from tilewright.compiler.reproducer import Reproducer
from tilewright.compiler.source import IRSource
from tilewright.ir.core import Function, Module
from tilewright.ir.passes import PassContext, Step, compiler_pass
from tilewright.ops.arith import Add
from tilewright.targets import registry
from tilewright.targets.interpreter.target import InterpreterTarget
from tilewright.targets.protocol import GPUTarget, Lowered, options_from
from tilewright.tools import cli

DEVICE = GPUTarget("fake")

SCALE = """func @scale(%0: ptr<fp32> {divisibility=16}, %1: i32, %2: i1) {
  %3 = arith.add %1, %1 : (i32, i32) -> i32
  %4 = arith.add %3, %1 : (i32, i32) -> i32
  %5 = mem.addptr %0, %4 : (ptr<fp32>, i32) -> ptr<fp32>
  %6 = arith.constant value=2.0, type=fp32 : () -> fp32
  mem.store %5, %6, _ : (ptr<fp32>, fp32) -> ()
  control.return [] : () -> ()
}
"""

failure: Exception | None = None


@compiler_pass("test_fail")
def fail_when_told(fn: Function, ctx: PassContext) -> bool:
    if failure is not None:
        raise failure
    return False


@compiler_pass("test_spoil")
def spoil_types(fn: Function, ctx: PassContext) -> bool:
    for op in fn.walk():
        if isinstance(op, Add):
            op.result.type = fn.args[2].type
            return True
    return False


class FakeTarget(InterpreterTarget):
    """Counts its compilations and can be made to fail."""

    name = "fake"
    compiled: list[str]
    extra: Sequence[Step]
    failure: BaseException | None
    version: str

    def __init__(self, arch: int | str = "") -> None:
        super().__init__(arch)
        self.compiled = []
        self.extra = (Step(fail_when_told),)
        self.failure = None
        self.version = "1"

    def key(self) -> str:
        return self.version

    def parse_options(self, given: Any) -> Any:
        from_fields: Any = type(super().parse_options({}))
        return options_from(from_fields, given)

    def steps(self) -> Sequence[Step]:
        return self.extra

    def compile(self, module: Module, ctx: PassContext, options: Any) -> Lowered:
        if self.failure is not None:
            raise self.failure
        self.compiled.append(module.entry.name)
        return super().compile(module, ctx, options)


class MemoryStore:
    """A store in memory that records look-ups."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, bytes]] = {}
        self.held = 0

    def get(self, key: str) -> dict[str, bytes] | None:
        return self.entries.get(key)

    def put(self, key: str, files: dict[str, bytes]) -> None:
        assert self.held == 1
        self.entries[key] = files

    def path(self, key: str) -> Path | None:
        return None

    @contextmanager
    def compiling(self, key: str) -> Generator[None]:
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> FakeTarget:
    made = FakeTarget()
    monkeypatch.setattr(registry, "_REGISTERED", {"fake": FakeTarget})
    monkeypatch.setattr(registry, "_INSTANCES", {("fake", ""): made})
    return made


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    made = MemoryStore()
    monkeypatch.setattr(driver, "_store_of", lambda: made)
    return made


@pytest.fixture
def source(tmp_path: Path) -> IRSource:
    return ir_source(tmp_path, SCALE)


@pytest.fixture(autouse=True)
def verified(tmp_path: Path) -> Iterator[None]:
    with knobs.compilation.scope():
        knobs.compilation.verify = True
        knobs.compilation.reproducer_dir = str(tmp_path / "repros")
        yield


@pytest.fixture(autouse=True)
def no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "failure", None)


def ir_source(folder: Path, text: str) -> IRSource:
    path = folder / "kernel.ttir"
    path.write_text(text)
    return IRSource(path)


def options_of(target: FakeTarget, **given: Any) -> Any:
    return target.parse_options(given)


# -- results ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("store")
def test_compiled_kernel_has_stages_and_metadata(source: IRSource, target: FakeTarget) -> None:
    compiled = driver.compile(source, DEVICE, {"num_warps": 8})
    assert list(compiled.asm) == ["source", "ttir", "located"]
    assert compiled.asm["source"] == SCALE
    assert "func @scale" in compiled.asm["ttir"]
    assert compiled.name == "scale"
    assert compiled.metadata.num_warps == 8
    assert compiled.metadata.target == DEVICE
    assert compiled.metadata.signature == {"arg0": "*fp32", "arg1": "i32", "arg2": "u1"}
    assert compiled.metadata.arguments == [[[0], "*fp32"], [[1], "i32"], [[2], "u1"]]
    assert compiled.src is source


@pytest.mark.usefixtures("target", "store")
def test_path_of_ir_is_a_source(source: IRSource) -> None:
    assert driver.compile(str(source.path), "fake").name == "scale"
    assert driver.compile(source.path, "fake").name == "scale"


def test_other_files_are_not_sources(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not '\.ptx'"):
        driver.compile(tmp_path / "kernel.ptx")


def test_invalid_ir_is_rejected_at_once(tmp_path: Path) -> None:
    with pytest.raises(IRError, match="expected"):
        ir_source(tmp_path, "func @k( {\n}\n")


@pytest.mark.usefixtures("store")
def test_unknown_option_is_rejected(source: IRSource, target: FakeTarget) -> None:
    with pytest.raises(KeyError, match="Keyword argument num_wraps was specified but unrecog"):
        driver.compile(source, DEVICE, {"num_wraps": 8})
    with pytest.raises(AssertionError, match="num_warps must be a power of 2"):
        driver.compile(source, DEVICE, {"num_warps": 3})


def test_unknown_target_error_lists_the_known_ones(source: IRSource) -> None:
    with pytest.raises(ValueError, match=r"no target 'tpu'; there are cpu, .*interpreter"):
        driver.compile(source, "tpu")


# -- the store ----------------------------------------------------------------------------------


def test_second_compilation_comes_from_the_store(
    source: IRSource, target: FakeTarget, store: MemoryStore
) -> None:
    first = driver.compile(source, DEVICE)
    second = driver.compile(source, DEVICE)
    assert target.compiled == ["scale"]
    assert dict(second.asm) == dict(first.asm)
    assert dict(second.metadata) == dict(first.metadata)
    assert second.src is source
    assert list(store.entries) == [first.hash]


def test_always_compile_ignores_the_cache(
    source: IRSource, target: FakeTarget, store: MemoryStore
) -> None:
    driver.compile(source, DEVICE)
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        driver.compile(source, DEVICE)
    assert len(target.compiled) == 2


def test_damaged_entry_is_replaced(
    source: IRSource, target: FakeTarget, store: MemoryStore
) -> None:
    first = driver.compile(source, DEVICE)
    good = store.entries[first.hash]
    store.entries[first.hash] = {"metadata.json": b"nonsense"}
    driver.compile(source, DEVICE)
    assert len(target.compiled) == 2
    assert store.entries[first.hash] == good


def test_kernel_compiled_while_waiting_is_used(
    source: IRSource, target: FakeTarget, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = driver.compile(source, DEVICE)
    files = store.entries.pop(made.hash)

    @contextmanager
    def wait_for_another(key: str) -> Generator[None]:
        store.entries[key] = files
        yield

    monkeypatch.setattr(store, "compiling", wait_for_another)
    driver.compile(source, DEVICE)
    assert len(target.compiled) == 1


def test_interrupt_leaves_no_files(
    source: IRSource, target: FakeTarget, store: MemoryStore
) -> None:
    target.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        driver.compile(source, DEVICE)
    assert not store.entries
    target.failure = None
    assert driver.compile(source, DEVICE).name == "scale"


def test_only_the_binary_is_kept_on_request(
    source: IRSource, target: FakeTarget, store: MemoryStore
) -> None:
    knobs.compilation.store_binary_only = True
    first = driver.compile(source, DEVICE)
    second = driver.compile(source, DEVICE)
    assert target.compiled == ["scale"]
    assert list(second.asm) == ["located"]
    assert second.kernel == first.kernel


@pytest.mark.usefixtures("store", "target")
def test_stages_are_dumped_on_request(source: IRSource, tmp_path: Path) -> None:
    with knobs.cache.scope():
        knobs.cache.dump_dir = str(tmp_path / "dump")
        knobs.compilation.dump = True
        compiled = driver.compile(source, DEVICE)
    (folder,) = (tmp_path / "dump").iterdir()
    assert sorted(p.name for p in folder.iterdir()) == [
        "scale.located",
        "scale.source",
        "scale.ttir",
    ]
    assert (folder / "scale.ttir").read_text() == compiled.asm["ttir"]


# -- the key ------------------------------------------------------------------------------------


def test_key_is_stable_and_depends_on_every_input(
    source: IRSource, target: FakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = options_of(target)
    keys = [cache_key(source, DEVICE, plain)]
    assert cache_key(IRSource(source.path), DEVICE, options_of(target)) == keys[0]
    keys.append(cache_key(source, DEVICE, options_of(target, num_warps=8)))
    with knobs.compilation.scope():
        knobs.compilation.disable_line_info = True
        keys.append(cache_key(source, DEVICE, plain))
    target.version = "2"
    keys.append(cache_key(source, DEVICE, plain))
    target.version = "1"
    monkeypatch.setattr(driver, "compiler_key", lambda: "another compiler")
    keys.append(cache_key(source, DEVICE, plain))
    monkeypatch.undo()
    other = ir_source(tmp_path, SCALE.replace("divisibility=16", "divisibility=8"))
    assert len(set(keys)) == len(keys)
    assert other.hash() != source.hash()


def test_key_ignores_settings_that_change_no_code(source: IRSource, target: FakeTarget) -> None:
    plain = options_of(target)
    key = cache_key(source, DEVICE, plain)
    knobs.compilation.verify = False
    assert cache_key(source, DEVICE, plain) == key


# -- failures -----------------------------------------------------------------------------------


def failure_of(source: IRSource) -> InternalCompilerError:
    with pytest.raises(InternalCompilerError) as caught:
        driver.compile(source, DEVICE)
    return caught.value


@pytest.mark.usefixtures("store", "target")
def test_failing_pass_writes_a_reproducer_that_repeats_it(
    source: IRSource, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(globals(), "failure", ZeroDivisionError("by nought"))
    error = failure_of(source)
    assert error.step == "test_fail"
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert error.reproducer is not None
    path = Path(error.reproducer)
    assert re.fullmatch(r"scale-test_fail-\w+\.repro\.ir", path.name)
    assert f"python -m tilewright rerun {path}" in str(error)

    repro = Reproducer.read(path)
    assert (repro.kernel, repro.target, repro.steps) == ("scale", DEVICE, ["test_fail"])
    assert repro.options["num_warps"] == 4
    assert "by nought" in repro.error

    assert cli.main(["rerun", str(path)]) == 1
    assert "ZeroDivisionError: by nought" in capsys.readouterr().err
    monkeypatch.setitem(globals(), "failure", None)
    assert cli.main(["rerun", str(path)]) == 0
    assert "no failure" in capsys.readouterr().out


@pytest.mark.usefixtures("store")
def test_reproducer_holds_the_ir_before_the_failing_pass(
    source: IRSource, target: FakeTarget
) -> None:
    target.extra = (Step(spoil_types), Step(fail_when_told))
    error = failure_of(source)
    assert error.step == "test_spoil"
    assert isinstance(error.__cause__, IRError)
    assert error.reproducer is not None
    repro = Reproducer.read(Path(error.reproducer))  # reading it checks types: it is not yet spoilt
    assert repro.steps == ["test_spoil", "test_fail"]
    assert cli.main(["rerun", str(error.reproducer)]) == 1


@pytest.mark.usefixtures("store")
def test_failing_target_has_a_reproducer_without_passes(
    source: IRSource, target: FakeTarget
) -> None:
    target.failure = RuntimeError("cannot select")
    error = failure_of(source)
    assert error.step == "fake"
    assert error.reproducer is not None
    assert Reproducer.read(Path(error.reproducer)).steps == []
    assert cli.main(["rerun", str(error.reproducer)]) == 1
    target.failure = None
    assert cli.main(["rerun", str(error.reproducer)]) == 0


@pytest.mark.usefixtures("store")
def test_error_of_the_kernel_passes_through(source: IRSource, target: FakeTarget) -> None:
    target.failure = OutOfResources(10, 5, "scratch")
    with pytest.raises(OutOfResources):
        driver.compile(source, DEVICE)
    assert not Path(knobs.compilation.reproducer_dir or "").exists()


@pytest.mark.usefixtures("store")
def test_failure_is_reported_where_no_file_can_be_written(
    source: IRSource, target: FakeTarget, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    knobs.compilation.reproducer_dir = str(tmp_path / "file" / "folder")
    target.failure = RuntimeError("cannot select")
    error = failure_of(source)
    assert error.reproducer is None
    assert "cannot select" in str(error)
    assert "No reproducer could be written: NotADirectoryError" in str(error)


def test_rerun_rejects_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernel.ir"
    path.write_text(SCALE)
    assert cli.main(["rerun", str(path)]) == 2
    assert "is not a reproducer" in capsys.readouterr().err
