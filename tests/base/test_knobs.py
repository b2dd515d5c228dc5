"""Settings: the sources of their values, and how overrides are reset."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.base import knobs
from tilewright.base import knobs as settings

VARIABLES = sorted(
    {name for group in knobs.GROUPS.values() for k in group.table().values() for name in k.names}
)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, group in knobs.GROUPS.items():
        monkeypatch.setattr(knobs, name, group.copy().reset())
        monkeypatch.setitem(knobs.GROUPS, name, getattr(knobs, name))


def test_override_wins_over_environment_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert knobs.runtime.debug is False
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    assert knobs.runtime.debug is True
    knobs.runtime.debug = False
    assert knobs.runtime.debug is False
    del knobs.runtime.debug
    assert knobs.runtime.debug is True


def test_assigning_env_returns_to_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    knobs.runtime.debug = False
    knobs.runtime.debug = knobs.env
    assert knobs.runtime.debug is True


def test_own_name_wins_over_alias_and_empty_counts_as_unset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/alias")
    assert knobs.cache.dir == "/alias"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "/own")
    assert knobs.cache.dir == "/own"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "")
    assert knobs.cache.dir == "/alias"


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "y", "Yes", "on", " on "])
def test_true_texts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", text)
    assert knobs.runtime.interpret is True


@pytest.mark.parametrize("text", ["0", "false", "no", "off", "2", "x"])
def test_other_texts_are_false_even_where_the_default_is_true(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", text)
    assert knobs.language.default_fp_fusion is False


@pytest.mark.parametrize("text", ["four", "-1", "1.5"])
def test_bad_environment_names_the_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CPU_THREADS", text)
    with pytest.raises(ValueError, match=f"TILEWRIGHT_CPU_THREADS='{text}': expected"):
        _ = knobs.runtime.cpu_threads


def test_bad_assignment_is_rejected_and_changes_nothing() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        knobs.runtime.cpu_threads = -1
    with pytest.raises(ValueError, match="ieee"):
        knobs.language.fp32_default = "fp19"
    assert knobs.runtime.cpu_threads == 0
    assert knobs.language.fp32_default is None


def test_unknown_setting_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"runtime\.debgu"):
        knobs.runtime.debgu = True
    with pytest.raises(AttributeError):
        _ = knobs.runtime.debgu  # pyright: ignore[reportAttributeAccessIssue]


def test_scope_undoes_all_even_after_an_error() -> None:
    knobs.runtime.cpu_threads = 3

    def fail_inside() -> None:
        with knobs.runtime.scope():
            knobs.runtime.cpu_threads = 5
            knobs.runtime.debug = True
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert knobs.runtime.cpu_threads == 3
    assert knobs.runtime.debug is False


def test_copy_is_apart_and_reset_undoes() -> None:
    knobs.runtime.cpu_threads = 3
    twin = knobs.runtime.copy()
    assert isinstance(twin, knobs.Runtime)
    twin.cpu_threads = 4
    assert knobs.runtime.cpu_threads == 3
    assert knobs.runtime.reset() is knobs.runtime
    assert knobs.runtime.cpu_threads == 0
    assert twin.knobs["cpu_threads"] == 4


def test_cache_key_contains_exactly_the_settings_that_change_code() -> None:
    before = knobs.cache_key_values()
    knobs.cache.dir = "/elsewhere"
    knobs.runtime.cpu_threads = 7
    assert knobs.cache_key_values() == before
    knobs.compilation.cpu_features = "-avx512f"
    changed = knobs.cache_key_values()
    assert {k for k in changed if changed[k] != before[k]} == {"compilation.cpu_features"}


def test_cache_folder_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert knobs.cache.folder() == str(tmp_path / ".cache/tilewright")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert knobs.cache.folder() == str(tmp_path / ".cache/tilewright")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert knobs.cache.folder() == "/xdg/tilewright"
    monkeypatch.setenv("TRITON_HOME", "/home2")
    assert knobs.cache.folder() == "/home2/.cache/tilewright"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "~/kernels")
    assert knobs.cache.folder() == str(tmp_path / "kernels")


def test_documentation_lists_every_setting() -> None:
    text = knobs.render_docs()
    for group in knobs.GROUPS.values():
        for name, knob in group.table().items():
            assert knob.doc
            assert f"| `{name}` | `{knob.names[0]}`" in text
    assert "| `debug` | `TILEWRIGHT_DEBUG`, `TRITON_DEBUG` | `False` | yes |" in text


def test_environment_of_the_process_is_read_at_each_use() -> None:
    program = (
        "import os; from tilewright.base import knobs; a = knobs.runtime.debug;"
        "os.environ['TILEWRIGHT_DEBUG'] = 'on'; b = knobs.runtime.debug;"
        "del os.environ['TILEWRIGHT_DEBUG']; print(a, b, knobs.runtime.debug)"
    )
    root = Path(knobs.__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env={k: v for k, v in os.environ.items() if k not in VARIABLES},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["False", "True", "False"]


def test_assigned_values_reach_child_processes_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_DEBUG", raising=False)
    with knobs.runtime.scope():
        knobs.runtime.debug = True
        assert "TILEWRIGHT_DEBUG" not in os.environ
        monkeypatch.setattr(knobs, "propagate_env", True)
        with knobs.runtime.scope():
            knobs.runtime.debug = True
            knobs.runtime.override_arch = "sm90"
            assert os.environ["TILEWRIGHT_DEBUG"] == "1"
            assert os.environ["TILEWRIGHT_OVERRIDE_ARCH"] == "sm90"
            knobs.runtime.override_arch = None
            assert "TILEWRIGHT_OVERRIDE_ARCH" not in os.environ
        assert "TILEWRIGHT_DEBUG" not in os.environ
    knobs.refresh_knobs()


def test_hooks_are_not_settings() -> None:
    assert "jit_cache_hook" not in knobs.runtime.table()
    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = print
        assert knobs.runtime.jit_cache_hook is print
        del knobs.runtime.jit_cache_hook
        assert knobs.runtime.jit_cache_hook is None
        knobs.runtime.jit_cache_hook = print
        knobs.runtime.launch_exit_hook.add(print)
        knobs.runtime.reset()
        assert knobs.runtime.jit_cache_hook is None
        assert not knobs.runtime.launch_exit_hook.calls


# -- names of Triton's ----------------------------------------------------------------------------


def test_settings_without_effect_are_accepted() -> None:
    knobs: Any = settings
    assert knobs.nvidia.libdevice_path is None
    with knobs.nvidia.scope():
        knobs.nvidia.libdevice_path = "/lib"
        assert knobs.nvidia.libdevice_path == "/lib"
    assert knobs.nvidia.libdevice_path is None
    knobs.amd.use_async_copy = True
    assert knobs.amd.use_async_copy is True
    knobs.amd.use_async_copy = knobs.env
    assert knobs.amd.use_async_copy is None
    assert knobs.amd.knobs == {}


def test_unsupported_feature_can_be_read_but_not_enabled() -> None:
    knobs: Any = settings
    assert knobs.compilation.enable_asan is False
    knobs.compilation.enable_asan = False
    with pytest.raises(ValueError, match=r"compilation\.enable_asan can't be True"):
        knobs.compilation.enable_asan = True


def test_unknown_names_are_still_rejected() -> None:
    knobs: Any = settings
    with pytest.raises(AttributeError, match="did you mean opt_level"):
        knobs.nvidia.opt_levl  # noqa: B018
    with pytest.raises(AttributeError, match=r"no setting amd\.nonsense"):
        knobs.amd.nonsense = 1
    with pytest.raises(AttributeError, match="has no attribute 'intel'"):
        knobs.intel  # noqa: B018


def test_alias_is_the_same_setting() -> None:
    knobs.compilation.dump_ir = True
    assert knobs.compilation.dump is True
    del knobs.compilation.dump_ir
    assert knobs.compilation.dump_ir is False
