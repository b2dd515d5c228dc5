"""Mutates a random program by replacing parts of it by others; most mutants are invalid."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator

SIGNS = (ast.Add, ast.Mult, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.LShift, ast.Div, ast.MatMult)
NUMBERS = (0, 1, -1, 3, 2.5, 2**40, "text", None, True)


def mutated(text: str, seed: int) -> str:
    """The program after up to three changes in its functions."""
    rng = random.Random(seed)
    tree = ast.parse(text)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    for _ in range(rng.randint(1, 3)):
        _change(rng.choice([*functions[-4:], functions[-1]]), rng)
    return ast.unparse(tree)


Place = tuple[ast.AST, str, int | None]


def _places(function: ast.FunctionDef) -> Iterator[tuple[Place, ast.expr]]:
    """Where expressions stand in the function's statements, and these."""
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.JoinedStr):
                continue  # which holds texts and nothing else
            for field, value in ast.iter_fields(node):
                if isinstance(value, ast.expr):
                    yield (node, field, None), value
                elif isinstance(value, list):
                    for i, item in enumerate(value):
                        if isinstance(item, ast.expr):
                            yield (node, field, i), item


def _change(function: ast.FunctionDef, rng: random.Random) -> None:
    places = list(_places(function))
    (node, field, index), old = rng.choice(places)
    new = copy.deepcopy(_other(old, [e for _, e in places], rng))
    if index is None:
        setattr(node, field, new)
    else:
        getattr(node, field)[index] = new


def _other(old: ast.expr, all: list[ast.expr], rng: random.Random) -> ast.expr:
    """Something in the place of an expression, which keeps a target a target."""
    if isinstance(getattr(old, "ctx", None), ast.Store):
        return old
    loads = [e for e in all if not isinstance(getattr(e, "ctx", None), ast.Store)]
    match rng.randrange(4):
        case 0:
            return ast.Constant(rng.choice(NUMBERS))
        case 1:
            return ast.BinOp(old, rng.choice(SIGNS)(), rng.choice(loads))
        case 2:
            same = [e for e in loads if type(e) is type(old)]
            return rng.choice(same)
        case _:
            return rng.choice(loads)
