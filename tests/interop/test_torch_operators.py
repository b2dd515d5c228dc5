"""Kernels as operators of torch, declared by schemas."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl

torch = pytest.importorskip("torch")

from tilewright.torch import custom_op  # noqa: E402  # needs torch

_numbers = count()


def unique(schema: str) -> str:
    """A schema whose name is not used yet: operators of torch cannot be defined again."""
    return schema.replace("(", f"_{next(_numbers)}(", 1)


def blocks(a: dict[str, Any]) -> tuple[int]:
    return (tw.cdiv(a["n"], a["BLOCK"]),)


REST: Any = {"arguments": {"n": lambda a: a["x"].numel(), "BLOCK": 64}, "grid": blocks}


def like_x(a: dict[str, Any]) -> Any:
    return torch.empty_like(a["x"])


@custom_op(
    schema=unique("test_operators::scale(Tensor x, float factor=2.0) -> Tensor y"),
    outputs={"y": like_x},
    backward=lambda a, grads: {"x": scale(grads["y"], a["factor"])},
    **REST,
)
@tw.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    """Multiply by a factor."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, factor * tl.load(x + i, i < n), i < n)


@tw.jit
def accumulate_kernel(total, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total + i, tl.load(total + i, i < n) + tl.load(x + i, i < n), i < n)


accumulate = custom_op(
    accumulate_kernel,
    schema=unique("test_operators::accumulate(Tensor(a!) total, Tensor x) -> ()"),
    **REST,
)


@custom_op(
    schema=unique(
        "test_operators::split(Tensor x, Tensor? other, *, int at=0) -> (Tensor low, Tensor high)"
    ),
    outputs={"low": like_x, "high": like_x},
    backward=lambda a, grads: {"x": grads["low"] + 2 * grads["high"]},
    **REST,
)
@tw.jit
def split(low, high, x, other, n, at, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    if other is not None:
        v += tl.load(other + i, i < n)
    tl.store(low + i, tl.minimum(v, at), i < n)
    tl.store(high + i, tl.maximum(v, at), i < n)


def test_results_defaults_and_names() -> None:
    x = torch.randn(200)
    torch.testing.assert_close(scale(x, 3.0), 3 * x)
    torch.testing.assert_close(scale(x), 2 * x)
    torch.testing.assert_close(scale(factor=0.5, x=x), x / 2)
    assert (scale.__name__, scale.__doc__) == ("scale", "Multiply by a factor.")
    low, high = split(x, None, at=1)
    torch.testing.assert_close(low, x.clamp(max=1))
    torch.testing.assert_close(high, x.clamp(min=1))
    torch.testing.assert_close(split(x, x)[0], (2 * x).clamp(max=0))


def test_updates_in_place() -> None:
    total, x = torch.zeros(100), torch.randn(100)
    version = total._version
    assert accumulate(total, x) is None
    accumulate(total, x)
    torch.testing.assert_close(total, 2 * x)
    assert total._version > version, "autograd does not see that the tensor has changed"


def test_gradients() -> None:
    x = torch.randn(100, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: scale(x, 3.0), x)
    (found,) = torch.autograd.grad(scale(x, 3.0).sum(), x)  # of an expanded gradient
    torch.testing.assert_close(found, torch.full_like(x, 3))
    (found,) = torch.autograd.grad(split(x, None)[1].sum(), x)  # low has no gradient
    torch.testing.assert_close(found, torch.full_like(x, 2))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_graph_breaks(dynamic: bool) -> None:
    def step(x: Any, total: Any) -> Any:
        low, high = split(torch.relu(scale(x + 1, 3.0)), None, at=2)
        accumulate(total, low)
        return (low * high).sum() + total.sum()

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for n in (200, 77):
        x = torch.randn(n, requires_grad=True)
        mine, theirs = torch.zeros(n), torch.zeros(n)
        wanted, found = step(x, theirs), compiled(x, mine)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(wanted, x))


def test_torch_finds_nothing_wrong() -> None:
    x = torch.randn(50, requires_grad=True)
    for operator, args in ((scale, (x, 3.0)), (accumulate, (torch.zeros(50), x.detach()))):
        found = torch.library.opcheck(operator.definition, args)
        assert set(found.values()) == {"SUCCESS"}


@custom_op(
    schema=unique("test_operators::tuned(Tensor x) -> Tensor y"),
    outputs={"y": like_x},
    arguments={"n": lambda a: a["x"].numel()},
    grid=blocks,
)
@tw.autotune([tw.Config({"BLOCK": 16}), tw.Config({"BLOCK": 64})], key=["n"])
@tw.heuristics({"ODD": lambda a: a["n"] % 2 == 1})
@tw.jit
def tuned(x, y, n, BLOCK: tl.constexpr, ODD: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) + ODD, i < n)


def test_kernels_with_wrappers() -> None:
    for n in (64, 77):
        x = torch.randn(n)
        torch.testing.assert_close(tuned(x), x + n % 2)
        torch.testing.assert_close(torch.compile(tuned, backend="aot_eager")(x), x + n % 2)


# -- errors ---------------------------------------------------------------------------------------


@tw.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n), i < n)


def undeclared() -> Any:
    return custom_op(
        copy_kernel, schema=unique("test_operators::copy(Tensor x, Tensor y) -> ()"), **REST
    )


UNDECLARED = r"(?s)tl.store\(y \+ i.*stores to 'y', which the schema .*`Tensor\(a!\) y`.*outputs="


def test_an_undeclared_update_is_an_error_before_it_happens() -> None:
    y = torch.zeros(10)
    with pytest.raises(tw.CompilationError, match=UNDECLARED):
        undeclared()(torch.ones(10), y)
    assert not y.any()


def test_an_undeclared_update_is_an_error_while_torch_traces() -> None:
    operator = undeclared()
    with pytest.raises(Exception, match=UNDECLARED):
        torch.compile(lambda x: operator(x, torch.zeros(10)), fullgraph=True, backend="eager")(
            torch.ones(10)
        )


@tw.jit
def chosen_kernel(x, y, other, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    tl.store(y + i, v, i < n)
    if KIND == 1:
        tl.store(other + i, v, i < n)


def test_each_variant_is_checked() -> None:
    operator = custom_op(
        chosen_kernel,
        schema=unique("test_operators::chosen(Tensor x, Tensor other, int KIND) -> Tensor y"),
        outputs={"y": like_x},
        **REST,
    )
    x = torch.ones(10)
    torch.testing.assert_close(operator(x, x, 0), x)
    with pytest.raises(tw.CompilationError, match="stores to 'other'"):
        operator(x, torch.zeros(10), 1)


def declaring(schema: str, kernel: Any = copy_kernel, **given: Any) -> Callable[[], Any]:
    both: Any = {**REST, "outputs": {"y": like_x}, **given}
    return lambda: custom_op(kernel, schema=schema, **both)


SCHEMA_ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no name": (declaring("(Tensor x) -> Tensor"), ValueError, "does not begin with the name"),
    "no namespace": (declaring("c(Tensor x) -> Tensor"), ValueError, "my_library::scale(Tensor x"),
    "not a schema": (declaring("a::b(tensor x) -> Tensor"), ValueError, "torch does not accept"),
    "unknown argument": (
        declaring("a::b(Tensor xs) -> Tensor"), ValueError,
        "names 'xs', but copy_kernel has the parameters (x, y, n, BLOCK); did you mean x?",
    ),
    "unknown output": (
        declaring("a::b(Tensor x) -> Tensor", outputs={"z": like_x}), ValueError,
        "outputs names 'z'",
    ),
    "twice": (declaring("a::b(Tensor x, Tensor y) -> Tensor"), ValueError, "gets 'y' twice"),
    "no output": (
        declaring("a::b(Tensor x) -> Tensor", outputs={}), ValueError,
        "outputs has []: each result",
    ),
    "another name": (
        declaring("a::b(Tensor x) -> (Tensor z)"), ValueError, "returns (z) and outputs has ['y']",
    ),
    "a number": (declaring("a::b(Tensor x) -> int"), ValueError, "must be tensors"),
    "no value": (
        declaring("a::b(Tensor x) -> Tensor", arguments={"n": 1}), ValueError,
        "'BLOCK' of copy_kernel has no value: make it an argument of the schema, or give it in",
    ),
    "no kernel": (declaring("a::b(Tensor x) -> Tensor", len), TypeError, "takes a kernel, not"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMA_ERRORS)
def test_wrong_schemas(name: str) -> None:
    declare, kind, message = SCHEMA_ERRORS[name]
    with pytest.raises(kind, match=re.escape(message)):
        declare()


def test_wrong_functions() -> None:
    schema = "test_operators::wrong(Tensor x) -> Tensor"
    operator = declaring(unique(schema), outputs={"y": lambda a: None})()
    with pytest.raises(TypeError, match=r"outputs\['y'\] of copy_kernel returned None"):
        operator(torch.ones(3))
    x = torch.ones(3, requires_grad=True)
    for found, kind, message in (
        (None, TypeError, "returned a NoneType: return the gradients by name"),
        ({"y": x}, ValueError, "gradient of 'y', which is not one of its arguments"),
    ):
        operator = declaring(unique(schema), backward=lambda a, g, found=found: found)()
        with pytest.raises(kind, match=message):
            operator(x).sum().backward()


def test_without_backward_there_is_no_gradient() -> None:
    operator = declaring(unique("test_operators::flat(Tensor x) -> Tensor"))()
    with pytest.raises(Exception, match="no autograd formula was registered"):
        operator(torch.ones(3, requires_grad=True)).sum().backward()


def test_arguments_have_the_types_of_the_schema() -> None:
    with pytest.raises(RuntimeError, match="argument 'factor'"):
        scale(torch.ones(3), "2")


def test_a_kernel_that_is_launched_on_a_fake_tensor() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.ones(8)
    with pytest.raises(TypeError, match=r"FakeTensor has no memory.*tilewright.torch.custom_op"):
        copy_kernel[(1,)](x, torch.ones(8), 8, BLOCK=8)
    for _ in range(3):  # native code launches the later ones
        copy_kernel[(1,)](torch.ones(8), torch.ones(8), 8, BLOCK=8)
    with pytest.raises(TypeError, match="FakeTensor has no memory"):
        copy_kernel[(1,)](x, torch.ones(8), 8, BLOCK=8)
