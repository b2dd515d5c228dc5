"""Launches to be compared with the interpreter, prepared without a GPU and without torch.

A `Program` is a kernel with its arguments. `prepare` compiles it and finds what it must leave in
memory; both take processor time, so that the tests have other processes do it. What comes back,
`Prepared`, is all that a process with a GPU needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.ir_values import same_bits
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile
from tilewright.compiler.source import CONSTEXPR, ASTSource
from tilewright.frontend.source import SourceFunction
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.types import SCALARS
from tilewright.runtime.tensors import alias_classes
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target as find_target

HOPPER = GPUTarget("cuda", 90, 32)
ALIGNED = 16  # bytes: what a launch promises the compiler of an address that has it

SHORT = {t.numpy: t.short for t in reversed(SCALARS)}

# Without it a product and a sum are rounded as the interpreter does it.
EXACT = {"enable_fp_fusion": False}


@dataclass(frozen=True)
class At:
    """An array that begins `shift` elements after an aligned address."""

    array: np.ndarray
    shift: int = 0


@dataclass(frozen=True)
class Program:
    """A launch and what is known of its outcome.

    Attributes:
        kernel: what `jit` made.
        args: of its run-time parameters in their order: arrays, `At`, numbers.
        constants: of its compile-time parameters.
        grid: the launch's extents.
        bound: how far a float may be from what is expected: None for not a bit; a number, for
            itself and that part of the value; or an array of distances.
        expected: the arrays after the launch; None for what the interpreter leaves in them.
    """

    kernel: SourceFunction
    args: Sequence[Any]
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    grid: tuple[int, ...] = (1,)
    bound: Any = None
    expected: Sequence[np.ndarray] | None = None


@dataclass(frozen=True)
class Prepared:
    """A compiled launch: its arguments are those of all parameters, its arrays all `At`."""

    name: str
    kernel: CompiledKernel
    args: Sequence[Any]
    grid: tuple[int, ...]
    expected: Sequence[np.ndarray]
    bound: Any


@dataclass(frozen=True)
class Job:
    """A recipe with its parameters, and options to compile with. It can be sent to a process.

    Attributes:
        recipe: a function, at the top of a module, that makes the program.
    """

    recipe: Callable[..., Program]
    params: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        settings = [f"{k.removeprefix('num_')}={v}" for k, v in self.options.items()]
        return "-".join([self.recipe.__name__, *map(str, self.params), *settings])

    def prepare(self) -> Prepared:
        return prepare(self.recipe(*self.params), self.name, self.options)


def prepare(
    program: Program, name: str, options: Mapping[str, Any], gpu: GPUTarget | None = None
) -> Prepared:
    """Compile the program, for `HOPPER` or another GPU, and find what it must leave in its
    arrays."""
    options = EXACT | dict(options)
    gpu = gpu or HOPPER
    source, everything = source_of(program)
    kernel = compile(source, gpu, options)
    expected = program.expected
    if expected is None:
        target = find_target(gpu)
        module = source.module(target.frontend_options(target.parse_options(options)))
        expected = interpreted(program, module)
    # A function that is a compile-time argument is not passed, and can't be sent.
    sent = [None if callable(value) else value for value in everything]
    return Prepared(name, kernel, sent, program.grid, expected, program.bound)


def interpreted(
    program: Program, module: Module, blocks: int | tuple[int, ...] | None = None
) -> list[np.ndarray]:
    """The program's arrays after its IR, at whatever stage, has been interpreted, on so many
    blocks if these loop over programs."""
    source, everything = source_of(program)
    types = source.signature.values()
    values = [v for v, type in zip(everything, types, strict=True) if type != CONSTEXPR]
    copies = [v.array.copy() if isinstance(v, At) else v for v in values]
    interpret(module, program.grid, copies, blocks=blocks)
    return [c for c in copies if isinstance(c, np.ndarray)]


def source_of(program: Program) -> tuple[ASTSource, list[Any]]:
    """The kernel specialised as a launch does it, and the values of all parameters."""
    fn = program.kernel
    given = iter([At(a) if isinstance(a, np.ndarray) else a for a in program.args])
    signature: dict[str, str] = {}
    constants, attrs = dict(program.constants), dict[tuple[int, ...], list[Any]]()
    values: list[Any] = []
    arrays: list[tuple[int, np.ndarray]] = []
    for place, name in enumerate(fn.arg_names):
        value = constants[name] if name in constants else next(given)
        values.append(value)
        if name in constants:
            continue
        if value is not True and isinstance(value, int) and value == 1:
            constants[name] = value
            continue
        signature[name] = type_of(value)
        if _is_aligned(value):
            attrs[place,] = [["tt.divisibility", ALIGNED]]
        if isinstance(value, At):
            arrays.append((place, value.array))
    extents = [np.lib.array_utils.byte_bounds(array) for _, array in arrays]
    classes = alias_classes(extents) or range(len(arrays))
    for (place, _), number in zip(arrays, classes, strict=True):
        attrs.setdefault((place,), []).append(["tw.alias", number])
    assert next(given, None) is None, "more arguments than parameters"
    return ASTSource(fn, signature, constants, attrs), values


def type_of(value: Any) -> str:
    """The type string of an argument."""
    match value:
        case At():
            return f"*{SHORT[value.array.dtype]}"
        case bool():
            return "u1"
        case int():
            return "i32" if -(2**31) <= value < 2**31 else "i64"
        case _:
            return "fp32"


def _is_aligned(value: Any) -> bool:
    if isinstance(value, At):
        # a part of an array may be copied with it, and begins where it does there
        start = value.array.__array_interface__["data"][0] % ALIGNED
        part = start if isinstance(value.array.base, np.ndarray) else 0
        return (value.shift * value.array.itemsize + part) % ALIGNED == 0
    return isinstance(value, int) and not isinstance(value, bool) and value % ALIGNED == 0


def difference(actual: np.ndarray, expected: np.ndarray, bound: Any) -> str:
    """Where two arrays differ by more than the bound, in words; "" if nowhere.

    A bound for an array of another shape is for another array: this one must be as expected.
    """
    if same_bits(actual, expected):
        return ""
    right = _equal_bits(actual, expected)
    if bound is not None and np.shape(bound) in ((), expected.shape) and _is_float(expected):
        right |= _near(actual.astype(np.float64), expected.astype(np.float64), bound)
    wrong = np.argwhere(~np.atleast_1d(right))
    if not len(wrong):
        return ""
    first = tuple(int(i) for i in wrong[0])
    values = np.atleast_1d(actual)[first], np.atleast_1d(expected)[first]
    return f"differs in {len(wrong)} places, first at {first}: {values[0]!r}, not {values[1]!r}"


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind not in "biu"


def _equal_bits(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    raw = f"u{x.itemsize}"
    return np.ascontiguousarray(x).view(raw) == np.ascontiguousarray(y).view(raw)


def _near(x: np.ndarray, y: np.ndarray, bound: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        room = bound if isinstance(bound, np.ndarray) else bound * (1 + np.abs(y))
        return (np.abs(x - y) <= room) | (x == y) | (np.isnan(x) & np.isnan(y))
