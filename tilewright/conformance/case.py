"""The cases of the conformance suite: programs whose results are compared, and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.compiler.source import ASTSource
from tilewright.frontend.source import SourceFunction
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.runtime.device_array import SHORT
from tilewright.targets.protocol import Claims, GPUTarget

Array = np.ndarray[Any, Any]
ALIGNED = 16  # bytes: the divisibility that a launch guarantees of an aligned address


@dataclass(frozen=True)
class Shifted:
    """An array that starts `shift` elements after an aligned address, which may misalign it."""

    array: Array
    shift: int = 1


@dataclass(frozen=True)
class Program:
    """A launch and its permitted deviation from the interpreter.

    Attributes:
        kernel: a jit function.
        args: of the run-time parameters, in order: arrays, `Shifted` arrays, numbers.
        constants: of the compile-time parameters, by name.
        grid: the extents of the launch.
        ulp: how far floats may be from the interpreter's, in units in the last place; 0 for equal
            bits, where any NaN equals any other.
        expected: returns the arrays after the launch, computed by NumPy alone from copies of all
            arguments; compared with the interpreter, too.
    """

    kernel: SourceFunction
    args: Sequence[Any]
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    grid: tuple[int, ...] = (1,)
    ulp: float = 0
    expected: Callable[[Sequence[Any]], Sequence[Array]] | None = None

    def source(self) -> ASTSource:
        """The kernel, specialised to the types and alignments of the arguments."""
        rest = iter(self.args)
        signature: dict[str, str] = {}
        attrs: dict[tuple[int, ...], list[Any]] = {}
        for place, name in enumerate(self.kernel.arg_names):
            if name in self.constants:
                continue
            value = next(rest)
            signature[name] = _type_of(value)
            if not isinstance(value, Shifted | float | bool) and _is_aligned(value):
                attrs[place,] = [["tt.divisibility", ALIGNED]]
        return ASTSource(self.kernel, signature, self.constants, attrs)

    def values(self, args: Sequence[Any]) -> list[Any]:
        """The arguments of all parameters, given those of the run-time ones."""
        rest = iter(args)
        names = self.kernel.arg_names
        return [self.constants[n] if n in self.constants else next(rest) for n in names]

    def interpreted(self, module: Module) -> list[Array]:
        """The arrays after the module is interpreted, in order."""
        copies = [_array_of(a).copy() if is_array(a) else a for a in self.args]
        interpret(module, self.grid, copies)
        return [c for c in copies if isinstance(c, np.ndarray)]

    def elements(self) -> set[str]:
        """The element types of the arguments, in short form."""
        return {SHORT[_array_of(a).dtype] for a in self.args if is_array(a)}


def is_array(value: Any) -> bool:
    """Whether an argument is passed as a pointer."""
    return isinstance(value, Shifted | np.ndarray)


def _array_of(value: Any) -> Array:
    return value.array if isinstance(value, Shifted) else value


def _type_of(value: Any) -> str:
    match value:
        case Shifted() | np.ndarray():
            return f"*{SHORT[_array_of(value).dtype]}"
        case np.generic():
            return SHORT[value.dtype]
        case bool():
            return "u1"
        case int():
            return "i32" if -(2**31) <= value < 2**31 else "i64"
        case _:
            return "fp32"


def _is_aligned(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (isinstance(value, int) and value % ALIGNED == 0)


def first_line(error: BaseException) -> str:
    """The message of the innermost cause of an error, in one line, with its source line."""
    place = str(error).strip().splitlines()[0]
    while error.__cause__ is not None:
        error = error.__cause__
    message = getattr(error, "error_message", None) or str(error) or type(error).__name__
    line = str(message).strip().splitlines()[0]
    if place in line or line in place:
        return max(place, line, key=len)
    return f"{place} {line}"


class NotInLanguage(Exception):
    """The front end rejects a program on every target."""


class Failed(Exception):
    """A check or a program failed. The message says what was found and what was expected."""


@dataclass(frozen=True)
class Machine:
    """The machine on which the suite runs.

    Attributes:
        target: to compile for.
        device: the device to launch on; "" if there is none, so that kernels are only compiled.
        execute: for targets whose code is run by other means, such as an emulator: runs a module of
            tile IR on a grid and arguments, in place, instead of compiling and launching.
    """

    target: GPUTarget
    device: str
    execute: Callable[[Module, tuple[int, ...], list[Any]], object] | None = None


@dataclass(frozen=True)
class Case:
    """One case of the suite: a program, or a check of the target or the runtime.

    Attributes:
        level: "0" to "5", "R" or "F".
        feature: what is tested, such as ``x + y`` or ``tail``: a row of the table.
        variant: distinguishes the cases of a feature, such as the element type.
        body: makes a program; or checks a machine, and raises `Failed`.
        types, products, atomics: the element types that the case needs, apart from those of its
            arguments; see `Claims`.
        launches: whether it needs a device.
    """

    level: str
    feature: str
    variant: str
    body: Callable[[], Program] | Callable[[Machine], None]
    types: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    atomics: tuple[str, ...] = ()
    launches: bool = False

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.level, self.feature, self.variant)))

    def unclaimed(self, claims: Claims, elements: set[str]) -> str:
        """The first requirement of the case that the target does not claim; "" if it claims all.

        Args:
            elements: the element types of its arguments.
        """
        if self.level not in claims.levels:
            return f"level {self.level}"
        if self.feature in claims.without:
            return self.feature
        needed = {
            "type": (sorted(elements.union(self.types)), claims.types),
            "product of": (self.products, claims.products),
            "atomic operation on": (self.atomics, claims.atomics),
        }
        for what, (types, claimed) in needed.items():
            for type in types:
                if claimed is not None and type not in claimed:
                    return f"{what} {type}"
        return ""


def is_program(case: Case) -> bool:
    """Whether the body of a case makes a program."""
    return case.level in "12345F"
