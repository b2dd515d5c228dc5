"""Which arguments a grid function reads, by its code."""

from __future__ import annotations

import dis
from types import CodeType

_READS_LOCALS = frozenset(("locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe"))
"""By one of these names a function could see its own variables."""


def names_read(code: CodeType) -> list[str] | None:
    """The keys at which a function of this code looks into its first argument, in order.

    None where it may do something else with it, such as to pass it on, or to take its length:
    anything but ``argument["key"]``.

    >>> names_read((lambda meta: (meta["n"] // meta["BLOCK"],)).__code__)
    ['n', 'BLOCK']
    """
    if not code.co_argcount or not _READS_LOCALS.isdisjoint(code.co_names):
        return None
    argument = code.co_varnames[0]
    if argument in code.co_cellvars:  # of a function within
        return None
    found: dict[str, None] = {}
    instructions = list(dis.get_instructions(code))
    for i, instruction in enumerate(instructions):
        names = _variables(instruction)
        if argument in names:
            key = _key_after(instructions, i)
            if key is None or "LOAD" not in instruction.opname or argument in names[:-1]:
                return None
            found[key] = None
    return list(found)


def _variables(instruction: dis.Instruction) -> tuple[str, ...]:
    """The local variables that an instruction is about; some are about two."""
    if "FAST" not in instruction.opname:
        return ()
    value = instruction.argval
    return value if isinstance(value, tuple) else (value,)


def _key_after(instructions: list[dis.Instruction], i: int) -> str | None:
    """The constant string by which what this instruction loads is subscripted next."""
    if i + 2 >= len(instructions):
        return None
    constant, subscript = instructions[i + 1 : i + 3]
    subscripts = subscript.opname == "BINARY_SUBSCR" or (
        subscript.opname == "BINARY_OP" and subscript.argrepr == "[]"
    )
    if not subscripts or constant.opname != "LOAD_CONST" or type(constant.argval) is not str:
        return None
    return constant.argval
