"""Edits of a kernel's syntax tree. Most of them keep it a program; some keep what it computes.

An edit takes a function and a random generator, changes the tree in place, and returns whether it
found a place. What an edited kernel means, if anything, the interpreter decides.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

Edit = Callable[[ast.FunctionDef, random.Random], bool]
EDITS: list[Edit] = []

HELPERS = """
@jit
def swap_(x, y):
    return y, x

@jit
def nest_(p):
    (x, y), z = p
    return x, (y, z)

@jit
def early_(x, n):
    if n > 2:
        return x
    return x + x

@jit
def grow_(x, n):
    k = 0
    while k < n:
        x = x + k
        k += 1
    return x

@jit
def turn_(p, n):
    for k in range(n):
        p = (p[1], p[0])
    return p[0]

@jit
def least_(x, y):
    return tl.minimum(x, y)
"""
"""Functions that edited kernels may call."""

WRAPPERS = (
    "(E + 0)",
    "-(-E)",
    "~E",
    "(E + E - E)",
    "tl.where(E == E, E, 0)",
    "tl.where(E > 0, E, E - 1)",
    "tl.trans(tl.trans(E))",
    "tl.trans(E)",
    "E.to(tl.float32).to(tl.int32)",
    "E.to(tl.int8)",
    "E.to(tl.uint8).to(tl.int32)",
    "E.to(tl.int64)",
    "E.to(tl.float16).to(tl.float32)",
    "E.to(tl.bfloat16)",
    "E.to(tl.float64)",
    "E.to(tl.int1)",
    "tl.flip(E, 0)",
    "tl.flip(tl.flip(E, 0), 0)",
    "E[::-1]",
    "tl.cumsum(E, 0)",
    "tl.cumsum(E, 0, reverse=True)",
    "tl.associative_scan(E, 0, least_)",
    "tl.reshape(tl.ravel(E), E.shape)",
    "tl.sort(E)",
    "tl.sum(E, 0)",
    "tl.max(E, 0)",
    "tl.broadcast_to(tl.sum(E, 0, keep_dims=True), E.shape)",
    "tl.broadcast_to(tl.max(E, -1, keep_dims=True), E.shape)",
    "tl.broadcast_to(tl.reduce(E, 0, least_, keep_dims=True), E.shape)",
    "tl.argmax(E, 0)",
    "tl.join(E, E).sum(-1)",
    "tl.split(tl.join(E, E + 1))[1]",
    "tl.cat(E, E, can_reorder=True)",
    "tl.gather(E, tl.full(E.shape, 1, tl.int32), 0)",
    "tl.abs(E)",
    "tl.clamp(E, -3.0, 3.0)",
    "(E % 7)",
    "(E // 3)",
    "(E >> 1)",
    "swap_(E, E + 1)[0]",
    "nest_(((E, E * 2), E + 1))[1][0]",
    "nest_(((E, E * 2), E + 1))[0]",
    "early_(E, tl.program_id(0))",
    "early_(E, tl.num_programs(0))",
    "grow_(E, tl.program_id(0))",
    "grow_(E, 3)",
    "turn_((E, E + 1), tl.program_id(0))",
    "turn_((E, E - E), 3)",
)
COUNTS = ("0", "1", "2", "3", "5", "tl.program_id(0)", "tl.num_programs(0)", "2, 0, -1", "1, 6, 2")
CONDITIONS = (
    "tl.program_id(0) % 2 == 0",
    "tl.program_id(0) > 0",
    "tl.num_programs(0) > 1",
    "tl.program_id(0) < 0",
    "tl.num_programs(0) < 99",
    "True",
    "False",
)
SIGNS = (
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor,
    ast.LShift, ast.RShift,
)  # fmt: skip
COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
ALIKE = (
    ("exp", "exp2", "log", "sqrt", "abs", "floor", "ceil", "cos", "sin", "rsqrt", "sigmoid"),
    ("maximum", "minimum"),
    ("sum", "max", "min", "xor_sum", "argmax", "argmin"),
    ("cumsum", "cumprod"),
    ("float16", "float32", "float64", "bfloat16", "int8", "int32", "int64", "uint8", "uint32"),
    ("atomic_add", "atomic_max", "atomic_min", "atomic_xor"),
    ("range", "static_range"),
)


def edit(fn: Edit) -> Edit:
    """Register an edit."""
    EDITS.append(fn)
    return fn


def parsed(text: str, **holes: ast.expr) -> ast.expr:
    """An expression, with trees in the place of names."""

    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return copy.deepcopy(holes.get(node.id, node))

    return Fill().visit(ast.parse(text, mode="eval").body)


Place = tuple[Any, str, int | None]


def places(function: ast.FunctionDef) -> Iterator[tuple[Place, ast.expr]]:
    """Where expressions that are read stand in the statements of a function."""
    for statement in function.body:
        for node in ast.walk(statement):
            for field, value in ast.iter_fields(node):
                if field in ("func", "annotation", "decorator_list"):
                    continue
                items = value if isinstance(value, list) else [value]
                for i, item in enumerate(items):
                    if isinstance(item, ast.expr) and not isinstance(
                        getattr(item, "ctx", None), ast.Store | ast.Del
                    ):
                        yield (node, field, i if isinstance(value, list) else None), item


def put(place: Place, new: ast.expr) -> None:
    node, field, index = place
    if index is None:
        setattr(node, field, new)
    else:
        getattr(node, field)[index] = new


def replace_one(
    function: ast.FunctionDef,
    rng: random.Random,
    kind: type[ast.expr] | tuple[type[ast.expr], ...],
    make: Callable[[Any], ast.expr | None],
) -> bool:
    """Replace a random expression of a kind."""
    found = [(place, node) for place, node in places(function) if isinstance(node, kind)]
    if not found:
        return False
    place, node = rng.choice(found)
    new = make(node)
    if new is None:
        return False
    put(place, new)
    return True


def bodies(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for field in ("body", "orelse"):
            found = getattr(node, field, None)
            if isinstance(found, list) and found and isinstance(found[0], ast.stmt):
                yield found


def statement(function: ast.FunctionDef, rng: random.Random) -> tuple[list[ast.stmt], int]:
    """A random statement, as the list that holds it and its index."""
    found = [(body, i) for body in bodies(function) for i in range(len(body))]
    return rng.choice(found)


def block(text: str, *inner: ast.stmt) -> ast.stmt:
    """A statement, with others in the place of ``...``."""
    tree = ast.parse(text).body[0]
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            found = getattr(node, field, None)
            if isinstance(found, list) and any(_is_hole(s) for s in found):
                at = next(i for i, s in enumerate(found) if _is_hole(s))
                found[at : at + 1] = [copy.deepcopy(s) for s in inner]
    return tree


def _is_hole(s: Any) -> bool:
    return isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and s.value.value is ...


# -- expressions ----------------------------------------------------------------------------------


@edit
def change_number(function: ast.FunctionDef, rng: random.Random) -> bool:
    def make(node: ast.Constant) -> ast.expr | None:
        value = node.value
        if isinstance(value, bool):
            return ast.Constant(not value)
        if isinstance(value, int):
            ends = (2**31 - 1, -(2**31), 2**40) if rng.random() < 0.1 else (value + 1, value - 1)
            return ast.Constant(rng.choice((0, 1, 2, 3, -1, 7, 2 * value, *ends)))
        if isinstance(value, float):
            return parsed(
                rng.choice(("0.5", "-0.0", "float('inf')", "float('nan')", "-2.0", "1e30", "0.0"))
            )
        return None

    return replace_one(function, rng, ast.Constant, make)


@edit
def change_comparison(function: ast.FunctionDef, rng: random.Random) -> bool:
    def make(node: ast.Compare) -> ast.expr | None:
        if len(node.ops) > 1:
            return None
        left, right = node.left, node.comparators[0]
        if rng.random() < 0.4:
            return ast.Compare(left, [rng.choice(COMPARISONS)()], [right])
        forms = (
            "L < R - 3", "L + 1 < R", "L < R // 2", "(L < R) & (L % 3 != 1)", "(L < R) | (L == 0)",
            "(L >= 2) & (L < R)", "~(L < R)", "(L < R) & (L > R)", "(R > L) == (L >= 0)",
            "(L < R) ^ (L < 5)",
        )  # fmt: skip
        return parsed(rng.choice(forms), L=left, R=right)

    return replace_one(function, rng, ast.Compare, make)


@edit
def change_operator(function: ast.FunctionDef, rng: random.Random) -> bool:
    def make(node: ast.BinOp) -> ast.expr:
        if rng.random() < 0.3:
            return ast.BinOp(node.right, node.op, node.left)
        return ast.BinOp(node.left, rng.choice(SIGNS)(), node.right)

    return replace_one(function, rng, ast.BinOp, make)


@edit
def change_name(function: ast.FunctionDef, rng: random.Random) -> bool:
    """Another function or type, of the same kind."""
    found: list[tuple[Any, str, tuple[str, ...]]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Name):
            field = "attr" if isinstance(node, ast.Attribute) else "id"
            found += [(node, field, group) for group in ALIKE if getattr(node, field) in group]
    if not found:
        return False
    node, field, group = rng.choice(found)
    name = rng.choice(group)
    if name == "static_range" and field == "id":
        return False
    setattr(node, field, name)
    return True


@edit
def wrap(function: ast.FunctionDef, rng: random.Random) -> bool:
    def make(node: ast.expr) -> ast.expr:
        return parsed(rng.choice(WRAPPERS), E=node)

    return replace_one(function, rng, (ast.Name, ast.BinOp, ast.Call, ast.Subscript), make)


@edit
def exchange(function: ast.FunctionDef, rng: random.Random) -> bool:
    """An expression of the kernel in the place of another."""
    found = list(places(function))
    if not found:
        return False
    place, old = rng.choice(found)
    others = [e for _, e in found if type(e) is type(old)]
    put(place, copy.deepcopy(rng.choice(others)))
    return True


@edit
def choose(function: ast.FunctionDef, rng: random.Random) -> bool:
    """A conditional expression of two of the kernel's expressions."""
    found = [e for _, e in places(function) if isinstance(e, ast.Name | ast.BinOp | ast.Call)]

    def make(node: ast.expr) -> ast.expr:
        other, condition = rng.choice(found), rng.choice(CONDITIONS)
        return parsed(f"A if {condition} else B", A=node, B=other)

    return replace_one(function, rng, (ast.Name, ast.BinOp, ast.Call), make)


@edit
def change_keyword(function: ast.FunctionDef, rng: random.Random) -> bool:
    """Add, remove or exchange the mask and the other arguments of a call."""
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and n.args]
    if not calls:
        return False
    call = rng.choice(calls)
    match rng.randrange(4):
        case 0 if call.keywords:
            call.keywords.remove(rng.choice(call.keywords))
        case 1 if len(call.args) > 1:
            call.args.pop()
        case 2 if len(call.args) > 1:
            i, k = rng.sample(range(len(call.args)), 2)
            call.args[i], call.args[k] = call.args[k], call.args[i]
        case _:
            names = [k.arg for k in call.keywords]
            if isinstance(call.func, ast.Attribute) and call.func.attr == "load":
                options = {"volatile": "True", "other": "3", "cache_modifier": "'.cg'"}
                name = rng.choice(list(options))
                if name not in names:
                    call.keywords.append(ast.keyword(name, parsed(options[name])))
                    return True
            return False
    return True


@edit
def change_bounds(function: ast.FunctionDef, rng: random.Random) -> bool:
    """Other bounds of a counted loop."""
    loops = [
        n for n in ast.walk(function)
        if isinstance(n, ast.For) and isinstance(n.iter, ast.Call) and n.iter.args
    ]  # fmt: skip
    if not loops:
        return False
    call: Any = rng.choice(loops).iter
    match rng.randrange(5):
        case 0:
            bounds: Any = parsed(f"({rng.choice(COUNTS)},)")
            call.args = bounds.elts
        case 1 if len(call.args) == 1:
            call.args = [parsed("N - 1", N=call.args[0]), parsed("-1"), parsed("-1")]
        case 2 if len(call.args) == 1:
            call.args = [parsed("1"), call.args[0], parsed(rng.choice(("2", "3", "100")))]
        case 3 if isinstance(call.func, ast.Name):
            call.func = parsed("tl.range")
            number = rng.choice((1, 2, 3, 4))
            call.keywords = [ast.keyword(rng.choice(("num_stages", "loop_unroll_factor")),
                                         ast.Constant(number))]  # fmt: skip
        case _:
            last = 0 if len(call.args) == 1 else 1
            call.args[last] = parsed(
                rng.choice(("N + 1", "N - 1", "N * 2", "0")), N=call.args[last]
            )
    return True


# -- statements -----------------------------------------------------------------------------------


@edit
def repeat(function: ast.FunctionDef, rng: random.Random) -> bool:
    """Statements within a loop."""
    body, i = statement(function, rng)
    stop = min(len(body), i + rng.choice((1, 1, 2, 3, 99)))
    count, variable = rng.choice(COUNTS), f"k{rng.randrange(1000)}_"
    kind = rng.choice(("range", "range", "range", "tl.static_range", "tl.range"))
    condition = rng.choice(CONDITIONS)
    forms = (
        f"for {variable} in {kind}({count}):\n    ...",
        f"for {variable} in range({count}):\n    if {condition}:\n        ...",
        f"for {variable} in range({count}):\n    if {variable} > 1:\n        ...\n"
        f"    else:\n        ...",
        f"for {variable} in range({count}):\n    for {variable}k in range(2):\n        ...",
        f"for {variable} in range({count}):\n    if {condition}:\n        break\n    ...",
        f"for {variable} in range({count}):\n    if {variable} == 1:\n        continue\n    ...",
    )
    body[i:stop] = [block(rng.choice(forms), *body[i:stop])]
    return True


@edit
def repeat_while(function: ast.FunctionDef, rng: random.Random) -> bool:
    """A statement within a loop that counts itself."""
    body, i = statement(function, rng)
    name = f"w{rng.randrange(1000)}_"
    start = ast.parse(f"{name} = {rng.choice(('0', '1', '3', 'tl.program_id(0)'))}").body[0]
    test = rng.choice((f"{name} < 3", f"({name} < 2) & ({name} >= 0)", f"{name} < 1"))
    loop = block(f"while {test}:\n    ...\n    {name} += 1", body[i])
    body[i : i + 1] = [start, loop]
    return True


@edit
def make_conditional(function: ast.FunctionDef, rng: random.Random) -> bool:
    body, i = statement(function, rng)
    stop = min(len(body), i + rng.choice((1, 1, 2, 99)))
    condition = rng.choice(CONDITIONS)
    if rng.random() < 0.5:
        body[i:stop] = [block(f"if {condition}:\n    ...", *body[i:stop])]
    else:
        inner = body[i:stop]
        both: Any = block(f"if {condition}:\n    ...\nelse:\n    ...", *inner)
        other = ast.FunctionDef("other", function.args, both.orelse, [])
        rng.choice((change_operator, change_number, wrap))(other, rng)
        body[i:stop] = [both]
    return True


@edit
def repeat_or_remove(function: ast.FunctionDef, rng: random.Random) -> bool:
    body, i = statement(function, rng)
    match rng.randrange(3):
        case 0:
            body.insert(i, copy.deepcopy(body[i]))
        case 1 if len(body) > 1:
            del body[i]
        case _:
            if i + 1 == len(body):
                return False
            body[i], body[i + 1] = body[i + 1], body[i]
    return True


@edit
def leave_early(function: ast.FunctionDef, rng: random.Random) -> bool:
    """A return under a condition."""
    i = rng.randrange(len(function.body))
    function.body.insert(i, ast.parse(f"if {rng.choice(CONDITIONS)}:\n    return").body[0])
    return True


@edit
def store_again(function: ast.FunctionDef, rng: random.Random) -> bool:
    """After a store: load what it stored, and store that, changed."""
    found: list[tuple[list[ast.stmt], int, ast.Call]] = []
    for body in bodies(function):
        for i, s in enumerate(body):
            if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
                call = s.value
                if isinstance(call.func, ast.Attribute) and call.func.attr == "store":
                    found.append((body, i, call))
    if not found:
        return False
    body, i, call = rng.choice(found)
    if len(call.args) < 2:
        return False
    again = copy.deepcopy(call)
    load = ast.Call(parsed("tl.load"), [call.args[0], *call.args[2:]], list(call.keywords))
    forms = ("L + V", "L", "L - 1", "V - L", "tl.flip(L, 0)", "tl.cumsum(L, 0)", "tl.max(L, 0)")
    again.args[1] = parsed(rng.choice(forms), L=load, V=call.args[1])
    body.insert(i + 1, ast.Expr(again))
    return True


@edit
def carry(function: ast.FunctionDef, rng: random.Random) -> bool:
    """Carry two variables through a loop as one tuple, or one as another structure."""
    body, i = statement(function, rng)
    names = [
        t.id for s in body[: i + 1] if isinstance(s, ast.Assign)
        for t in s.targets if isinstance(t, ast.Name)
    ]  # fmt: skip
    if not names:
        return False
    a, b, n = rng.choice(names), rng.choice(names), rng.choice(COUNTS)
    forms = (
        f"t_ = ({a}, {b})\nfor j_ in range({n}):\n    t_ = (t_[1], t_[0])\n{a}, {b} = t_",
        f"t_ = ({a}, ({b}, 1))\nfor j_ in range({n}):\n"
        f"    t_ = (t_[0] + t_[1][1], (t_[1][0], t_[1][1] * 2))\n{a} = t_[0]",
        f"t_ = {a}\nfor j_ in range({n}):\n    t_ = ({a}, {b})\n",
        f"for j_ in range({n}):\n    {a}, {b} = {b}, {a}\n",
        f"for j_ in range({n}):\n    {a} = {a} + {b}\n    if j_ > 0:\n        {b} = {a}\n",
        f"u_ = {a}\nfor j_ in range({n}):\n    v_ = u_\n    u_ = {b}\n    {a} = v_ + j_\n",
        f"if {rng.choice(CONDITIONS)}:\n    t_ = ({a}, {b})\nelse:\n    t_ = ({b}, {a})\n"
        f"{a} = t_[0]\n",
    )
    body[i + 1 : i + 1] = ast.parse(rng.choice(forms)).body
    return True


@edit
def move_pointer(function: ast.FunctionDef, rng: random.Random) -> bool:
    """Begin elsewhere in an array, or at a place of its own for each program."""
    names = [a.arg for a in function.args.args if a.annotation is None]
    if not names:
        return False
    name, shift = rng.choice(names), rng.choice(("1", "16", "37", "64", "tl.program_id(0) * 4"))
    function.body.insert(0, ast.parse(f"{name} = {name} + {shift}").body[0])
    return True
