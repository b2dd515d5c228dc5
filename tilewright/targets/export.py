"""Ahead-of-time export of kernels to C: parts shared by the targets' exporters.

An exporter writes a compiled kernel to files: a header that declares a launch function, and its
code. It is a method of the target:

    target.export(stages, metadata, request)      # {".h": b"…", ".o": b"…"}

The first parameter of a launch function is the stream or the workers that execute it; the extents
of the grid follow, unless they are given as expressions, and then the kernel's arguments. A line of
the header that begins with `DIRECTIVE` describes the launch function to `tools/link.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tilewright.base.symbols import symbol_of
from tilewright.targets.protocol import Stage

DIRECTIVE = "// tt-linker: "
"""The prefix of a header's line that describes the launch function to the linker of variants."""

ONE, ALIGNED = 1, 16
"""Hints: an argument is 1, or a multiple of 16; other powers of two are valid as well."""

AXES = ("gridX", "gridY", "gridZ")

_SCALARS = {
    "i1": "uint8_t",
    "u1": "uint8_t",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "fp16": "float",
    "bf16": "float",
    "fp32": "float",
    "fp64": "double",
}
_NARROW = ("fp16", "bf16")  # passed as float, as C has no type for them

_TAKEN = """
auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void
volatile while bool true false nullptr class delete explicit friend mutable namespace new operator
private protected public template this throw try typename using virtual and or not xor catch asm
export main NULL stream workers parameters function status attributes config find load loaded newest
image gridX gridY gridZ algo_id
"""
_RESERVED = frozenset(_TAKEN.split())


class ExportError(ValueError):
    """A kernel that cannot be exported as requested, with the reason."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a launch function.

    Attributes:
        name: its name in C.
        type: its type, as in signatures: ``*fp32``, ``i32``.
        hint: a precondition of the variant: `ONE`; a power of two that divides it; 0 for none.
    """

    name: str
    type: str
    hint: int = 0

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("*")

    @property
    def passed(self) -> bool:
        """Whether it is passed to the kernel: an argument that is 1 is a constant in its code."""
        return self.hint != ONE

    @property
    def is_narrow(self) -> bool:
        """Whether C has no type for it, so that it is passed as `float`."""
        return self.type in _NARROW

    @property
    def scalar(self) -> str:
        """The C type of a scalar.

        Raises:
            ExportError: C has no such type.
        """
        if self.type not in _SCALARS:
            raise ExportError(
                f"the parameter {self.name} is a number of type {self.type}, which C does not have"
            )
        return _SCALARS[self.type]

    @property
    def pointer(self) -> str:
        """The C type of a pointer on the CPU: `void *` if C has no type for the elements."""
        element = self.type[1:]
        const = "const " if element.startswith("k") else ""
        element = element.removeprefix("k")
        known = element in _SCALARS and element not in _NARROW
        return f"{const}{_SCALARS[element] if known else 'void'} *"


@dataclass(frozen=True, slots=True)
class Export:
    """The description of a launch function to export.

    Attributes:
        kernel: the kernel's name.
        base: the common name of all variants of it.
        symbol: the launch function's name.
        header: the header's file name.
        parameters: the kernel's arguments.
        constants: the values of numeric compile-time parameters, by their names in C.
        grid: C expressions for its three extents; None if the caller passes them.
        algorithm: distinguishes variants that take the same arguments.
    """

    kernel: str
    base: str
    symbol: str
    header: str
    parameters: tuple[Parameter, ...]
    constants: Mapping[str, int | float]
    grid: tuple[str, str, str] | None
    algorithm: str

    @property
    def passed(self) -> list[Parameter]:
        return [p for p in self.parameters if p.passed]


@dataclass(frozen=True, slots=True)
class Interface:
    """The interface of a launch function, as its header declares it to programs and to the linker.

    Attributes:
        symbol, base, algorithm: see `Export`.
        target: the target's name, the same for all variants of a function.
        result: its return type in C.
        failure: its return value, in C, if no variant accepts the arguments.
        parameters: all parameters, as pairs of C type and name, in order.
        hints: the preconditions, by the parameter's name (`Parameter.hint`).
        lifecycle: prefixes of further functions without parameters: `load_`, for `load_NAME`.
    """

    symbol: str
    base: str
    algorithm: str
    target: str
    result: str
    failure: str
    parameters: tuple[tuple[str, str], ...]
    hints: Mapping[str, int]
    lifecycle: tuple[str, ...] = ()

    @property
    def directive(self) -> str:
        """The line of the header that describes it to the linker."""
        return f"{DIRECTIVE}{json.dumps(asdict(self))}"

    @classmethod
    def read(cls, line: str) -> Interface:
        """Parse the line of a header, the inverse of `directive`.

        Raises:
            ValueError, KeyError, TypeError: the line is malformed.
        """
        facts = json.loads(line.removeprefix(DIRECTIVE))
        pairs = tuple((type, name) for type, name in facts.pop("parameters"))
        return cls(parameters=pairs, lifecycle=tuple(facts.pop("lifecycle")), **facts)


class Exporter(Protocol):
    """Writes a compiled kernel to files; returns their contents by suffix."""

    def __call__(
        self, stages: Mapping[str, Stage], metadata: Mapping[str, Any], export: Export, /
    ) -> dict[str, bytes]: ...


# -- C --------------------------------------------------------------------------------------------


def c_name(name: str) -> str:
    """A Python identifier as a C identifier: unchanged, unless reserved or not ASCII.

    >>> c_name("n"), c_name("int"), c_name("größe")
    ('n', 'int_', 'gr_u00f6_u00dfe')
    """
    plain = symbol_of(name)
    return f"{plain}_" if plain in _RESERVED else plain


def declared(type: str, name: str) -> str:
    """A declaration in C: ``const float *x``, ``int32_t n``."""
    return f"{type}{name}" if type.endswith("*") else f"{type} {name}"


def listed(parameters: Sequence[tuple[str, str]]) -> str:
    """The parameter list of a function in C."""
    return ", ".join(declared(type, name) for type, name in parameters) or "void"


def guarded(symbol: str, text: str) -> str:
    """A header with an include guard."""
    guard = f"TILEWRIGHT_{re.sub(r'[^A-Za-z0-9]', '_', symbol).upper()}_H"
    return f"#ifndef {guard}\n#define {guard}\n\n{text.strip()}\n\n#endif /* {guard} */\n"


LINKAGE_BEGIN = '#ifdef __cplusplus\nextern "C" {\n#endif'
LINKAGE_END = "#ifdef __cplusplus\n}\n#endif"


def broken_hints(export: Export) -> list[str]:
    """C conditions, each true if an argument violates its hint."""
    return [condition(p.name, p.hint, p.is_pointer, False) for p in export.parameters if p.hint]


def condition(name: str, hint: int, pointer: bool, holds: bool) -> str:
    """The C condition that an argument satisfies a hint (`holds`), or that it violates it."""
    sign = "==" if holds else "!="
    if hint == ONE:
        return f"{name} {sign} 1"
    return f"{f'(uintptr_t){name}' if pointer else name} % {hint} {sign} 0"


def promises(export: Export) -> list[str]:
    """Lines of a comment that list the kernel's arguments with their hints."""
    hints = {0: "", ONE: ", is 1"}
    lines = [
        f" *   {p.name}: {p.type}{hints.get(p.hint, f', a multiple of {p.hint}')}"
        for p in export.parameters
    ]
    return lines + [f" *   {name} = {value}" for name, value in export.constants.items()]


def grid_lines(export: Export) -> list[str]:
    """C statements that compute the grid's extents from the arguments."""
    if export.grid is None:
        return []
    used = set(re.findall(r"\w+", " ".join(export.grid)))
    lines = [
        f"{'int64_t' if isinstance(value, int) else 'double'} {name} = {value!r};"
        for name, value in export.constants.items()
        if name in used
    ]
    return lines + [
        f"int64_t {axis} = {text};" for axis, text in zip(AXES, export.grid, strict=True)
    ]


_GRID_TEXT = re.compile(r"[\w\s+\-*/%()<>=!&|^~?:.,]*")


def parse_grid(text: str, known: Sequence[str]) -> tuple[str, str, str]:
    """Parse one to three C expressions, separated by commas; missing extents are 1.

    >>> parse_grid("(n + 127) / 128, 2", ["n"])
    ('(n + 127) / 128', '2', '1')

    Args:
        known: the identifiers that they may use.

    Raises:
        ExportError: there are more than three, or they are not expressions, or use other names.
    """
    axes = [""]
    depth = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            axes.append("")
        else:
            axes[-1] += c
    axes = [axis.strip() for axis in axes]
    if len(axes) > 3 or not all(axes) or depth:
        raise ExportError(
            f"the grid is one to three expressions between commas, such as 'n / 128, 1, 1', "
            f"not {text!r}"
        )
    if not _GRID_TEXT.fullmatch(text) or "//" in text or "/*" in text or "**" in text:
        raise ExportError(
            f"the grid {text!r} is not a C expression of the arguments; in C, `/` divides whole "
            "numbers as `//` does in Python"
        )
    for name in re.findall(r"(?<![\w.])[^\W\d]\w*", text):
        if name not in known:
            raise ExportError(
                f"the grid uses {name!r}, which is not one of the kernel's scalar arguments: "
                f"{', '.join(known) or 'it takes none'}"
            )
    x, y, z = (*axes, "1", "1")[:3]
    return x, y, z
