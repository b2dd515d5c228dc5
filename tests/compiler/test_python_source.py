"""The Python text of derived kernels compiles to their tile IR, up to names and the places of
constants and of other ops without effects."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.autodiff.cases import NAMES, Case, case
from tests.autodiff.harness import cleaned, forward_module, launch_points, tape_plan
from tests.autodiff.recurrences import LOOPS, arguments, kernel
from tilewright.autodiff.forward import forward_mode
from tilewright.autodiff.reverse import reverse_mode
from tilewright.compiler.python_source import NoSourceError, python_source
from tilewright.frontend.build import build_module
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module, Op, Region, Value
from tilewright.ir.types import text_of
from tilewright.ops.arith import Constant
from tilewright.ops.debug import Assert


class _Text:
    """The text of a module, in which ops without effects stand where they are first used."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[Value, str] = {}

    def region(self, region: Region) -> None:
        for arg in region.args:
            self._name(arg)
        self.lines.append(f"({', '.join(text_of(a.type) for a in region.args)}) {{")
        for op in region:
            if op.regions or op.terminator or not op.pure:
                self._op(op)
        self.lines.append("}")

    def _name(self, value: Value) -> None:
        self._names[value] = f"%{len(self._names)}"

    def _of(self, value: Value) -> str:
        if isinstance(value.op, Constant):
            return f"{text_of(value.type)} {value.op.value!r}"
        if value not in self._names:
            assert value.op is not None
            self._op(value.op)
        return self._names[value]

    def _op(self, op: Op) -> None:
        if any(r in self._names for r in op.results):
            return
        operands = [self._of(v) for v in op.operands]
        if op.commutative:
            operands.sort()
        for result in op.results:
            self._name(result)
        kinds = [text_of(r.type) for r in op.results]
        self.lines.append(f"{op.name} {operands} {op.attributes} {kinds}")
        for region in op.regions:
            self.region(region)


def text_of_module(module: Module) -> str:
    text = _Text()
    text.region(module.entry.body)
    return "\n".join(text.lines)


def compiled(text: str, name: str, like: Module, path: Path) -> Module:
    """The tile IR of the text, after the tile passes."""
    path.write_text(text)
    spec = spec_from_file_location("derived_source", path)
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    entry = like.entry
    function = getattr(made, name)
    types = [text_of(arg.type).replace("ptr<", "*").rstrip(">") for arg in entry.args]
    signature = dict(zip(function.arg_names, types, strict=True))
    # Without the option, assertions are left out.
    options = FrontendOptions(
        debug=any(isinstance(op, Assert) for op in like.walk()), sanitize_overflow=False
    )
    module = build_module(function, signature, {}, {}, options)
    for facts, given in zip(module.entry.arg_attrs, entry.arg_attrs, strict=True):
        facts.clear()
        facts.update(given)
    return settled(module)


def settled(module: Module) -> Module:
    """The module after the tile passes, which are repeated until nothing changes."""
    before = ""
    while text_of_module(cleaned(module)) != before:
        before = text_of_module(module)
    return module


def same(module: Module, path: Path) -> str:
    module = settled(module)
    text = python_source(module)
    found = compiled(text, module.entry.name, module, path)
    assert text_of_module(found) == text_of_module(module), text
    return text


def named(name: str) -> Case:
    if name in LOOPS:
        return kernel(LOOPS[name]), 2, arguments(3), ("x_ptr", "w_ptr"), ("y_ptr",), {}
    return case(name)


@pytest.mark.parametrize("name", [*NAMES, *LOOPS])
def test_the_text_of_a_gradient_compiles_to_the_gradient(name: str, tmp_path: Path) -> None:
    text, grid, args, wrt, outputs, constexprs = named(name)
    module = forward_module(text, args, constexprs)
    plan = tape_plan(launch_points(module, grid, args))
    derived: Any = reverse_mode(module, wrt, outputs, atomic=wrt, tapes=plan).module
    same(derived, tmp_path / "gradient.py")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*NAMES, *LOOPS])
def test_the_text_of_tangents_compiles_to_the_tangents(name: str, tmp_path: Path) -> None:
    text, _, args, wrt, outputs, constexprs = named(name)
    module = forward_module(text, args, constexprs)
    same(forward_mode(module, wrt, outputs).module, tmp_path / "tangents.py")


def test_the_text_of_less_common_ops(tmp_path: Path) -> None:
    text = """
def kernel(x_ptr, y_ptr):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    places = tl.sort(x.to(tl.int32) * 8 + i, descending=True)
    counts = tl.histogram(places, 8, mask=i < 5) + tl.histogram(i, 8)
    left, right = tl.split(tl.reshape(tl.flip(x), [4, 2]))
    x = x * tl.cat(right, left, dim=0) + counts
    for f in tl.static_range(6):
        x = x * 0.5
        x = libdevice.tanh(x) if f == 0 else libdevice.log1p(x) if f == 1 else x
        x = libdevice.expm1(x) if f == 2 else libdevice.log10(x) if f == 3 else x
        x = libdevice.rint(x) if f == 4 else libdevice.trunc(x) if f == 5 else x
    tl.store(y_ptr + i, x)
"""
    args = {"x_ptr": np.ones(8), "y_ptr": np.ones(8)}
    module = forward_module(text.replace("libdevice", "tl.extra.libdevice"), args, {})
    same(module, tmp_path / "kernel.py")


def test_the_text_of_fast_functions(tmp_path: Path) -> None:
    names = ("exp", "log", "log2", "log10", "sin", "cos", "tanh")
    text = "def kernel(x_ptr, y_ptr):\n    x = tl.load(x_ptr)\n"
    text += "".join(f"    x = tl.extra.libdevice.fast_{name}f(x)\n" for name in names)
    text += "    tl.store(y_ptr, x)\n"
    args = {"x_ptr": np.ones(1, np.float32), "y_ptr": np.ones(1, np.float32)}
    written = same(forward_module(text, args, {}), tmp_path / "kernel.py")
    assert all(f"fast_{name}f(" in written for name in names)


def test_what_the_language_has_no_spelling_for() -> None:
    for line, what in (
        ("    y = tl.arange(0, 4).to(tl.int64).to(tl.pointer_type(tl.int32))", "ptr"),
    ):
        text = f"def kernel(x_ptr, n):\n{line}\n    tl.store(x_ptr + tl.arange(0, 4), tl.load(y))"
        module = forward_module(text, {"x_ptr": np.zeros(4, np.int32), "n": 1}, {})
        with pytest.raises(NoSourceError, match=what):
            python_source(module)
