"""The arguments of a launch that a grid function reads, determined from its bytecode."""

from __future__ import annotations

import dis
from types import CodeType

_READS_LOCALS = frozenset(("locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe"))
"""Functions through which code can access its own local variables."""


def names_read(code: CodeType) -> list[str] | None:
    """The keys with which a function subscripts its first argument, in order of occurrence.

    None if the function may use the argument in any other way than ``argument["key"]``, such as
    passing it on or taking its length.

    >>> names_read((lambda meta: (meta["n"] // meta["BLOCK"],)).__code__)
    ['n', 'BLOCK']
    """
    if not code.co_argcount or not _READS_LOCALS.isdisjoint(code.co_names):
        return None
    argument = code.co_varnames[0]
    if argument in code.co_cellvars:  # captured by a nested function
        return None
    result: dict[str, None] = {}
    instructions = list(dis.get_instructions(code))
    for i, instruction in enumerate(instructions):
        names = _variables(instruction)
        if argument in names:
            key = _key_after(instructions, i)
            if key is None or "LOAD" not in instruction.opname or argument in names[:-1]:
                return None
            result[key] = None
    return list(result)


def _variables(instruction: dis.Instruction) -> tuple[str, ...]:
    """The local variables that an instruction loads or stores; superinstructions have two."""
    if "FAST" not in instruction.opname:
        return ()
    value = instruction.argval
    return value if isinstance(value, tuple) else (value,)


def _key_after(instructions: list[dis.Instruction], i: int) -> str | None:
    """The constant string with which the next two instructions subscript the value loaded by
    instruction `i`; None if they do anything else."""
    if i + 2 >= len(instructions):
        return None
    constant, subscript = instructions[i + 1 : i + 3]
    subscripts = subscript.opname == "BINARY_SUBSCR" or (
        subscript.opname == "BINARY_OP" and subscript.argrepr == "[]"
    )
    if not subscripts or constant.opname != "LOAD_CONST" or type(constant.argval) is not str:
        return None
    return constant.argval
