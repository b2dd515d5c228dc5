"""Names that a kernel refers to are rebound after it was compiled: no launch runs stale code."""

from __future__ import annotations

import collections
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.runtime.test_native_launch import ready, runs_of
from tilewright.runtime.jit import JITFunction, constexpr_function, jit
from tilewright.runtime.native import guard_tables
from tilewright.runtime.native.layout import FIELDS, WORD
from tilewright.runtime.native.structure import Structure

Array = np.ndarray[Any, Any]
named_tuple: Any = collections.namedtuple
CHANGED = "Global variable {} has changed since we compiled this kernel"


@jit
def one(x):
    return x + 1


@jit
def two(x):
    return x + 2


@jit
def through(x):
    return helper(x)


@constexpr_function
def three(x):
    return x + 3


helper = one
LIMIT = tl.constexpr(4)
Pair = named_tuple("Pair", "a b")
settings = ModuleType("settings")
vars(settings)["inner"] = ModuleType("settings.inner")
vars(settings.inner)["helper"] = one
others = ModuleType("others")
vars(others)["inner"] = ModuleType("others.inner")
vars(others.inner)["helper"] = two


def calls(out):
    tl.store(out, helper(0))


def calls_through_another(out):
    tl.store(out, through(0))


def calls_of_module(out):
    tl.store(out, settings.inner.helper(0))


def makes_pair(out):
    tl.store(out, Pair(1, 2).a)


def calls_builtin(out):
    tl.store(out, max(1, 0))


CASES: list[tuple[Callable[..., Any], Any, str, Any]] = [
    (calls, None, "helper", two),
    (calls, None, "helper", three),
    (calls_through_another, None, "helper", two),
    (calls_of_module, settings.inner, "helper", two),
    (calls_of_module, settings, "inner", others.inner),
    (calls_of_module, None, "settings", others),
    (makes_pair, None, "Pair", named_tuple("Pair", "b a")),
    (calls_builtin, None, "max", two),
]
NAMES = [f"{c[0].__name__}-{c[2]}-{getattr(c[3], '__name__', c[3])}" for c in CASES]


@pytest.mark.parametrize(("function", "owner", "name", "value"), CASES, ids=NAMES)
def test_a_rebound_name_is_an_error_until_its_value_returns(
    function: Callable[..., Any],
    owner: Any,
    name: str,
    value: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = np.zeros(1, np.int32)
    kernel = ready(jit(function), out)
    bound = kernel.bind(out, grid=(1,))
    with monkeypatch.context() as patch:
        scope = globals() if owner is None else vars(owner)
        patch.setitem(scope, name, value)
        for launch in (lambda: kernel[(1,)](out), bound):
            with pytest.raises(RuntimeError, match=CHANGED.format(name)) as caught:
                launch()
            assert "Redefine the kernel" in str(caught.value)
        with pytest.raises(RuntimeError, match=CHANGED.format(name)):
            kernel[(1,)](np.zeros(1, np.float32))  # another variant
    out[0] = 0
    seen = runs_of(kernel, monkeypatch)
    kernel[(1,)](out)
    assert not seen
    assert out[0] == 1


def test_a_new_kernel_is_not_compiled_with_the_key_of_a_stale_callee(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = np.zeros(1, np.int32)
    ready(jit(calls_through_another), out)
    monkeypatch.setitem(globals(), "helper", two)
    with pytest.raises(RuntimeError, match=CHANGED.format("helper")):
        jit(calls_through_another)[(1,)](out)
    monkeypatch.setitem(globals(), "through", jit(through.fn))
    jit(calls_through_another)[(1,)](out)
    assert out[0] == 2


def test_rebound_names_of_enclosing_functions_are_an_error() -> None:
    function, limit = one, tl.constexpr(4)

    @jit
    def kernel(out):
        tl.store(out, function(limit))

    out = np.zeros(1, np.int32)
    ready(kernel, out)
    before = function, limit
    for name, after in (("function", (two, limit)), ("limit", (one, tl.constexpr(5)))):
        function, limit = after
        with pytest.raises(RuntimeError, match=CHANGED.format(name)):
            kernel[(1,)](out)
        function, limit = before
    del function
    with pytest.raises(RuntimeError, match=CHANGED.format("function") + ".* to nothing"):
        kernel[(1,)](out)
    function = one
    kernel[(1,)](out)
    assert out[0] == 5


def test_a_reloaded_module_with_the_same_source_is_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "helpers_of_a_kernel.py"
    file.write_text("import tilewright as tw\n\n@tw.jit\ndef helper(x):\n    return x + 1\n")
    spec = importlib.util.spec_from_file_location("helpers_of_a_kernel", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(globals(), "helper", module.helper)
    out = np.zeros(1, np.int32)
    kernel = ready(jit(calls), out)
    before = module.helper
    spec.loader.exec_module(module)
    assert module.helper is not before
    monkeypatch.setitem(globals(), "helper", module.helper)
    kernel[(1,)](out)
    ready(kernel, out)
    seen = runs_of(kernel, monkeypatch)
    kernel[(1,)](out)
    assert not seen, "launches are native again"
    monkeypatch.setitem(globals(), "helper", two)
    with pytest.raises(RuntimeError, match=CHANGED.format("helper")):
        kernel[(1,)](out)


def uses_limit(out):
    tl.store(out, helper(LIMIT))


@pytest.mark.parametrize("versions", [True, False])
def test_other_names_of_the_module_may_change(
    versions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not versions:  # as in Pythons without versions of dicts
        monkeypatch.setattr(guard_tables, "version_offset", lambda: 0)
    out = np.zeros(1, np.int32)
    kernel: JITFunction = ready(jit(uses_limit), out)
    seen = runs_of(kernel, monkeypatch)
    for i in range(3):
        monkeypatch.setitem(globals(), "unrelated", i)
        kernel[(1,)](out)
    assert not seen
    for name, value in (("helper", two), ("LIMIT", tl.constexpr(9))):
        with monkeypatch.context() as patch:
            patch.setitem(globals(), name, value)
            with pytest.raises(RuntimeError, match=CHANGED.format(name)):
                kernel[(1,)](out)
    kernel[(1,)](out)
    assert out[0] == 5


@pytest.mark.skipif(not guard_tables.version_offset(), reason="dicts have no version")
def test_a_namespace_is_compared_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[Structure] = []
    fill = guard_tables.fill_guards
    monkeypatch.setattr(
        "tilewright.runtime.native.launcher.fill_guards",
        lambda state, *names: (fill(state, *names), tables.append(state)),
    )
    ready(jit(uses_limit), np.zeros(1, np.int32))
    (state,) = tables
    at = [FIELDS["State"][name].offset // WORD for name in ("global_count", "guard_count")]
    assert [state.words()[i] for i in at] == [1, 2]  # `run`; the module's version, LIMIT.value
