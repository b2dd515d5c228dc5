"""Suggestions for names, attributes and calls."""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Iterable
from functools import reduce
from typing import Any

import tilewright.language as tl
from tilewright.frontend.ast_to_ir.explain import Mistake, Operand, suggests
from tilewright.ir.types import DType
from tilewright.language.aggregate import is_aggregate_class
from tilewright.language.values import constexpr, tensor, tuple, unwrap


def _public(owner: Any) -> list[str]:
    return [n for n in dir(owner) if not n.startswith("_")]


def _nearest(name: str, names: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name, sorted(set(names)), 1, 0.7)
    return found[0] if found else None


# Unsupported builtins of Python -> alternatives.
_BUILTINS = {
    "all": "use `tl.min(condition.to(tl.int32)) != 0`",
    "any": "use `tl.max(condition.to(tl.int32)) != 0`",
    "bool": "use `x != 0`",
    "complex": "kernels have no complex numbers: use two tiles",
    "dict": "use a tuple, or a named tuple",
    "divmod": "use `x // y` and `x % y`",
    "enumerate": "use `for i in range(n)`, or `tl.static_range(n)` to index a tuple",
    "map": "apply operators and functions to the whole tile",
    "pow": "use `x * x`, or `tl.exp2(y * tl.log2(x))` for floats",
    "round": "use `tl.extra.libdevice.rint(x)`, for floats",
    "set": "use a tuple",
    "str": "pass values to print after the string: `print('n =', n)`",
    "tuple": "use `(a, b)`, or a comprehension",
    "type": "`x.dtype` is the element type of a tile; `isinstance(x, tl.tensor)` tests for one",
    "zip": "use `for i in range(n)`, or `tl.static_range(n)` to index tuples",
}

_SUM_IN_A_LOOP = (
    "`tl.sum` takes a tile: for a tuple, use `for i in tl.static_range(n): total += x[i]`"
)


@suggests("unknown-name")
def unknown_name(mistake: Mistake) -> str | None:
    """An undefined name: assigned on another path, a name in `tl`, or misspelt."""
    name, frame = mistake.facts["name"], mistake.frame
    line = _assigned_before(frame.definition, name, getattr(mistake.node, "lineno", 0))
    if line:
        return f"`{name}` is assigned at line {line}, but not on every path to this use"
    if name == "sum" and (written := _sum_of_tuple(mistake)) is not None:
        return written
    if hasattr(tl, name) and not name.startswith("_"):
        return f"did you mean `tl.{name}`?"
    if name in _BUILTINS:
        return _BUILTINS[name]
    near = _nearest(name, [*frame.names, *frame.captured, *frame.globals])
    if near is not None:
        return f"did you mean `{near}`?"
    near = _nearest(name, _public(tl))
    return None if near is None else f"did you mean `tl.{near}`?"


def _sum_of_tuple(mistake: Mistake) -> str | None:
    """The alternative to Python's `sum` of a tuple or list, which is not a tile: `sum([a, b])`."""
    calls = [n for n in ast.walk(mistake.frame.definition) if isinstance(n, ast.Call) and n.args]
    added = next((call.args[0] for call in calls if call.func is mistake.node), None)
    match added:
        case ast.List(elts=[first, *others]) | ast.Tuple(elts=[first, *others]):
            terms = reduce(lambda left, right: ast.BinOp(left, ast.Add(), right), others, first)
            return f"use `{ast.unparse(terms)}`"
        case ast.ListComp() | ast.GeneratorExp():
            return _SUM_IN_A_LOOP
        case ast.Name(id=name) if isinstance(mistake.frame.names.get(name), tuple):
            return _SUM_IN_A_LOOP
        case _:
            return None


@suggests("global-variable")
def global_array(mistake: Mistake) -> str | None:
    """A global array."""
    name, value = mistake.facts["name"], mistake.facts["value"]
    return array_of_host(name) if hasattr(value, "__array__") else None


def array_of_host(name: str) -> str:
    return (
        f"`{name}` is a host array: pass it as an argument of the kernel, which is then a pointer, "
        "or pass its value, `.item()`"
    )


def _assigned_before(definition: ast.AST, name: str, line: int) -> int:
    """The first line before `line` that assigns the name; 0 if there is none."""
    lines = [
        node.lineno
        for node in ast.walk(definition)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    return min((n for n in lines if n < line), default=0)


@suggests("unknown-attribute")
def unknown_attribute(mistake: Mistake) -> str | None:
    """A misspelt attribute, or a function of `tl` used as an attribute of something else."""
    error = mistake.error
    if not isinstance(error, AttributeError) or error.name is None:
        return None
    owner, name = error.obj, error.name
    known = _missing_function(name) if owner is tl else _known_attribute(mistake, owner, name)
    if known is not None:
        return known
    near = _nearest(name, _public(owner))
    if near is not None:
        return f"did you mean `{near}`?"
    if owner is not tl and hasattr(tl, name):
        is_value = isinstance(owner, tensor)
        return f"did you mean `tl.{name}(…)`?" if is_value else f"did you mean `tl.{name}`?"
    return None


# Names in other libraries and languages -> the equivalent expression with `tl`.
_ELSEWHERE = {
    "all": _BUILTINS["all"],
    "any": _BUILTINS["any"],
    "atomic_sub": "use `tl.atomic_add(pointer, -value)`",
    "ceil_div": "use `tl.cdiv(a, b)`",
    "clip": "use `tl.clamp(x, low, high)`",
    "empty": "use `tl.zeros(shape, dtype)`",
    "eye": "use `tl.where(rows[:, None] == columns[None, :], 1.0, 0.0)`",
    "empty_like": "use `tl.zeros_like(x)`",
    "full_like": "use `tl.full(x.shape, value, x.dtype)`",
    "gelu": "use `0.5 * x * (1 + tl.erf(x * 0.70710678))`",
    "logical_and": "use `a & b`, with conditions",
    "logical_not": "use `not a`, or `~a`, with a condition",
    "logical_or": "use `a | b`, with conditions",
    "mean": "use `tl.sum(x, axis) / n`",
    "mod": "use `a % b`",
    "ones": "use `tl.full(shape, 1, dtype)`",
    "ones_like": "use `tl.full(x.shape, 1, x.dtype)`",
    "prod": "use `tl.reduce(x, axis, multiply)`, where `multiply` is a `@triton.jit` function",
    "relu": "use `tl.maximum(x, 0.0)`",
    "roll": "use `tl.gather(x, (tl.arange(0, n) + n - shift) % n, axis)`, for n elements",
    "scatter": "use `tl.store(pointer + indices, values, mask=…)`",
    "select": "use `tl.where(condition, a, b)`",
    "shared": "omit the declaration: the compiler allocates shared memory",
    "sign": "use `tl.where(x > 0, 1, tl.where(x < 0, -1, 0))`",
    "silu": "use `x * tl.sigmoid(x)`",
    "softplus": "use `tl.log(1 + tl.exp(x))`",
    "square": "use `x * x`",
    "transpose": "use `tl.trans(x)`, or `tl.permute(x, order)` for more than two axes",
}
for _names, _text in (
    (("inf", "infinity"), "use `float('inf')`"),
    (("nan",), "use `float('nan')`"),
    (("pi",), "define a global, `PI = tl.constexpr(3.14159265)`"),
    (("bmm", "einsum", "gemm", "matmul", "mm"), "use `tl.dot(a, b)`"),
    (("concat", "concatenate"), "use `tl.cat(a, b, dim=0)`"),
    (("stack",), "use `tl.join(a, b)`, which adds a last axis"),
    (("std", "var"), "compute it from the means of `x` and `x * x`, with `tl.sum`"),
    (("barrier", "sync", "syncthreads"), "omit it, or use `tl.debug_barrier()`"),
    (
        ("blockIdx", "block_id", "block_idx", "threadIdx", "thread_id", "thread_idx"),
        "use `tl.program_id(axis)`: kernels are written for programs, not threads",
    ),
):
    _ELSEWHERE.update(dict.fromkeys(_names, _text))


def _missing_function(name: str) -> str | None:
    """The alternative to a name that `tl` lacks."""
    if name in C_TYPES:
        return f"did you mean `tl.{C_TYPES[name]}`?"
    short = [n for n in _public(tl) if isinstance(t := getattr(tl, n), DType) and t.name == name]
    if short:
        return f"did you mean `tl.{short[0]}`?"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    device = {"is_inf": "isinf", "is_nan": "isnan"}.get(name, name)
    if device in _public(tl.extra.libdevice):
        return f"use `tl.extra.libdevice.{device}`, for floats"
    return None


def counterpart(name: str) -> str | None:
    """The equivalent, with `tl`, of a function of another library."""
    return f"use `tl.{name}`" if hasattr(tl, name) else _missing_function(name)


# Names of types in PyTorch and C -> names in `tl`.
C_TYPES = {
    "bool": "int1", "double": "float64", "float": "float32", "half": "float16", "int": "int32",
    "long": "int64", "short": "int16",
}  # fmt: skip
# Attributes of arrays that have to be passed to a kernel as arguments.
_EXTENTS = frozenset({"nelement", "ndim", "numel", "shape", "size", "stride", "strides"})
# Other attributes of arrays in NumPy and PyTorch -> alternatives for tiles.
_OF_ARRAYS = {
    "all": "use `tl.min({x}.to(tl.int32), axis) != 0`",
    "any": "use `tl.max({x}.to(tl.int32), axis) != 0`",
    "astype": "use `{x}.to(dtype)`, as in `{x}.to(tl.float32)`",
    "clamp": "use `tl.clamp({x}, low, high)`",
    "clip": "use `tl.clamp({x}, low, high)`",
    "copy": "omit it: tiles are immutable",
    "clone": "omit it: tiles are immutable",
    "contiguous": "omit it: a tile is a value, not memory",
    "dot": "use `tl.dot({x}, b)`",
    "expand": "use `tl.broadcast_to({x}, shape)`",
    "flatten": "use `{x}.ravel()`",
    "masked_fill": "use `tl.where(mask, value, {x})`",
    "matmul": "use `tl.dot({x}, b)`",
    "mean": "use `tl.sum({x}, axis) / n`",
    "mm": "use `tl.dot({x}, b)`",
    "ndim": "use `len({x}.shape)`",
    "pow": "use `{x} * {x}`, or `tl.exp2(y * tl.log2({x}))` for floats",
    "prod": "use `tl.reduce({x}, axis, multiply)`, where `multiply` is a `@triton.jit` function",
    "repeat": "use `tl.broadcast_to({x}, shape)`",
    "size": "use `{x}.numel`, or `{x}.shape[axis]` for one axis",
    "squeeze": "use `tl.reshape({x}, shape)`",
    "t": "use `{x}.T`",
    "std": "compute it from the means of `{x}` and `{x} * {x}`, with `tl.sum`",
    "transpose": "use `tl.trans({x})`, or `tl.permute({x}, order)` for more than two axes",
    "type": "use `{x}.to(dtype)`, as in `{x}.to(tl.float32)`",
    "unsqueeze": "use `tl.expand_dims({x}, axis)`",
    "var": "compute it from the means of `{x}` and `{x} * {x}`, with `tl.sum`",
}
_OF_LISTS = frozenset({"append", "extend", "insert", "pop", "remove", "reverse", "sort"})


def _known_attribute(mistake: Mistake, owner: Any, name: str) -> str | None:
    """The alternative to an attribute that arrays, lists or modules of other libraries have."""
    if isinstance(owner, tuple) and name in _OF_LISTS:
        return (
            "lists are immutable in kernels: use `values = values + [value]` (in a loop only if it "
            "is unrolled, `tl.static_range`), or a tile"
        )
    operand = next((o for o in mistake.tensors if o.value is owner), None)
    if operand is None:
        return None
    if operand.is_pointer and name in _EXTENTS:
        return _pass_extents(operand)
    x = operand.bracketed
    if name in C_TYPES:
        return f"use `{x}.to(tl.{C_TYPES[name]})`"
    if name in _OF_ARRAYS:
        return _OF_ARRAYS[name].format(x=x)
    if name.endswith("_"):
        return f"tiles are immutable: assign a new one, as in `{x} = {x} + 1`"
    return None


@suggests("unpacked-value")
def unpacked_shape(mistake: Mistake) -> str | None:
    """`m, n = x_ptr.shape`."""
    match getattr(mistake.node, "value", None):
        case ast.Attribute(value=owner, attr="shape"):
            value = mistake.frame.values.get(owner)
            if value is None and isinstance(owner, ast.Name):
                value = mistake.frame.names.get(owner.id)
            found = Operand(owner, value)
            return _pass_extents(found) if found.is_pointer else None
        case _:
            return None


def _pass_extents(pointer: Operand) -> str:
    return (
        f"`{pointer.text}` is a pointer to the first element, without a shape: pass extents and "
        "strides to the kernel as arguments"
    )


@suggests("subscripted-function")
def subscripted_function(mistake: Mistake) -> str | None:
    """`x.to[tl.float16]`."""
    if not isinstance(mistake.node, ast.Subscript):
        return None
    function, arguments = mistake.node.value, mistake.node.slice
    shown = arguments.elts if isinstance(arguments, ast.Tuple) else [arguments]
    return f"call the function: `{ast.unparse(ast.Call(function, shown, []))}`"


@suggests("length-of-tensor")
def length(mistake: Mistake) -> str | None:
    pointers = mistake.pointers
    if pointers:
        return _pass_extents(pointers[0])
    tiles = [o for o in mistake.tensors if o.shape]
    return f"use `{tiles[0].bracketed}.shape[0]`" if tiles else None


@suggests("tuple-index")
def shape_of_pointer(mistake: Mistake) -> str | None:
    """`x_ptr.shape[0]`."""
    match mistake.node:
        case ast.Subscript(value=ast.Attribute(value=owner, attr="shape")):
            found = Operand(owner, mistake.frame.values.get(owner))
            return _pass_extents(found) if found.is_pointer else None
        case _:
            return None


@suggests("not-callable")
def conversion(mistake: Mistake) -> str | None:
    """`tl.float32(n)`."""
    if not isinstance(mistake.facts["value"], DType) or not isinstance(mistake.node, ast.Call):
        return None
    x = mistake.tensors[0].bracketed if mistake.tensors else "x"
    return f"use `{x}.to({ast.unparse(mistake.node.func)})`"


@suggests("one-value")
def extremum_of_tile(mistake: Mistake) -> str:
    name, x = mistake.facts["function"].__name__, mistake.tensors[0].text
    return f"`tl.{name}({x}, axis)` reduces a tile; `tl.{name}imum(a, b)` compares two"


_OF_HOST_ARRAYS = frozenset({"cupy", "jax", "numpy", "scipy", "torch"})


@suggests("needs-constant")
def extremum_of_two(mistake: Mistake) -> str | None:
    """`tl.max(x, y)`, `tl.max(x, 0.0)` and `x.max(0.0)`."""
    match mistake.node:
        case ast.Call(func=ast.Attribute(value=owner, attr="max" | "min" as name), args=args):
            of_tile = isinstance(mistake.frame.values.get(owner), tensor)
            pair = [Operand(n, mistake.frame.values.get(n)) for n in [owner] * of_tile + args]
        case _:
            return None
    if len(pair) != 2 or not (pair[1].is_tensor or isinstance(unwrap(pair[1].value), float)):
        return None
    a, b = (o.text for o in pair)
    return f"`tl.{name}imum({a}, {b})` compares two; `tl.{name}(x, axis)` reduces a tile"


@suggests("plain-function")
def plain_function(mistake: Mistake) -> str:
    """A plain Python function instead of a `@jit` function."""
    function = mistake.facts["function"]
    name = function.__name__
    if function.__module__ != mistake.frame.globals.get("__name__"):
        library = (function.__module__ or "").partition(".")[0]
        known = counterpart(name)
        if known is not None:
            return known
        if library in _OF_HOST_ARRAYS:
            return f"`{name}` of {library} takes arrays, not tiles: use a function of `tl`"
    return (
        f"`{name}` is a Python function: decorate it with `@triton.jit`, or with "
        "`@triton.constexpr_function` if it computes with compile-time values"
    )


@suggests("arguments")
def wrong_arguments(mistake: Mistake) -> str | None:
    """Arguments that do not match the function's parameters."""
    if not isinstance(mistake.node, ast.Call):
        return None
    function = mistake.frame.values.get(mistake.node.func)
    function = function.value if isinstance(function, constexpr) else function
    if not callable(function):
        return None
    names = [n for n in _parameters(function) if n not in ("_semantic", "_generator", "self")]
    unknown = [k.arg for k in mistake.node.keywords if k.arg and k.arg not in names]
    near = [n for k in unknown if (n := _parameter_like(k, names)) is not None]
    if near:
        return f"did you mean {' and '.join(f'`{n}=`' for n in near)}?"
    if function is tl.arange and (advice := _as_arange(mistake.node)) is not None:
        return advice
    if function in _RANDOM:
        called = ast.unparse(mistake.node.func)
        return f"use `{called}(seed, offsets)`: it returns a number for each offset"
    if (advice := _without_list(function, mistake.node)) is not None:
        return advice
    return f"the parameters of {ast.unparse(mistake.node.func)} are ({', '.join(names)})"


# Functions of random numbers, which take a shape in NumPy and PyTorch.
_RANDOM = (tl.rand, tl.randn)
# Parameters of functions in NumPy and PyTorch -> in `tl`.
_KEYWORDS = {
    "axis": "dim", "default": "other", "dim": "axis", "fill_value": "other",
    "reverse": "descending",
}  # fmt: skip


def _parameter_like(keyword: str, names: list[str]) -> str | None:
    """The parameter that a keyword resembles."""
    alike = _KEYWORDS.get(keyword)
    return alike if alike in names else _nearest(keyword, names)


def _as_arange(call: ast.Call) -> str | None:
    """`arange(n)`, `arange(start, end, step)` and `arange(…, dtype=…)`, as NumPy has them."""
    of_type = next((k.value for k in call.keywords if k.arg == "dtype"), None)
    if of_type is not None:
        rest = [k for k in call.keywords if k.arg != "dtype"]
        plain = ast.unparse(ast.Call(call.func, call.args, rest))
        return f"the result has type int32: use `{plain}.to({ast.unparse(of_type)})`"
    match [ast.unparse(a) for a in call.args]:
        case [end]:
            return f"use `tl.arange(0, {end})`"
        case ["0", _, step]:
            return f"use `tl.arange(0, n) * {step}`, where n is the number of elements"
        case [start, _, step]:
            return f"use `{start} + tl.arange(0, n) * {step}`, where n is the number of elements"
        case _:
            return None


def _without_list(function: Any, call: ast.Call) -> str | None:
    """`cat([x, y], dim=0)`, where the tiles are separate arguments."""
    match call.args:
        case [ast.List(elts=items) | ast.Tuple(elts=items)]:
            separate = ast.Call(call.func, items, call.keywords)
        case _:
            return None
    try:
        inspect.signature(function).bind(*items, **{k.arg: k for k in call.keywords if k.arg})
    except (TypeError, ValueError):
        return None
    return f"pass the items as separate arguments: `{ast.unparse(separate)}`"


def _parameters(function: Any) -> list[str]:
    function = function.__init__ if is_aggregate_class(function) else function
    try:
        signature = getattr(function, "signature", None) or inspect.signature(function)
    except (TypeError, ValueError):
        return []
    return list(signature.parameters)
