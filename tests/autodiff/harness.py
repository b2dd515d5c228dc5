"""Kernels for tests of derivatives: built, differentiated and interpreted, in fp64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.frontend.kernels import SHORT, kernel_from
from tilewright.autodiff.derived import Derived
from tilewright.autodiff.forward import forward_mode
from tilewright.compiler.pipeline import STEPS
from tilewright.frontend.build import build_module
from tilewright.frontend.source import SourceFunction
from tilewright.ir.core import Module, Op
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PassContext, run
from tilewright.ir.verify import verify_module

Arrays = dict[str, Any]


def forward_module(
    kernel: SourceFunction | str, args: Mapping[str, Any], constexprs: Mapping[str, Any]
) -> Module:
    """The tile IR of a kernel for these arguments, after the tile passes."""
    fn = kernel_from(kernel) if isinstance(kernel, str) else kernel
    signature = {name: _type(value) for name, value in args.items()}
    module = build_module(fn, signature, dict(constexprs), {})
    names = module.entry.arg_names
    for i, name in enumerate(names):
        if isinstance(args[name], np.ndarray):
            module.entry.arg_attrs[i].update(alias=i)
    return cleaned(module)


def _type(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"*{SHORT[value.dtype]}"
    return "fp64" if isinstance(value, float) else "i32"


def cleaned(module: Module) -> Module:
    """The module after the tile passes, verified."""
    verify_module(module)
    run(module, STEPS, PassContext())
    verify_module(module)
    return module


def count(module: Module, kind: type[Op] | tuple[type[Op], ...]) -> int:
    return sum(isinstance(op, kind) for op in module.walk())


def run_forward(module: Module, grid: Any, args: Mapping[str, Any]) -> None:
    interpret(module, grid, [args[name] for name in module.entry.arg_names])


def run_derived(
    derived: Derived, grid: Any, args: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]]
) -> None:
    """Interpret a derived kernel.

    Args:
        args: the forward kernel's arguments by name.
        more: arrays by kind of argument ("tangent", …), then by name.
    """
    values = [
        args[role.name] if role.kind == "argument" else more[role.kind][role.name]
        for role in derived.roles
    ]
    interpret(cleaned(derived.module), grid, values, seed=1)


def jvp(
    module: Module, grid: Any, args: Arrays, tangents: Arrays, outputs: Sequence[str]
) -> Arrays:
    """The tangents of the outputs, by forward mode."""
    derived = forward_mode(module, tuple(tangents), tuple(outputs))
    found = {name: np.full_like(args[name], np.nan) for name in outputs}
    for name in outputs:  # an element that is not stored keeps its tangent
        found[name][...] = tangents.get(name, 0.0)
    run_derived(derived, grid, copied(args), {"tangent": {**tangents, **found}})
    return found


def differences(
    module: Module, grid: Any, args: Arrays, tangents: Arrays, outputs: Sequence[str],
    step: float = 1e-6,
) -> Arrays:  # fmt: skip
    """The tangents of the outputs, by central differences."""
    ends: list[Arrays] = []
    for sign in (1.0, -1.0):
        moved = copied(args)
        for name, tangent in tangents.items():
            moved[name] += (sign * step * tangent).astype(moved[name].dtype)
        run_forward(module, grid, moved)
        ends.append(moved)
    return {name: (ends[0][name] - ends[1][name]) / (2 * step) for name in outputs}


def copied(args: Arrays) -> Arrays:
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in args.items()}


def directions(rng: np.random.Generator, args: Arrays, names: Sequence[str]) -> Arrays:
    """Random arrays like those of the arguments."""
    return {name: rng.standard_normal(args[name].shape) for name in names}
