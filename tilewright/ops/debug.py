"""Debugging ops: printing of values and run-time assertions, and the format of their output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.diagnostics import DeviceAssertionError, Loc
from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, require, variadic
from tilewright.ir.numbers import decode
from tilewright.ir.traits import LOCAL, WRITES
from tilewright.ir.types import E4B15, I1, Pointer, Scalar, Type, element_of, shape_of
from tilewright.ops.numeric import Array


class Print(Op, name="debug.print", traits=WRITES):
    """Prints values, each with the prefix; only the prefix if there are no values.

    On a CPU and in the interpreter, a value is one line: the program ``(x, y, z)``, the prefix, and
    the elements in brackets. On a GPU, each element is one line: ``pid (x, y, z) idx (i, j)``, the
    prefix and the element. Floats are printed with six decimals; with `hex`, elements are printed
    as bit patterns. `extents`, if not None, is a shape for each value: elements outside it, such as
    padding, are not printed.

        debug.print [%0, %1], prefix=" x: ", hex=False, extents=((3,), (),) : (4xi32, fp32) -> ()
    """

    values: list[Value] = variadic()
    prefix: str = attr()
    hex: bool = attr(False)
    extents: tuple[tuple[int, ...], ...] | None = attr(None)

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require(
            # the parser accepts any attribute here, regardless of the annotation
            isinstance(self.prefix, str),  # pyright: ignore[reportUnnecessaryIsInstance]
            self,
            "prefix",
            "the prefix is text, not {p!r}",
            p=self.prefix,
        )
        shapes = [shape_of(v.type) for v in self.values]
        require(
            all(map(_is_within, self.shapes(), shapes)) and len(self.shapes()) == len(shapes),
            self,
            "extents",
            "the extents {e} are not within the shapes {s}",
            e=self.extents,
            s=shapes,
        )

    def shapes(self) -> Sequence[tuple[int, ...]]:
        """The printed extents of each value."""
        return [shape_of(v.type) for v in self.values] if self.extents is None else self.extents

    no_evaluate = "it has no result; see execute"

    def execute(self, state: Any, *args: Any) -> tuple[()]:
        elements = [element_of(v.type) for v in self.values]
        shown = [
            np.asarray(a)[tuple(map(slice, s))] for a, s in zip(args, self.shapes(), strict=True)
        ]
        sys.stdout.write(program_text(state.program_id, self.prefix, self.hex, elements, shown))
        return ()


def _is_within(extents: Sequence[int], shape: Sequence[int]) -> bool:
    return len(extents) == len(shape) and all(
        0 < n <= m for n, m in zip(extents, shape, strict=True)
    )


class Assert(Op, name="debug.assert", traits=WRITES):
    """Terminates the kernel with an error unless the condition, or every element of it, is true.

    debug.assert %0, message="x is positive" : 4xi1 -> ()
    """

    condition: Value = operand()
    message: str = attr("")

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        found = element_of(self.condition.type)
        require(found == I1, self, "condition", "the condition is {c}, not i1", c=found)
        require(
            isinstance(self.message, str),  # pyright: ignore[reportUnnecessaryIsInstance]
            self,
            "message",
            "the message is text, not {m!r}",
            m=self.message,
        )

    no_evaluate = "it has no result; see execute"

    def execute(self, state: Any, *args: Any) -> tuple[()]:
        if not np.all(args[0]):
            raise DeviceAssertionError(failure_text(*source_position(self.loc), self.message,
                                                    state.program_id))  # fmt: skip
        return ()


class Assume(Op, name="debug.assume", traits=WRITES | LOCAL):
    """States that a scalar condition holds wherever the op is executed; it is not checked.

    debug.assume %0 : i1 -> ()
    """

    condition: Value = operand()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        found = self.condition.type
        require(found == I1, self, "condition", "the condition is {c}, not i1", c=found)

    def evaluate(self, condition: Array) -> tuple[()]:
        return ()


# -- text ------------------------------------------------------------------------------------------


def source_position(loc: Loc | None) -> tuple[str, int, str]:
    """The file, line and function of a location, for messages.

    The file is without its directory, so that compiled code does not depend on the location of its
    source.
    """
    if loc is None:
        return "<unknown>", 0, "<unknown>"
    return os.path.basename(loc.file), loc.line, loc.function or "<unknown>"


def failure_text(file: str, line: int, function: str, message: str, program: Sequence[int]) -> str:
    """The message of a failed assertion, in the format of GPUs."""
    return f"{file}:{line}: {function}: program {tuple(program)}: Assertion `{message}` failed."


def label(prefix: str, index: int, count: int) -> str:
    """The prefix of a printed value; with the index of the operand, if there are several."""
    return f"{prefix}(operand {index}) " if count > 1 else prefix


def program_text(
    program: Sequence[int],
    prefix: str,
    hex: bool,
    elements: Sequence[Scalar],
    arrays: Sequence[Any],
) -> str:
    """The lines that a program prints, one for each value."""
    program_id = f"({', '.join(map(str, program))})"
    if not arrays:
        return f"{program_id}{prefix}\n"
    lines: list[str] = []
    for i, (element, array) in enumerate(zip(elements, arrays, strict=True)):
        text = _nested(_numbers(np.asarray(array), element, hex))
        lines.append(f"{program_id}{label(prefix, i, len(arrays))}{text}\n")
    return "".join(lines)


def _nested(texts: Any) -> str:
    if not isinstance(texts, list):
        return texts
    found: list[Any] = texts
    inner = ", ".join(map(_nested, found))
    return f"[{inner}]" if found and isinstance(found[0], list) else f"[ {inner} ]"


def _numbers(array: Array, element: Scalar, hex: bool) -> Any:
    """The elements as text, in nested lists of the array's shape."""
    if hex or isinstance(element, Pointer):
        size = array.dtype.itemsize
        bits = np.ascontiguousarray(array).view(f"u{size}").reshape(array.shape)
        return _mapped(bits, f"0x%0{2 * size}x")
    if element.is_floating():
        wide = decode(array) if array.dtype == E4B15 else array
        return _mapped(wide.astype(np.float64), "%f")
    return _mapped(array, "%d")


def _mapped(array: Array, form: str) -> Any:
    return np.vectorize(lambda value: form % value, otypes=[object])(array).tolist()
