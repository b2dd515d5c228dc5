"""Every example runs as a script, compiled and interpreted, and checks its own results."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.interop import forked
from tilewright.compiler.pipeline import pipeline
from tilewright.frontend.source import SourceFunction
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext, Step, run
from tilewright.ir.printer import print_module
from tilewright.ir.verify import verify_module
from tilewright.targets import registry
from tilewright.targets.cpu.host import host_machine
from tilewright.tools.load import import_script, source_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
HELPER = "report"  # what the examples share is no example
NEED_TORCH = {"attention", "custom_attention", "giou_loss", "layer_norm", "learned_norm"}
NEED_JAX = {"jax_training"}
SCRIPTS = sorted(
    path
    for path in FOLDER.glob("*.py")
    if path.stem != HELPER and (path.stem not in NEED_JAX or find_spec("jax") is not None)
)


def _run(
    path: Path, *, without: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run an example as a script on small inputs; without a module, as where it is missing."""
    command = [sys.executable, "-W", "error", str(path), "--quick"]
    if without:
        code = (
            f"import runpy, sys; sys.modules[{without!r}] = None; sys.argv = sys.argv[1:]; "
            f"sys.path.insert(0, {str(path.parent)!r}); "
            "runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        command[3:3] = ["-c", code]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def _run_with(path: Path, **environment: str) -> str:
    """The output on small inputs, in a process that has imported what takes long."""
    done = forked.run(path, "--quick", environment=environment, strict=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_example_prints_its_checks_and_its_speed(path: Path) -> None:
    text = _run_with(path)
    assert "  ok" in text
    assert "WRONG" not in text
    assert "tilewright" in text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_example_interpreted(path: Path) -> None:
    _run_with(path, TILEWRIGHT_INTERPRET="1")


OLDER = ("x86-64-v2", "x86-64-v3")


@pytest.mark.skipif(
    not {"avx2", "fma", "f16c"} <= host_machine().features, reason="runs code for AVX2"
)
@pytest.mark.parametrize(
    ("path", "processor"),
    [(path, OLDER[i % 2]) for i, path in enumerate(SCRIPTS)],
    ids=lambda p: p.stem if isinstance(p, Path) else p,
)
def test_example_on_an_older_processor(path: Path, processor: str) -> None:
    """Vectors are narrower there, without fused products or masked accesses: sums have other
    orders. The tests of ops and of random programs run on both."""
    _run_with(path, TILEWRIGHT_CPU_NAME=processor)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_example_without_torch(path: Path) -> None:
    done = _run(path, without="torch")
    if path.stem in NEED_TORCH:
        assert done.returncode == 1
        assert done.stderr.startswith("This example needs torch, for ")
        assert len(done.stderr.splitlines()) == 1
    else:
        assert done.returncode == 0, done.stderr


def test_example_without_jax() -> None:
    done = _run(FOLDER / "jax_training.py", without="jax")
    assert done.returncode == 1
    assert done.stderr == (
        "This example needs JAX, for the network and its training: pip install jax\n"
    )


def test_wrong_result_ends_an_example(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from report import check\ncheck('one', [1.0], [1.0], 0)\ncheck('two', [1.0], [2.0], 0.1)\n"
        "print('not reached')\n"
    )
    done = _run(tmp_path / "wrong.py", PYTHONPATH=str(FOLDER))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "one: max error 0.0e+00 (allowed 0e+00)  ok",
        "two: max error 5.0e-01 (allowed 1e-01)  WRONG",
    ]


@pytest.mark.parametrize("bad", ["float('nan')", "float('inf')"])
def test_nan_is_a_wrong_result(bad: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        f"from report import check\ncheck('it', [{bad}], [1.0], 9)\n"
    )
    assert _run(tmp_path / "wrong.py", PYTHONPATH=str(FOLDER)).returncode == 1


class _RoundTrip:
    """An observer that prints the module after each step, and reads it back."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def before(self, step: Step, module: Module) -> None:
        pass

    def after(self, step: Step, module: Module, changed: bool) -> None:
        text = print_module(module)
        again = parse_module(text)
        verify_module(again)
        assert print_module(again) == text, step.name
        self.steps.append(step.name)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_ir_after_each_pass_survives_printing_and_parsing(path: Path) -> None:
    module = import_script(path)
    signatures = module.__tilewright_signatures__
    kernels = {n: v for n, v in vars(module).items() if isinstance(v, SourceFunction)}
    assert set(signatures) == {n for n in kernels if n.endswith("_kernel")}
    target = registry.target("cpu")
    for name, (signature, constexprs) in signatures.items():
        source = source_of(kernels[name], signature, constexprs)
        ir = source.module(target.frontend_options(target.parse_options({})))
        verify_module(ir)
        seen, steps = _RoundTrip(), pipeline(target)
        run(ir, steps, PassContext(target.features()), [seen])
        assert seen.steps == [step.name for step in steps]
