"""Arguments of the explained launch: recorded, given on the command line, or assumed."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.tools.explain.conftest import KERNELS, Explain
from tilewright.tools import cli
from tilewright.tools.explain.launch import Launch, launch_of
from tilewright.tools.load import UsageError


def launch(place: str, *more: str) -> Launch:
    return launch_of(cli.parser().parse_args(["explain", place, *more]))


def test_first_launch_of_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    found = launch(f"{KERNELS}::add")
    assert found.source.signature == {
        "x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr",
    }  # fmt: skip
    assert found.values == {"n": 1000}
    assert found.grid == (4, 1, 1)
    assert found.options == {"num_warps": 2}
    assert found.origin == f"the first launch in {KERNELS}"
    printed = capsys.readouterr()
    assert not printed.out
    assert f"running {KERNELS} up to its first launch of add" in printed.err
    assert "this is what the script prints" in printed.err


def test_compile_time_values_replace_those_of_the_launch() -> None:
    found = launch(f"{KERNELS}::add", "-c", "BLOCK=64", "--arg", "n=77", "--grid", "3,2")
    assert found.source.constants == {(4,): 64}
    assert found.values["n"] == 77
    assert found.grid == (3, 2)


def test_explicit_types_without_a_launch() -> None:
    found = launch(f"{KERNELS}::rows")
    assert found.origin == "types from __tilewright_signatures__"
    assert found.grid is None


@pytest.mark.parametrize(
    ("place", "more", "message"),
    [
        ("::strided", (), r"does not launch strided \(it exited with explaining goes no further"),
        ("::strided", (), r'\): give the types of strided.*--signature "x=\*fp32:16,n=i32"'),
        ("::strided", ("--no-run",), r"^give the types of strided\(x, out, stride, BLOCK\)"),
        ("::nothing", (), "write .*::KERNEL; its kernels: add"),
        ("::add", ("-c", "BLOC=64"), "^--constexpr: add has no parameter 'BLOC'"),
        ("::add", ("--arg", "m=64"), "--arg: add has no parameter 'm'"),
        ("::add", ("--grid", "4,x"), "--grid: write one to three extents, as 128 or 64,8"),
        ("::add", ("--grid", "0"), "--grid: write one to three extents"),
    ],
)
def test_errors_are_reported(place: str, more: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        launch(f"{KERNELS}{place}", *more)


def test_script_that_fails(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(
        "import tilewright as tw\n@tw.jit\ndef k(x):\n    pass\n"
        "if __name__ == '__main__':\n    raise OSError('no device')\n"
    )
    message = r"not launch k \(it failed in line 6: OSError: no device\): give the types of k\(x\)"
    with pytest.raises(UsageError, match=message):
        launch(f"{script}::k")


@pytest.mark.parametrize("ending", ["1 / 0", "raise SystemExit('no device')", "import k k"])
def test_script_that_cannot_be_imported(tmp_path: Path, ending: str) -> None:
    script = tmp_path / "broken.py"
    script.write_text(f"import tilewright as tw\n@tw.jit\ndef k(x):\n    pass\n{ending}\n")
    for words in ((), ("-s", "x=*fp32")):
        with pytest.raises(UsageError, match=r"^importing .*broken.py failed.*line 5"):
            launch(f"{script}::k", *words)


def test_installed_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    script = tmp_path / "k.py"
    script.write_text("import triton\n@triton.jit\ndef k(x):\n    pass\n")
    with pytest.raises(UsageError, match="'triton' has already been imported"):
        launch(f"{script}::k")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-t", "sm_91"], "there is no NVIDIA architecture"),
        (["-t", "vax"], "there is no target 'vax'"),
        (["-o", "num_warps=3"], "num_warps must be a power of 2"),
        (["-o", "num_warps=four"], "num_warps is an int, not 'four'"),
        (["-o", "num_wraps=4"], "num_wraps was specified but unrecognised"),
    ],
)
def test_wrong_targets_and_options(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", f"{KERNELS}::add", *words]) == 2
    assert message in capsys.readouterr().err


def test_kernel_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(
        "import tilewright as tw\nimport tilewright.language as tl\n"
        "@tw.jit\ndef k(x):\n    tl.store(x, tl.nonsense(x))\n"
    )
    assert cli.main(["explain", f"{script}::k", "-s", "x=*fp32"]) == 1
    assert "CompilationError: at 2:" in capsys.readouterr().err


def test_launch_options_are_those_of_the_page(explain: Explain) -> None:
    assert explain("product", "sm_90", "-o", "num_stages=2").options["num_stages"] == 2
