"""The command line: each subcommand on small files, and errors for invalid ones."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.tools import cli
from tilewright.tools.load import import_script, kernels_of
from tilewright.tools.signature import UsageError, parse_type, parse_value, split_types

ROOT = Path(__file__).parents[2]

SCRIPT = """
import tilewright
import tilewright.language as tl


@tilewright.jit
def scale(x, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr = 2):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    unused = tl.load(x + i, i < n) + 1
    tl.store(x + i, tl.load(x + i, i < n) * FACTOR, i < n)


@tilewright.jit
def other(x):
    tl.store(x, tl.no_such_function(x))


__tilewright_signatures__ = {"scale": ("x=*fp32:16,n=i32", {"BLOCK": 32})}

if __name__ == "__main__":
    raise SystemExit("the main part must not run")
"""

IR = """func @twice(%0: ptr<fp32>, %1: fp32, %2: i32) {
  %3 = arith.add %2, %2 : (i32, i32) -> i32
  %4 = arith.add %2, %2 : (i32, i32) -> i32
  %5 = mem.addptr %0, %3 : (ptr<fp32>, i32) -> ptr<fp32>
  mem.store %5, %1, _, cache="", evict="" : (ptr<fp32>, fp32) -> ()
  control.return [] : () -> ()
}
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "kernels_of_test_cli.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def ir(tmp_path: Path) -> Path:
    path = tmp_path / "twice.ir"
    path.write_text(IR)
    return path


def output(capsys: pytest.CaptureFixture[str], *argv: object, status: int = 0) -> str:
    """What a command prints; to standard error when it fails."""
    assert cli.main([str(a) for a in argv]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


# -- show -----------------------------------------------------------------------------------------


def test_show_prints_the_ir_and_each_change(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(capsys, "show", f"{script}::scale")
    assert text.startswith("=== scale, from the front end\nfunc @scale(")
    assert "{alias=0, divisibility=16}" in text
    assert "value=32" in text
    assert "=== after canonicalize (" in text
    removed = [line for line in text.splitlines() if line.startswith("-")]
    assert any("mem.load" in line for line in removed), "the unused load goes"
    assert "no change by inline" in text


def test_show_takes_types_and_values_from_the_command_line(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{script}::scale"
    text = output(capsys, "show", place, "-s", "x=*fp16,n=i64", "-c", "BLOCK=64", "-c", "FACTOR=3")
    assert "func @scale(%0: ptr<fp16> {alias=0}, %1: i64)" in text
    assert "64xptr<fp16>" in text
    text = output(capsys, "show", place, "-c", "BLOCK=128")  # the rest is in the file
    assert "128xptr<fp32>" in text


@pytest.mark.parametrize(
    ("stage", "word"),
    [
        ("source", "def scale("),
        ("ttir", "func @scale("),
        ("llir", "define "),
        ("asm", "scale:"),
        ("obj", "7f454c46"),  # ELF's magic number
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="looks for ELF")
def test_show_prints_one_stage(
    script: Path, stage: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert word in output(capsys, "show", f"{script}::scale", "--stage", stage)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["{script}"], "its kernels: scale, other"),
        (["{script}::nope"], "its kernels: scale, other"),
        (["{script}x::scale"], "is not a Python file"),
        (["{script}::other"], "give the types of other(x), as with --signature"),
        (["{script}::scale", "-s", "x=*fp32"], "the parameter 'n' has no type"),
        (["{script}::scale", "-s", "y=*fp32"], "scale has no parameter 'y'; it has x, n, BLOCK"),
        (["{script}::scale", "-s", "x=*fp32:8,n=i32"], "Only 1 and 16 are valid hints, got 8"),
        (["{script}::scale", "-s", "x"], "there is no element type 'x'"),
        (["{script}::scale", "--stage", "ptx"], "unknown stage 'ptx'; stages: source, ttir"),
    ],
)
def test_show_explains_wrong_usage(
    script: Path, argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [a.format(script=script) for a in argv]
    assert text in output(capsys, "show", *filled, status=2)


def test_show_reports_an_error_of_the_kernel(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(capsys, "show", f"{script}::other", "-s", "x=*fp32", status=1)
    assert text.startswith("CompilationError: at 2:")
    assert "no_such_function" in text


# -- opt ------------------------------------------------------------------------------------------


def test_opt_runs_the_named_passes(ir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "opt", ir, "-p", "cse", "--verify")
    assert text.count("arith.add") == 1
    text = output(capsys, "opt", ir, "-p", "licm")
    assert text.count("arith.add") == 2
    text = output(capsys, "opt", ir, "-p", "")
    assert text == IR


def test_opt_prints_differences_times_and_counts(
    ir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(capsys, "opt", ir, "-p", "licm,cse", "--diff", "--time", "--counts")
    assert "no change by licm" in text
    assert "=== after cse" in text
    assert "\n-  %4 = arith.add" in text
    assert "# cse: " in text
    assert "# merged: 1" in text


def test_opt_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(IR))
    assert "func @twice" in output(capsys, "opt", "-")


def test_opt_rejects_unknown_passes_and_invalid_ir(
    ir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no pass 'csee'" in output(capsys, "opt", ir, "-p", "csee", status=2)
    ir.write_text(IR.replace("fp32, %2: i32", "i64, %2: i32"))
    assert f"IRError: {ir}:5" in output(capsys, "opt", ir, status=1)


# -- interpret ------------------------------------------------------------------------------------


def test_interpret_shows_written_memory(ir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "interpret", ir, "zeros(8, fp32)", "1.5", "3")
    assert "argument 0: zeros(8, fp32)\n[0.  0.  0.  0.  0.  0.  1.5 0. ]" in text


def test_interpret_finds_an_access_out_of_bounds(
    ir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(capsys, "interpret", ir, "zeros(8, fp32)", "1.5", "4", status=1)
    assert text.startswith("InterpreterError")
    assert f"{ir}:5" in text


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["zeros(8, fp33)", "1.5", "3"], "unknown element type 'fp33'"),
        (["ones(8, fp32)", "1.5", "3"], "neither a number nor an array such as zeros(64, fp32)"),
        (["zeros(8, fp32)", "1.5"], "takes 3 arguments, not 2"),
        (["zeros(8, fp64)", "1.5", "3"], "whose elements have 4 bytes"),
    ],
)
def test_interpret_explains_wrong_arguments(
    ir: Path, args: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text in output(capsys, "interpret", ir, *args, status=2)


# -- parts ----------------------------------------------------------------------------------------


def test_a_command_imports_no_other() -> None:
    program = """
import sys
from tilewright.tools import cli
cli.main(["cache", "list"])
others = set(cli.VERBS) - {"cache", "explain"}
print(sorted(others & {name.rpartition(".")[2] for name in sys.modules if ".tools." in name}))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


def test_module_runs_as_a_command(ir: Path) -> None:
    command = [sys.executable, "-m", "tilewright", "opt", str(ir), "-p", "cse"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("arith.add") == 1
    bad = subprocess.run(command[:3], cwd=ROOT, capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert "VERB" in bad.stderr


def test_missing_file_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("opt", "interpret", "rerun"):
        assert "No such file" in output(capsys, verb, tmp_path / "none.ir", status=2)
    assert "no such file" in output(capsys, "show", tmp_path / "none.py", status=2)


def test_types_are_split_at_outer_commas() -> None:
    assert split_types("a=*fp32, t=(i32,(fp32,i8)) ,") == ["a=*fp32", "t=(i32,(fp32,i8))"]


def test_descriptors_are_types() -> None:
    parts = ["d=tensordesc<fp16[64, 64]>:16", "n=i32"]
    assert split_types(",".join(parts)) == parts
    attrs: dict[tuple[int, ...], list[object]] = {}
    assert parse_type("tensordesc<fp16[64, 64]>:16", (2,), attrs) == "tensordesc<fp16[64, 64]>"
    assert attrs == {(2, i): [["tt.divisibility", 16]] for i in (1, 2)}


def test_types_carry_hints() -> None:
    attrs: dict[tuple[int, ...], list[object]] = {}
    assert parse_type("(i32:16,*fp32)", (2,), attrs) == ("i32", "*fp32")
    assert attrs == {(2, 0): [["tt.divisibility", 16]]}


def test_values_are_literals_or_text() -> None:
    found = [parse_value(text) for text in ("3", "-1.5", "True", "None", "(1, 2)", "ieee")]
    assert found == [3, -1.5, True, None, (1, 2), "ieee"]


def test_kernels_are_found_in_wrappers(script: Path) -> None:
    module = import_script(script)

    class Wrapper:
        def __init__(self, fn: object) -> None:
            self.fn = fn

    module.tuned = Wrapper(Wrapper(module.scale))
    module.unrelated = Wrapper(3)
    assert set(kernels_of(module)) == {"scale", "other", "tuned"}


def test_wrong_hint_is_an_error_of_usage() -> None:
    with pytest.raises(UsageError, match="Only 1 and 16 are valid hints, got 4"):
        parse_type("*fp32:4", (0,), {})
