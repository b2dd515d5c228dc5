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
from tests.fuzz.derivatives.program import Program, arguments
from tests.fuzz.derivatives.random_kernel import RandomKernel
from tests.fuzz.derivatives.shaped import Shaped
from tests.fuzz.derivatives.tiled import Tiled
from tilewright.autodiff import reloads
from tilewright.autodiff.wraps import remove_wraps
from tilewright.ir.core import Module


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
            aux=program.aux, seed=seed, rtol=1e-8, schedules=schedules,
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


def _check_launched(program: RandomKernel, seed: int) -> set[str]:
    module = _module(program)
    args = copied(program.args)
    run_forward(module, program.grid, args)
    rng = np.random.default_rng(seed)
    cotangents = {name: rng.standard_normal(args[name].shape) for name in program.outputs}
    wrt = program.wrt
    expected = vjp(module, program.grid, copied(args), cotangents, wrt, atomic=wrt, aux=program.aux)
    into: dict[str, Any] = {name: np.full_like(args[name], np.nan) for name in wrt}
    backward = tw.grad(tw.jit(function_from(program.text)), aux=program.aux)
    backward[program.grid](**copied(args), grads=cotangents, into=into)
    for name in wrt:
        try:
            np.testing.assert_allclose(into[name], expected[name], rtol=1e-8, atol=1e-11)
        except AssertionError as error:
            raise WrongGradient(f"{name}: {error}\n{backward.explain()}\n{program.text}") from error
    return {*program.used, *_decisions(backward.explain())}


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
    return forward_module(kernel_from(program.text), program.args, {})


def _decisions(text: str) -> set[str]:
    """What `explain` says is done with arrays."""
    found: set[str] = set()
    for line in text.splitlines()[1:]:
        what = line.partition(": ")[2].partition(" (line")[0].partition(",")[0]
        found.add(what.partition(":")[0])
    return found
