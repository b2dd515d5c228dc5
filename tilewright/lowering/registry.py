"""The registry of lowerings of elementwise ops.

    @lowers(Add)
    def lower_add(b: Builder, op: Add, lhs: V, rhs: V) -> V: ...

An elementwise op is lowered by one function, for scalars and vectors alike. A target overrides it
under its own name, which it declares first (`base/target_names.py`):

    CUDA = declare_target("cuda")

    @lowers(Add, target=CUDA)

Ops that are not elementwise have emitters in each target, or in `lowering/simt`, since their code
depends on how tiles are represented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tilewright.base.target_names import check_target
from tilewright.ir.core import Op
from tilewright.ir.op_table import check_op_class
from tilewright.lowering.emit import V

Lowering = Callable[..., V]
Entry = TypeVar("Entry")

ALL = ""  # in place of a target: for every target that has no function of its own


class TargetTable(dict[type[Op], dict[str, Entry]], Generic[Entry]):
    """At most one function for each op class and target, and one for all other targets.

    Args:
        contents: what the functions are, for messages: ``"lowerings"``.
    """

    def __init__(self, contents: str) -> None:
        super().__init__()
        self.contents = contents

    def of(self, *classes: type[Op], target: str = ALL) -> Callable[[Entry], Entry]:
        """A decorator that enters a function for these classes.

        Raises:
            ValueError: the target is not declared; or a class already has a function for it, or is
                no class of ops.
        """
        if target != ALL:
            check_target(target, self.contents)

        def enter(function: Entry) -> Entry:
            for cls in classes:
                check_op_class(cls, self.contents)
                known = self.setdefault(cls, {})
                if target in known:
                    of = repr(target) if target else "all targets"
                    raise ValueError(f"{self.contents}: {cls.name} already has one for {of}")
                known[target] = function
            return function

        return enter

    def find(self, cls: type[Op], target: str) -> Entry | None:
        """The function of the target, or else the one for all targets, or else None.

        Raises:
            ValueError: the target is not declared.
        """
        check_target(target, self.contents)
        known: dict[str, Entry] = self.get(cls) or {}
        return known.get(target) or known.get(ALL)


LOWERINGS: TargetTable[Lowering] = TargetTable("lowerings")


def lowers(*classes: type[Op], target: str = ALL) -> Callable[[Lowering], Lowering]:
    """Register the lowering of elementwise ops, for one target or (default) for all."""
    return LOWERINGS.of(*classes, target=target)


def lowering_of(cls: type[Op], target: str) -> Lowering | None:
    """The lowering of the target, or else the common one, or else None."""
    return LOWERINGS.find(cls, target)
