"""Sources and parameters of functions, and the keys of the cache."""

import collections
import inspect
import linecache
import math
from types import ModuleType
from typing import Any

import pytest

import tilewright.language as tl
from tests.frontend.kernels import function_from, jit, kernel_from
from tilewright.frontend.annotations import with_text
from tilewright.frontend.source import ConstexprFunction, KernelParam, SourceFunction


def decorated(fn: Any) -> Any:
    return fn


@jit
@decorated
def example(
    x: tl.pointer_type(tl.float32),  # pyright: ignore
    n,
    BLOCK: tl.constexpr,
    y: tl.const = None,  # pyright: ignore
    *,
    FLAG: "tl.constexpr" = True,  # pyright: ignore[reportArgumentType],
):
    """Words."""
    return n + BLOCK


def test_source_comes_from_a_replacement_of_getlines(monkeypatch: pytest.MonkeyPatch) -> None:
    text, file = "def made(x):\n    return x\n", "<made-1>"
    scope: dict[str, Any] = {"__name__": __name__}
    getlines = linecache.getlines

    def patched(name: str, module_globals: Any = None) -> list[str]:
        return [*text.splitlines(keepends=True)] if name == file else getlines(name, module_globals)

    monkeypatch.setattr(linecache, "getlines", patched)
    exec(compile(text, file, "exec"), scope)
    assert jit(scope["made"]).src == text


def test_source_starts_at_def() -> None:
    assert example.src.startswith("def example(\n    x:")
    assert example.raw_src[0] == "@jit\n"
    assert example.def_line == example.starting_line_number + 2
    assert example.parse() is example.parse()
    assert example.parse().body[0].name == "example"
    assert example.file_name == __file__
    assert str(example) == f"JITFunction({__name__}:example)"
    assert example.__doc__ == "Words."


def test_parameters() -> None:
    by_name: dict[str, KernelParam] = {p.name: p for p in example.params}
    assert example.arg_names == ["x", "n", "BLOCK", "y", "FLAG"]
    assert [p.num for p in example.params] == [0, 1, 2, 3, 4]
    assert by_name["x"].annotation_type == "*fp32"
    assert by_name["n"].annotation == ""
    assert [p.name for p in example.params if p.is_constexpr] == ["BLOCK", "FLAG"]
    assert example.constexprs == [2, 4]
    assert by_name["y"].is_const
    assert by_name["FLAG"].has_default
    assert by_name["FLAG"].default is True
    assert not by_name["n"].has_default


ANNOTATIONS: list[tuple[Any, str, bool]] = [
    (tl.float16, "fp16", False),
    (tl.int1, "u1", False),
    ("tl.float32", "fp32", False),
    ("i64", "i64", False),
    ("*fp8e5", "*fp8e5", False),
    ("*kfp32", "*kfp32", True),
    ("const float32*", "*kfp32", True),
    ("const *fp16", "*kfp16", True),
    ("const  *tl.int8", "*ki8", True),
    ("int8*", "*i8", False),
    ("tl.const", "", True),
    ("Tensor", "", False),
    (int, "", False),
    (float, "fp32", False),
    (bool, "u1", False),
    (tl.pointer_type(tl.int8, const=True), "*ki8", True),
]


@pytest.mark.parametrize(("annotation", "type_string", "const"), ANNOTATIONS)
def test_annotation_forces_a_type(annotation: Any, type_string: str, const: bool) -> None:
    def kernel(x):
        pass

    kernel.__annotations__["x"] = annotation
    (param,) = jit(kernel).params
    assert (param.annotation_type, param.is_const) == (type_string, const)


def test_postponed_annotations() -> None:
    text = "from __future__ import annotations\ndef kernel(x: tl.int8, N: tl.constexpr): pass\n"
    x, n = kernel_from(text).params
    assert (x.annotation_type, n.is_constexpr) == ("i8", True)


POSTPONED: list[tuple[str, str, bool, bool]] = [
    ("tl.pointer_type(tl.float32, const=True)", "*kfp32", False, True),
    ("tl.pointer_type(tl.float32, const=False)", "*fp32", False, False),
    ("'tl.pointer_type(tl.int8)'", "*i8", False, False),
    ("Constant", "", True, False),
    ("ReadOnly", "", False, True),
    ("MODULE.float16", "fp16", False, False),
    ("Captured", "u8", False, False),
    ("numpy.ndarray", "", False, False),  # a name for type checkers only
    ("MODULE", "", False, False),
    ("1 / 0", "", False, False),
]


@pytest.mark.parametrize(("annotation", "type_string", "constexpr", "const"), POSTPONED)
def test_postponed_annotations_are_evaluated(
    annotation: str, type_string: str, constexpr: bool, const: bool
) -> None:
    text = f"""
        from __future__ import annotations
        from tilewright import language as MODULE
        from tilewright.language import constexpr as Constant, const as ReadOnly
        def outer(Captured):
            def kernel(x: {annotation}):
                Captured
            return kernel
        kernel = outer(tl.uint8)
    """
    (param,) = kernel_from(text).params
    assert param.annotation == annotation
    assert (param.annotation_type, param.is_constexpr, param.is_const) == (
        type_string,
        constexpr,
        const,
    )


def test_annotations_that_python_evaluates_late() -> None:
    """Python 3.14 represents an unknown name by an object with its text."""

    class ForwardRef:
        __forward_arg__ = "tl.pointer_type(tl.int8, const=True)"

    def kernel(x):
        pass

    parameter = inspect.signature(kernel).parameters["x"].replace(annotation=ForwardRef())
    assert with_text(parameter).annotation == ForwardRef.__forward_arg__


def test_parameters_not_to_specialise_are_named_or_counted() -> None:
    kernel = SourceFunction(
        kernel_from("def kernel(a, b, c): pass\n").fn,
        do_not_specialize=["a", 1],
        do_not_specialize_on_alignment=[2],
    )
    assert [p.do_not_specialize for p in kernel.params] == [True, True, False]
    assert [p.do_not_specialize_on_alignment for p in kernel.params] == [False, False, True]


@pytest.mark.parametrize("text", ["lambda x: x", "len"])
def test_function_without_source_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="@jit functions should be defined in a Python file"):
        jit(eval(text))


def test_function_with_lost_source_is_rejected() -> None:
    scope: dict[str, Any] = {}
    exec("def kernel(x): pass", scope)
    with pytest.raises(ValueError, match="@jit functions should be defined in a Python file"):
        jit(scope["kernel"])


def test_source_can_be_replaced_in_tests() -> None:
    kernel = kernel_from("def kernel(x): pass\n")
    key = kernel.cache_key
    kernel._unsafe_update_src("def kernel(x): return\n")
    assert kernel.cache_key != key
    assert kernel.src == "def kernel(x): return\n"
    with pytest.raises(AttributeError):
        kernel.src = ""  # pyright: ignore


# -- keys ------------------------------------------------------------------------------------------

BASE = """
LIMIT = tl.constexpr(4)

@jit
def helper(x):
    return x + LIMIT

@constexpr_function
def twice(n):
    return 2 * n

def kernel(x, N: tl.constexpr):
    helper(x) + twice(N)
"""


def key(text: str, **names: Any) -> str:
    return kernel_from(text, **names).cache_key


def test_key_is_stable() -> None:
    assert key(BASE) == key(BASE)
    assert len(key(BASE)) == 64


CHANGES = [
    ("tl.constexpr(4)", "tl.constexpr(5)"),
    ("x + LIMIT", "x - LIMIT"),
    ("2 * n", "3 * n"),
    ("helper(x) +", "helper(x) -"),
    ("def kernel(x,", "\ndef kernel(x,"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_key_depends_on_reachable_functions(old: str, new: str) -> None:
    assert key(BASE.replace(old, new)) != key(BASE)


def test_key_is_independent_of_unreachable_functions() -> None:
    other = "OTHER = tl.constexpr(1)\n"
    assert key(BASE.replace("LIMIT = tl", other + "LIMIT = tl").replace("\n\n@jit", "\n@jit")) == (
        key(BASE)
    )


def test_functions_within_globals_are_followed() -> None:
    text = """
    @jit
    def inner(x):
        return x + 1

    INNER = tl.constexpr((inner, 3))

    def kernel(x):
        INNER[0](x)
    """
    assert key(text) != key(text.replace("x + 1", "x + 2"))
    kernel = kernel_from(text)
    assert kernel.cache_key
    ((value, _),) = kernel.used_global_vals.values()
    assert value == kernel.__globals__["INNER"], "the copy still equals the global"


def test_used_globals_are_recorded() -> None:
    kernel = kernel_from(BASE)
    assert kernel.used_global_vals == {}
    assert kernel.cache_key
    ((name, scope),) = kernel.used_global_vals
    value, names = kernel.used_global_vals[name, scope]
    assert (name, value) == ("LIMIT", tl.constexpr(4))
    assert names is kernel.__globals__
    assert scope == id(names)


def test_functions_that_call_each_other_have_keys() -> None:
    text = """
    @jit
    def even(x):
        return odd(x)

    @jit
    def odd(x):
        return even(x)
    """
    assert len(function_from(text).cache_key) == 64


def test_conflicting_values_of_a_global_are_an_error() -> None:
    kernel = kernel_from(BASE.replace("helper(x) +", "LIMIT + helper(x) +"))
    helper = kernel.__globals__["helper"]
    assert helper.cache_key
    kernel.__globals__["LIMIT"] = tl.constexpr(9)
    with pytest.raises(RuntimeError, match=r"Global variable LIMIT has value .* when compiling"):
        _ = kernel.cache_key


def test_plain_functions_have_no_part_in_the_key() -> None:
    # the front end rejects them, with the line: tests/errors
    text = "def kernel(x):\n    plain(x)\n"
    assert key(text, plain=decorated) == key(text, plain=len)


def test_globals_that_are_not_recorded() -> None:
    text = """
    def kernel(x, d=DEFAULT):
        y = math.ceil(2.5)
        DEFAULT = 3
        tl.sum(x) + DEFAULT
        z = [LOCAL for LOCAL in (1, 2)]
        math.pi
        len(z)
    """
    kernel = kernel_from(text, math=math, DEFAULT=1)
    assert kernel.cache_key
    assert kernel.used_global_vals == {}


named_tuple: Any = collections.namedtuple
SETTINGS = ModuleType("settings")
OTHER_VALUES: list[tuple[str, Any, Any]] = [
    ("G", tl.float32, tl.float16),
    ("G", tl.pointer_type(tl.float32), tl.pointer_type(tl.int8)),
    ("G", tl.PropagateNan.ALL, tl.PropagateNan.NONE),
    ("G", tl.minimum, tl.maximum),
    ("G", None, tl.constexpr(1)),
    ("settings.G", tl.float32, tl.float16),
    ("settings.G", 3, 4),
    ("settings.G", "a", "b"),
    ("settings.G", tl.constexpr(3), tl.constexpr(4)),
]


@pytest.mark.parametrize(("name", "before", "after"), OTHER_VALUES)
def test_values_that_a_kernel_is_compiled_for_are_recorded_and_part_of_the_key(
    name: str, before: Any, after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(value: Any) -> SourceFunction:
        monkeypatch.setattr(SETTINGS, "G", value, raising=False)
        return kernel_from(f"def kernel(x):\n    f(x, {name})\n", settings=SETTINGS, G=value)

    kernel, other = made(before), made(after)
    monkeypatch.setattr(SETTINGS, "G", before)
    assert kernel.cache_key
    (recorded,) = kernel.used_global_vals.values()
    assert recorded[0] == before
    assert recorded[1]["G"] == before
    monkeypatch.setattr(SETTINGS, "G", after)
    assert other.cache_key != kernel.cache_key


def test_fields_of_named_tuples_are_part_of_the_key() -> None:
    text = "def kernel(x):\n    PAIR(x, x)\n"
    one, other = named_tuple("PAIR", "a b"), named_tuple("PAIR", "b a")
    assert key(text, PAIR=one) == key(text, PAIR=one)
    assert key(text, PAIR=one) != key(text, PAIR=other)


def test_constexpr_function_has_a_key() -> None:
    first = ConstexprFunction(decorated)
    assert len(first.cache_key) == 64
    assert repr(first).startswith("ConstexprFunction(")


def test_captured_values_are_part_of_the_key() -> None:
    def make(value: Any) -> SourceFunction:
        limit = tl.constexpr(value)

        def kernel(x):
            tl.static_assert(x + limit)

        return SourceFunction(kernel)

    assert make(1).cache_key != make(2).cache_key
    assert make(1).cache_key == make(1).cache_key
    assert make(1).get_capture_scope()["limit"] == 1
