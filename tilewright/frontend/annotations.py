"""The meaning of the annotations of a kernel's parameters.

An annotation may be an object of the language, such as `tl.constexpr` or
``tl.pointer_type(tl.int8)``, or text: Triton's names of types, such as ``"*fp32"``, and all
annotations under ``from __future__ import annotations``.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from tilewright.frontend.captured import Captured
from tilewright.ir.types import DType, Pointer, Tile
from tilewright.language.types import canonical_name
from tilewright.language.values import const, constexpr

_FORWARDREF = 3  # `annotationlib.Format.FORWARDREF`, a module of Python 3.14

_CONST = re.compile(r"^(\*k|const )")
_INTEGER = re.compile(r"(i|u)(8|16|32|64)")
_ELEMENT = re.compile(rf"[iu]1|{_INTEGER.pattern}|fp(16|32|64)|bf16|fp8e\w+")


Scope = Callable[[str], Any]
"""Evaluates an expression in the scope of a function."""


class Annotation(NamedTuple):
    """The meaning of a parameter's annotation.

    Attributes:
        text: the annotation as text, "" without one.
        type_string: the type that it fixes, such as ``fp32`` or ``*ki8``; "" if it fixes none.
        int_type: the type of an int that a variant is specialised for: a tensor, as others are,
            rather than a compile-time value, so that ``stride: tl.int64`` has 64 bits even if it is
            1; "" without a type of integers. Python's `int` is an int32 here, and fixes no type:
            larger ones are int64.
        is_constexpr: whether the parameter is a compile-time value.
        is_const: whether it is a pointer to const.
    """

    text: str = ""
    type_string: str = ""
    is_constexpr: bool = False
    is_const: bool = False

    @property
    def int_type(self) -> str:
        if self.text == "int":
            return "i32"
        return self.type_string if _INTEGER.fullmatch(self.type_string) else ""


def annotation_of(annotation: Any, scope: Scope | None = None) -> Annotation:
    """The meaning of an annotation.

    Text that is not the name of a type is evaluated, as Python does without the future import; if
    that fails, or the value is not an object of the language, the annotation specifies nothing.

    Args:
        annotation: as Python stores it; `inspect.Parameter.empty` for none.
        scope: evaluates an expression in the scope of the kernel; without one, text is not
            evaluated.
    """
    if annotation is inspect.Parameter.empty or annotation is None:
        return Annotation()
    if not isinstance(annotation, str):
        return _of_object(annotation)
    result = _of_text(annotation)
    if scope is None or result.is_constexpr or result.is_const or result.type_string:
        return result
    value: Any = annotation
    try:
        while isinstance(value, str):  # twice, where text is postponed
            value = scope(value)
    except Exception:  # names for type checkers need not exist
        return result
    meant = _of_object(value) if _is_of_the_language(value) else result
    return meant._replace(text=annotation)


def _is_of_the_language(value: Any) -> bool:
    return value is const or value is constexpr or isinstance(value, DType | Pointer | Tile)


def _of_object(annotation: Any) -> Annotation:
    if isinstance(annotation, DType | Pointer):
        text = _type_string(annotation)
        return Annotation(text, text, is_const=isinstance(annotation, Pointer) and annotation.const)
    if isinstance(annotation, Tile):
        return Annotation(_type_string(annotation))
    if annotation is float or annotation is bool:
        return _of_text(annotation.__name__)
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return Annotation(text, is_constexpr="constexpr" in text, is_const=annotation is const)


def _type_string(type_: DType | Pointer | Tile) -> str:
    if isinstance(type_, Pointer):
        return f"*{'k' if type_.const else ''}{_type_string(type_.element_ty)}"
    short = getattr(type_, "short", "")
    return "u1" if short == "i1" else short


def _of_text(annotation: str) -> Annotation:
    """The meaning of text in Triton's notation: ``constexpr`` anywhere in it, or a type such as
    ``fp32``, ``*fp32``, ``fp32*``, ``*kfp32``, ``const fp32*`` and ``const *fp32``."""
    if "constexpr" in annotation:
        return Annotation(annotation, is_constexpr=True)
    text = annotation.strip().strip("\"'")
    constant = bool(_CONST.match(text))
    inner = text.removeprefix("const ").strip()
    pointer = inner.endswith("*") or inner.startswith("*")
    name = inner.removeprefix("*k") if inner.startswith("*k") else inner.removeprefix("*")
    name = canonical_name(name.removeprefix("const ").removesuffix("*").strip())
    is_const = constant or text in ("const", "tl.const")
    if not _ELEMENT.fullmatch(name):
        return Annotation(annotation, is_const=is_const)
    type_string = f"*{'k' if constant else ''}{name}" if pointer else name
    return Annotation(annotation, type_string, is_const=is_const)


# -- of functions ----------------------------------------------------------------------------------


def scope_of(fn: Any) -> Scope:
    """The scope of a function: its globals, and the variables that it captures."""

    def evaluate(text: str) -> Any:
        return eval(text, fn.__globals__, Captured(fn))

    return evaluate


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function.

    Python 3.14 evaluates annotations only now. Those that it cannot evaluate remain text here, like
    those of earlier versions under the future import.
    """
    if sys.version_info < (3, 14):
        return inspect.signature(fn)
    found = inspect.signature(fn, annotation_format=_FORWARDREF)
    return found.replace(parameters=[with_text(p) for p in found.parameters.values()])


def with_text(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter, with a reference to a name that is not defined as its text."""
    text = getattr(parameter.annotation, "__forward_arg__", None)
    return parameter if text is None else parameter.replace(annotation=text)
