"""`device_print` and `device_assert`: the emitted ops, and errors."""

import pytest

from tests.frontend.kernels import build, kernel_from
from tilewright.base.diagnostics import CompilationError
from tilewright.frontend.options import FrontendOptions
from tilewright.ops.debug import Assert, Print

PREFIXES = [
    ("x", True, " x: "), ("x:", True, " x: "), ("x: ", True, " x: "), (" x", True, " x: "),
    ("", True, ": "), ("pid ", True, " pid: "), ("done", False, " done"), ("ok", False, "ok"),
]  # fmt: skip


@pytest.mark.parametrize(("prefix", "values", "expected"), PREFIXES)
def test_prefix_ends_in_a_colon(prefix: str, values: bool, expected: str) -> None:
    text = f"def k(n):\n    tl.device_print({prefix!r}{', n' if values else ''})\n"
    module = build(kernel_from(text), {"n": "i32"})
    (op,) = (op for op in module.walk() if isinstance(op, Print))
    assert op.prefix == expected


REJECTED = [
    ("tl.device_print(3, n)", "3 is not string"),
    ("tl.device_print('\u00e9', n)", "\u00e9 is not an ascii string"),
    ("tl.device_print('x', 'y')", "cannot convert y of type <class 'str'> to tensor"),
    ("tl.device_print(n)", "int32[] is not string"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REJECTED)
def test_print_rejects(call: str, message: str) -> None:
    with pytest.raises(CompilationError) as info:
        build(kernel_from(f"def k(n):\n    {call}\n"), {"n": "i32"})
    assert message in str(info.value.__cause__)


@pytest.mark.parametrize("call", ["tl.device_print('x', a)"])
def test_combining_functions_have_no_effects(call: str) -> None:
    text = f"""
    @jit
    def combine(a, b):
        {call}
        return a + b

    def k(p):
        tl.store(p, tl.reduce(tl.load(p + tl.arange(0, 4)), 0, combine))
    """
    with pytest.raises(CompilationError) as info:
        build(kernel_from(text), {"p": "*i32"}, options=FrontendOptions(debug=True))
    error: BaseException | None = info.value
    while error is not None and "how often it runs is open" not in str(error):
        error = error.__cause__
    assert error is not None


@pytest.mark.parametrize(("debug", "count"), [(True, 1), (False, 0)])
def test_assertions_are_for_debugging(debug: bool, count: int) -> None:
    text = "def k(n):\n    tl.device_assert(n > 0, 'positive')\n"
    module = build(kernel_from(text), {"n": "i32"}, options=FrontendOptions(debug=debug))
    assert sum(isinstance(op, Assert) for op in module.walk()) == count
