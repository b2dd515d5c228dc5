"""What the gradients of random kernels are checked for."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tilewright as tw
from tests.autodiff.harness import (
    check_gradients,
    cleaned,
    copied,
    counts,
    forward_module,
    launch_points,
    launch_verdicts,
    run_forward,
    vjp,
)
from tests.frontend.kernels import function_from, kernel_from
from tests.fuzz.derivatives.applied import Applied
from tests.fuzz.derivatives.axes import Axes
from tests.fuzz.derivatives.composed import Composed
from tests.fuzz.derivatives.nested import Nested
from tests.fuzz.derivatives.program import Program, arguments
from tests.fuzz.derivatives.random_kernel import RandomKernel
from tests.fuzz.derivatives.shaped import Shaped
from tests.fuzz.derivatives.tiled import Tiled
from tilewright.autodiff import reloads
from tilewright.autodiff.wraps import remove_wraps
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext
from tilewright.passes.count_loops import count_loops


class WrongGradient(AssertionError):
    """Gradients differ; the argument has the kernel."""


def check_mixed(seed: int) -> set[str]:
    """By the interpreter, of kernels with random strides, masks, loops, states, scans and branches:
    reverse mode against forward mode and central differences, and the chosen schedule against
    atomic additions. What is taken to be distinct is, by count."""
    rng = np.random.default_rng(seed)
    program = Program(rng)
    text = program.text()
    args = arguments(rng)
    module = forward_module(kernel_from(text), args, {})
    loads, _ = launch_verdicts(module, program.grid, args)
    try:
        for name in ("a_ptr", "b_ptr", "c_ptr"):
            often = counts(module, name, program.grid, args)
            verdict = loads[name]
            assert not verdict.distinct or often.max() <= 1, name
            assert verdict.elements is None or verdict.elements == often.sum(), name
        check_gradients(module, program.grid, args, inputs(text), ("y_ptr",), seed=seed)
    except AssertionError as error:
        raise WrongGradient(f"{error}\n{text}") from error
    return program.used


def check_mixed_launched(seed: int) -> set[str]:
    """The same kernels, as compiled and launched by `tilewright.grad`, with the number of workers
    that it chooses."""
    rng = np.random.default_rng(seed)
    program = Program(rng)
    text = program.text()
    args = arguments(rng)
    module = forward_module(kernel_from(text), args, {})
    run_forward(module, program.grid, args)
    cotangents = {"y_ptr": rng.standard_normal(args["y_ptr"].shape)}
    wrt = inputs(text)
    expected = vjp(module, program.grid, copied(args), cotangents, wrt, atomic=wrt)
    into = {name: np.full_like(args[name], np.nan) for name in wrt}
    tw.grad(tw.jit(function_from(text)))[program.grid](**copied(args), grads=cotangents, into=into)
    for name in wrt:
        try:
            np.testing.assert_allclose(into[name], expected[name], rtol=1e-9, atol=1e-11)
        except AssertionError as error:
            raise WrongGradient(f"{name}: {error}\n{text}") from error
    return program.used


def inputs(text: str) -> tuple[str, ...]:
    """The arrays that a kernel loads."""
    return ("a_ptr", "b_ptr", "c_ptr") if "c_ptr +" in text else ("a_ptr", "b_ptr")


def check_tiled(seed: int) -> set[str]:
    """By the interpreter: each schedule against atomic additions, forward mode and differences."""
    with small_tiles():
        return _check(Tiled(np.random.default_rng(seed)), seed)


def check_shaped(seed: int) -> set[str]:
    """Likewise, of kernels in the shapes of published ones."""
    with small_tiles():
        return _check(Shaped(np.random.default_rng(seed)), seed)


def _check(program: RandomKernel, seed: int) -> set[str]:
    module = _module(program)
    schedules: dict[str, str] = {}
    original, before, after = module.clone(), copied(program.args), copied(program.args)
    remove_wraps(module.entry, launch_points(module, program.grid, program.args))
    module = cleaned(module)
    run_forward(original, program.grid, before)
    run_forward(module, program.grid, after)
    try:
        for name in program.outputs:
            np.testing.assert_array_equal(before[name], after[name])
        check_gradients(
            module, program.grid, copied(program.args), program.wrt, program.outputs,
            aux=program.aux, seed=seed, rtol=1e-8, schedules=schedules, slopes=program.slopes,
        )  # fmt: skip
    except AssertionError as error:
        raise WrongGradient(f"{error}\n{program.text}") from error
    return {*program.used, *schedules.values()}


def check_tiled_launched(seed: int) -> set[str]:
    """As compiled and launched by `tilewright.grad`, against atomics by the interpreter."""
    with small_tiles():
        return _check_launched(Tiled(np.random.default_rng(seed)), seed)


def check_shaped_launched(seed: int) -> set[str]:
    """Likewise, of kernels in the shapes of published ones."""
    with small_tiles():
        return _check_launched(Shaped(np.random.default_rng(seed)), seed)


def check_applied(seed: int) -> set[str]:
    """By the interpreter, of kernels of the kinds that people write: as `check_tiled`."""
    program = Applied(np.random.default_rng(seed))
    return _check(program, seed) if is_proven(program) else {*program.used, "rejected"}


def check_applied_launched(seed: int) -> set[str]:
    """As compiled and launched by `tilewright.grad`, against atomics by the interpreter."""
    program = Applied(np.random.default_rng(seed))
    return _check_launched(program, seed) if is_proven(program) else {*program.used, "rejected"}


def is_proven(program: RandomKernel) -> bool:
    """Whether each element of a result is known to be stored once, which gradients require."""
    _, stores = launch_verdicts(_module(program), program.grid, program.args)
    return all(stores[name].distinct for name in program.outputs)


def check_applied_narrow(seed: int) -> set[str]:
    """As compiled and launched, with arrays of fp32 or fp16, against atomics in fp64 by the
    interpreter, on inputs that both types have."""
    program = Applied(np.random.default_rng(seed))
    if not is_proven(program):
        return {*program.used, "rejected"}
    kind, limit = ((np.float32, 1e-3), (np.float16, 4e-2))[seed % 2]
    for name in program.wrt:
        program.args[name] = program.args[name].astype(kind).astype(np.float64)
    args, cotangents, expected = _expected(program, seed, kind)
    narrow = {k: _narrowed(v, kind) for k, v in args.items()}
    into: dict[str, Any] = {  # fp32, as gradients that programs share have to be
        name: np.full(narrow[name].shape, np.nan, np.float32) for name in program.wrt
    }
    kernel = tw.jit(function_from(program.text.replace("tl.float64", "tl.float32")))
    kernel[program.grid](**narrow)
    backward = tw.grad(kernel, aux=program.aux)
    grads = {name: _narrowed(y, kind) for name, y in cotangents.items()}
    backward[program.grid](**narrow, grads=grads, into=into)
    for name, exact in expected.items():
        error = np.abs(into[name].astype(np.float64) - exact).max(initial=0.0)
        if not error <= limit * max(1.0, np.abs(exact).max(initial=0.0)):
            raise WrongGradient(
                f"{name}: {error} in {kind.__name__}\n{into[name]}\n{exact}\n"
                f"{backward.explain()}\n{program.text}"
            )
    return {*program.used, f"narrow: {kind.__name__}"}


def _narrowed(value: Any, kind: type[np.floating[Any]]) -> Any:
    """An argument of the kernel of narrower floats."""
    floats = isinstance(value, np.ndarray) and value.dtype == np.float64
    return value.astype(kind) if floats else value


def check_applied_twice(seed: int) -> set[str]:
    """The gradient of <v, gradient>, as launched, against differences of the gradient."""
    program = Applied(np.random.default_rng(seed))
    return _check_twice(program, seed) if is_proven(program) else {*program.used, "rejected"}


def _check_twice(program: RandomKernel, seed: int) -> set[str]:
    args, cotangents, _ = _expected(program, seed)
    rng, step = np.random.default_rng(seed + 1), 1e-5
    wrt, grid = program.wrt, program.grid
    directions = {name: rng.standard_normal(args[name].shape) for name in wrt}
    kernel = tw.jit(function_from(program.text))
    backward = tw.grad(kernel, outputs=program.outputs, aux=program.aux)

    def gradient(size: float) -> dict[str, Any]:
        moved = copied(program.args)
        for name in wrt:
            moved[name] += size * directions[name]
        kernel[grid](**moved)
        found: dict[str, Any] = {name: np.zeros_like(moved[name]) for name in wrt}
        backward[grid](**moved, grads=cotangents, into=found)
        return found

    into: dict[str, Any] = {name: np.full_like(args[name], np.nan) for name in wrt}
    second = tw.grad(backward)
    second[grid](**copied(args), grads=cotangents, directions=directions, into=into)
    if not program.slopes:
        return program.used
    high, low = gradient(step), gradient(-step)
    for name in wrt:
        slope = (high[name] - low[name]) / (2 * step)
        error = np.abs(into[name] - slope).max(initial=0.0)
        if not error <= 1e-5 * max(1.0, np.abs(slope).max(initial=0.0)):
            raise WrongGradient(
                f"{name}: {error}\n{into[name]}\n{slope}\n{second.explain()}\n{program.text}"
            )
    return program.used


def _expected(
    program: RandomKernel, seed: int, kind: type[np.floating[Any]] = np.float64
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The arguments as the kernel leaves them, random cotangents that a type has, and the gradients
    by atomics, by the interpreter."""
    module = _module(program)
    args = copied(program.args)
    run_forward(module, program.grid, args)
    rng = np.random.default_rng(seed)
    cotangents = {
        name: rng.standard_normal(args[name].shape).astype(kind).astype(np.float64)
        for name in program.outputs
    }
    expected = vjp(
        module, program.grid, copied(args), cotangents, program.wrt, atomic=program.wrt,
        aux=program.aux,
    )  # fmt: skip
    return args, cotangents, expected


def _check_launched(program: RandomKernel, seed: int, limit: float = 1e-8) -> set[str]:
    """Launch three times, of which the last are native, for all gradients or some of them, which
    are written or added to what is there."""
    args, cotangents, expected = _expected(program, seed)
    rng = np.random.default_rng(seed + 1)
    some = rng.random() < 0.5
    wrt = [name for name in program.wrt if not some or rng.random() < 0.5] or program.wrt[:1]
    accumulate = bool(rng.random() < 0.3)
    before = {name: rng.standard_normal(args[name].shape) for name in wrt}
    backward = tw.grad(tw.jit(function_from(program.text)), aux=program.aux)
    launches: list[dict[str, Any]] = []
    for _ in range(3):
        into: dict[str, Any] = {
            name: start.copy() if accumulate else np.full_like(start, np.nan)
            for name, start in before.items()
        }
        backward[program.grid](**copied(args), grads=cotangents, into=into, accumulate=accumulate)
        launches.append(into)
    exact = "atomically" not in backward.explain()
    for name in wrt:
        wanted = expected[name] + before[name] * accumulate
        try:
            for into in launches:
                np.testing.assert_allclose(into[name], wanted, rtol=limit, atol=limit / 1000)
                if exact:
                    np.testing.assert_array_equal(into[name], launches[0][name])
        except AssertionError as error:
            raise WrongGradient(f"{name}: {error}\n{backward.explain()}\n{program.text}") from error
    more = {"accumulated"} if accumulate else set[str]()
    return {*program.used, *_decisions(backward.explain()), *more}


def check_composed(seed: int) -> set[str]:
    """By the interpreter, of kernels of rows from statements of many kinds: as `check_tiled`."""
    program = Composed(np.random.default_rng(seed))
    return _check(program, seed) if is_proven(program) else {*program.used, "rejected"}


def check_composed_launched(seed: int) -> set[str]:
    """As compiled and launched by `tilewright.grad`, with gradients of fp32 or fp64, against
    atomics by the interpreter."""
    rng = np.random.default_rng(seed)
    program = Composed(rng)
    if not is_proven(program):
        return {*program.used, "rejected"}
    args, cotangents, expected = _expected(program, seed, np.float32)
    kinds = {n: (np.float32, np.float64)[rng.integers(2)] for n in (*cotangents, *expected)}
    into: dict[str, Any] = {n: np.full(args[n].shape, np.nan, kinds[n]) for n in program.wrt}
    grads = {n: y.astype(kinds[n]) for n, y in cotangents.items()}
    backward = tw.grad(tw.jit(function_from(program.text)), aux=program.aux)
    backward[program.grid](**copied(args), grads=grads, into=into)
    for name, exact in expected.items():
        limit = 1e-8 if kinds[name] == np.float64 else 1e-5
        error = np.abs(into[name] - exact).max(initial=0.0)
        if not error <= limit * max(1.0, np.abs(exact).max(initial=0.0)):
            raise WrongGradient(f"{name}: {error}\n{backward.explain()}\n{program.text}")
    return {*program.used, *_decisions(backward.explain())}


def check_nested(seed: int) -> set[str]:
    """By the interpreter, of kernels of nested statements: as `check_tiled`."""
    program = Nested(np.random.default_rng(seed))
    if program.is_mixed or not is_proven(program):
        return {*program.used, "rejected"}
    return _check(program, seed)


def check_nested_launched(seed: int) -> set[str]:
    """As compiled and launched by `tilewright.grad`, against atomics by the interpreter."""
    program = Nested(np.random.default_rng(seed))
    if not is_proven(program):
        return {*program.used, "rejected"}
    return _check_launched(program, seed, program.limit)


def check_axes(seed: int) -> set[str]:
    """By the interpreter, of kernels of tiles of several axes: as `check_tiled`."""
    program = Axes(np.random.default_rng(seed))
    return _check(program, seed) if is_proven(program) else {*program.used, "rejected"}


def check_axes_launched(seed: int) -> set[str]:
    """As compiled and launched by `tilewright.grad`, against atomics by the interpreter."""
    program = Axes(np.random.default_rng(seed))
    return _check_launched(program, seed) if is_proven(program) else {*program.used, "rejected"}


def check_axes_twice(seed: int) -> set[str]:
    """As `check_applied_twice`, of kernels of tiles of several axes."""
    program = Axes(np.random.default_rng(seed))
    return _check_twice(program, seed) if is_proven(program) else {*program.used, "rejected"}


@contextmanager
def small_tiles() -> Generator[None]:
    """Take sums over tiles as small as these for costly, so that they are saved, and loaded if the
    kernel has stored them."""
    before, reloads.FEWER = reloads.FEWER, 2
    try:
        yield
    finally:
        reloads.FEWER = before


def _module(program: RandomKernel) -> Module:
    """The kernel as it is differentiated."""
    module = forward_module(kernel_from(program.text), program.args, {})
    return cleaned(module) if count_loops(module.entry, PassContext()) else module


def _decisions(text: str) -> set[str]:
    """What `explain` says is done with arrays."""
    found: set[str] = set()
    for line in text.splitlines()[1:]:
        what = line.partition(": ")[2].partition(" (line")[0].partition(",")[0]
        found.add(what.partition(":")[0])
    return found
