"""Programs that import only `triton` run on tilewright, and so do their child processes.

Each runs in its own interpreter, in a folder without any reference to tilewright.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A program as one finds them: kernels in a module of their own, a helper, a callable grid. Its
# arrays are NumPy's, as torch takes a second to import.
KERNELS = """
import numpy as np
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gelu(x):
    return 0.5 * x * (1 + libdevice.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, gelu(x), mask=i < n)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + i, e / tl.sum(e, axis=0), mask=i < columns)


def launch(x, gelu, softmax):
    n, rows, columns = 70 * 37, 70, 37
    gelu_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, gelu, n, BLOCK=256)
    softmax_kernel[(rows,)](x, softmax, columns, 37, BLOCK=triton.next_power_of_2(37))


def check(seed=0):
    x = np.random.default_rng(seed).standard_normal((70, 37), np.float32)
    gelu, softmax = np.empty_like(x), np.empty_like(x)
    launch(x, gelu, softmax)
    tanh = np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))
    np.testing.assert_allclose(gelu, 0.5 * x * (1 + tanh), rtol=1e-5, atol=1e-6)
    e = np.exp(x)
    np.testing.assert_allclose(softmax, e / e.sum(1, keepdims=True), rtol=1e-5)
    return "right", triton.__version__
"""

TORCH = """
import torch
import triton
import kernels

x = torch.randn(70, 37)
gelu, softmax = torch.empty_like(x), torch.empty_like(x)
kernels.launch(x, gelu, softmax)
torch.testing.assert_close(gelu, torch.nn.functional.gelu(x, approximate="tanh"))
torch.testing.assert_close(softmax, torch.softmax(x, 1))
print(("right", triton.__version__))
"""

INSTALL = f"""
import sys; sys.path.append({str(ROOT)!r})
import tilewright
tilewright.install_as_triton()
"""

SPAWN = """
import multiprocessing, sys

def work(seed):
    import kernels
    return kernels.check(seed)

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [1]))
"""


def _python(
    folder: Path, *words: str, path: str | None = None, cwd: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = path
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd or folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _search_path() -> str:
    return _python(ROOT, "-m", "tilewright", "run", "--path").stdout.strip()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(KERNELS)
    return tmp_path


@pytest.mark.skipif(find_spec("triton") is not None, reason="Triton is installed too")
def test_triton_is_not_installed(tmp_path: Path) -> None:
    """Else these tests would prove nothing."""
    assert "No module named 'triton'" in _python(tmp_path, "-c", "import triton").stderr


def test_installed_in_the_process(program: Path) -> None:
    run = _python(program, "-c", INSTALL + TORCH)
    assert run.stdout == "('right', '3.7.1')\n", run.stderr


def test_run_gives_the_script_arguments_and_its_own_name(program: Path) -> None:
    script = program / "main.py"
    script.write_text(
        "import sys, kernels\nprint(__name__, sys.argv, kernels.check())\nsys.exit(7)"
    )
    run = _python(program, "-m", "tilewright", "run", str(script), "--help", "-m", "x", cwd=ROOT)
    assert run.stdout == f"__main__ {[str(script), '--help', '-m', 'x']} ('right', '3.7.1')\n"
    assert run.returncode == 7, run.stderr


def test_run_of_a_module_keeps_the_interpreters_options(program: Path) -> None:
    (program / "main.py").write_text("import sys, triton\nprint(sys.argv[1:], sys.flags.optimize)")
    words = ("-O", "-m", "tilewright", "run", "-m", "main", "--steps", "3")
    run = _python(program, *words, path=str(ROOT))
    assert run.stdout == "['--steps', '3'] 1\n", run.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "specify a script"),
        (("absent.py",), "no such file: absent.py"),
    ],
)
def test_run_without_a_script_is_an_error(words: tuple[str, ...], message: str) -> None:
    run = _python(ROOT, "-m", "tilewright", "run", *words)
    assert run.returncode == 2
    assert message in run.stderr


def test_run_in_isolated_mode_explains_the_failure(program: Path) -> None:
    code = f"import sys; sys.path.append({str(ROOT)!r}); from tilewright.tools.cli import main; "
    run = _python(program, "-I", "-c", code + "sys.exit(main(['run', 'kernels.py']))")
    assert run.returncode == 2
    assert "options -E and -I ignore" in run.stderr


def test_folder_on_pythonpath(program: Path) -> None:
    run = _python(program, "-c", TORCH, path=_search_path())
    assert run.stdout == "('right', '3.7.1')\n", run.stderr


@pytest.mark.parametrize("way", ["install", "path"])
def test_spawned_children(way: str, program: Path) -> None:
    script = program / "main.py"
    script.write_text((INSTALL if way == "install" else "") + SPAWN)
    run = _python(program, "main.py", path=None if way == "install" else _search_path())
    assert run.stdout == "[('right', '3.7.1')]\n", run.stderr


def test_subprocess_of_an_installed_process(program: Path) -> None:
    """Also one that inherits only the environment."""
    code = INSTALL + (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import kernels; print(kernels.check())'])"
    )
    run = _python(program, "-c", code)
    assert run.stdout == "('right', '3.7.1')\n", run.stderr


def test_a_triton_that_is_installed_is_not_used(program: Path) -> None:
    other = program / "site" / "triton"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("__version__ = 'another'")
    late = f"sys.path.insert(0, {str(other.parent)!r})\n"
    run = _python(program, "-c", INSTALL + late + "import triton; print(triton.__version__)")
    assert run.stdout == "3.7.1\n", run.stderr


def test_a_triton_that_is_imported_already_is_rejected(program: Path) -> None:
    (program / "triton.py").write_text("")
    run = _python(program, "-c", "import triton\n" + INSTALL)
    assert "RuntimeError: 'triton' has already been imported" in run.stderr
    assert "python -m tilewright run" in run.stderr
