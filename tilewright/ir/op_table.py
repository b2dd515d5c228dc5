"""Tables of functions by op class, such as rules of analyses, layout demands and emitters.

    RULES: OpTable[Rule] = OpTable("rules of padding")

    @RULES.of(shape.Flip)
    def pad_flip(padding: Padding, op: shape.Flip) -> None: ...

    rule = RULES.get(type(op))

Subclasses of an op class do not inherit its function. Functions that targets may override are in a
`TargetTable` (`lowering/registry.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tilewright.ir.core import Op

Entry = TypeVar("Entry")
Given = TypeVar("Given")


class OpTable(dict[type[Op], Entry], Generic[Entry]):
    """At most one function for each op class.

    Args:
        contents: a description of the functions for messages, such as ``"rules of padding"``.
    """

    def __init__(self, contents: str) -> None:
        super().__init__()
        self.contents = contents

    def of(self, *classes: type[Op]) -> Callable[[Given], Given]:
        """A decorator that registers a function for these classes.

        Raises:
            ValueError: a class already has a function, or is not a class of ops.
        """

        def enter(function: Given) -> Given:
            for cls in classes:
                check_op_class(cls, self.contents)
                if cls in self:
                    raise ValueError(f"{self.contents}: {cls.name} already has one")
                dict.__setitem__(self, cls, function)
            return function

        return enter


def check_op_class(cls: object, contents: str) -> None:
    """Raise ValueError unless `cls` is a class of ops."""
    if not (isinstance(cls, type) and issubclass(cls, Op)):
        raise ValueError(f"{contents}: {cls!r} is not a class of ops")
