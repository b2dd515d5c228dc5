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
    "all": "of a tile of conditions, `tl.min(condition.to(tl.int32)) != 0`",
    "any": "of a tile of conditions, `tl.max(condition.to(tl.int32)) != 0`",
    "bool": "of a run-time value, `x != 0`",
    "complex": "kernels have no complex numbers: use two tiles",
    "dict": "use a tuple, or a named tuple",
    "divmod": "`x // y` and `x % y`",
    "enumerate": "write `for i in range(n)`, or `tl.static_range(n)` to index a tuple",
    "map": "operators and functions take a whole tile",
    "pow": "`x * x`; of floats, `tl.exp2(y * tl.log2(x))`",
    "round": "of floats, `tl.extra.libdevice.rint(x)`",
    "set": "use a tuple",
    "str": "print takes values after its text: `print('n =', n)`",
    "tuple": "write `(a, b)`, or a comprehension",
    "type": "`x.dtype` is the element type of a tile; `isinstance(x, tl.tensor)` tests for one",
    "zip": "write `for i in range(n)`, or `tl.static_range(n)` to index tuples",
}

_SUM_IN_A_LOOP = "`tl.sum` takes a tile; of a tuple, `for i in tl.static_range(n): total += x[i]`"


@suggests("unknown-name")
def unknown_name(mistake: Mistake) -> str | None:
    """An undefined name: assigned on another path, a name in `tl`, or misspelt."""
    name, frame = mistake.facts["name"], mistake.frame
    line = _assigned_before(frame.definition, name, getattr(mistake.node, "lineno", 0))
    if line:
        return f"`{name}` is assigned at line {line}, but not on every path to here"
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
            return f"of a few values, `{ast.unparse(terms)}`"
        case ast.ListComp() | ast.GeneratorExp():
            return _SUM_IN_A_LOOP
        case ast.Name(id=name) if isinstance(mistake.frame.names.get(name), tuple):
            return _SUM_IN_A_LOOP
        case _:
            return None


@suggests("global-variable")
def global_array(mistake: Mistake) -> str | None:
    """An array that the kernel takes from its module."""
    name, value = mistake.facts["name"], mistake.facts["value"]
    return array_of_host(name) if hasattr(value, "__array__") else None


def array_of_host(name: str) -> str:
    return (
        f"`{name}` is an array of the host: pass it as an argument, which is a pointer in the "
        "kernel, or its value as a number, `.item()`"
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
        return f"it is a function: `tl.{name}(…)`" if is_value else f"did you mean `tl.{name}`?"
    return None


# Names that other libraries and languages have where `tl` has an expression -> that expression.
_ELSEWHERE = {
    "all": _BUILTINS["all"],
    "any": _BUILTINS["any"],
    "atomic_sub": "`tl.atomic_add(pointer, -value)`",
    "ceil_div": "`tl.cdiv(a, b)`",
    "clip": "`tl.clamp(x, low, high)`",
    "empty": "`tl.zeros(shape, dtype)`",
    "eye": "`tl.where(rows[:, None] == columns[None, :], 1.0, 0.0)`",
    "empty_like": "`tl.zeros_like(x)`",
    "full_like": "`tl.full(x.shape, value, x.dtype)`",
    "gelu": "`0.5 * x * (1 + tl.erf(x * 0.70710678))`",
    "logical_and": "`a & b` of conditions",
    "logical_not": "`not a`, or `~a`, of a condition",
    "logical_or": "`a | b` of conditions",
    "mean": "`tl.sum(x, axis) / n`",
    "mod": "`a % b`",
    "ones": "`tl.full(shape, 1, dtype)`",
    "ones_like": "`tl.full(x.shape, 1, x.dtype)`",
    "prod": "`tl.reduce(x, axis, multiply)`, where `multiply` is a `@triton.jit` function",
    "relu": "`tl.maximum(x, 0.0)`",
    "roll": "`tl.gather(x, (tl.arange(0, n) + n - shift) % n, axis)`, of n elements",
    "scatter": "`tl.store(pointer + indices, values, mask=…)`",
    "select": "`tl.where(condition, a, b)`",
    "shared": "there is nothing to declare: the compiler places tiles in shared memory",
    "sign": "`tl.where(x > 0, 1, tl.where(x < 0, -1, 0))`",
    "silu": "`x * tl.sigmoid(x)`",
    "softplus": "`tl.log(1 + tl.exp(x))`",
    "square": "`x * x`",
    "transpose": "`tl.trans(x)`; of more axes, `tl.permute(x, order)`",
}
for _names, _text in (
    (("inf", "infinity"), "`float('inf')`"),
    (("nan",), "`float('nan')`"),
    (("pi",), "a global of the module, `PI = tl.constexpr(3.14159265)`"),
    (("bmm", "einsum", "gemm", "matmul", "mm"), "the product of two matrices is `tl.dot(a, b)`"),
    (("concat", "concatenate"), "`tl.cat(a, b, dim=0)`"),
    (("stack",), "`tl.join(a, b)`, along a new last axis"),
    (("std", "var"), "from the mean of squares and the square of the mean, each by `tl.sum`"),
    (("barrier", "sync", "syncthreads"), "`tl.debug_barrier()`; tiles are complete without it"),
    (
        ("blockIdx", "block_id", "block_idx", "threadIdx", "thread_id", "thread_idx"),
        "`tl.program_id(axis)` numbers the programs; threads have no names: functions take tiles",
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
        return f"`tl.extra.libdevice.{device}`, of floats"
    return None


def counterpart(name: str) -> str | None:
    """What kernels have instead of a function of another library."""
    return f"kernels have `tl.{name}`" if hasattr(tl, name) else _missing_function(name)


# Names of types in PyTorch and C -> names in `tl`.
C_TYPES = {
    "bool": "int1", "double": "float64", "float": "float32", "half": "float16", "int": "int32",
    "long": "int64", "short": "int16",
}  # fmt: skip
# Attributes of arrays that have to be passed to a kernel as arguments.
_EXTENTS = frozenset({"nelement", "ndim", "numel", "shape", "size", "stride", "strides"})
# Other attributes of arrays in NumPy and PyTorch -> alternatives for tiles.
_OF_ARRAYS = {
    "all": "`tl.min({x}.to(tl.int32), axis) != 0`",
    "any": "`tl.max({x}.to(tl.int32), axis) != 0`",
    "astype": "`{x}.to(dtype)`, as in `{x}.to(tl.float32)`",
    "clamp": "`tl.clamp({x}, low, high)`",
    "clip": "`tl.clamp({x}, low, high)`",
    "copy": "a tile does not change, so it needs no copy",
    "clone": "a tile does not change, so it needs no copy",
    "contiguous": "a tile is a value: there is nothing to make contiguous",
    "dot": "`tl.dot({x}, b)`",
    "expand": "`tl.broadcast_to({x}, shape)`",
    "flatten": "`{x}.ravel()`",
    "masked_fill": "`tl.where(mask, value, {x})`",
    "matmul": "`tl.dot({x}, b)`",
    "mean": "`tl.sum({x}, axis) / n`",
    "mm": "`tl.dot({x}, b)`",
    "ndim": "`len({x}.shape)`",
    "pow": "`{x} * {x}`; of floats, `tl.exp2(y * tl.log2({x}))`",
    "prod": "`tl.reduce({x}, axis, multiply)`, where `multiply` is a `@triton.jit` function",
    "repeat": "`tl.broadcast_to({x}, shape)`",
    "size": "`{x}.numel`; of one axis, `{x}.shape[axis]`",
    "squeeze": "`tl.reshape({x}, shape)`",
    "t": "`{x}.T`",
    "std": "the root of the mean of squares less the square of the mean, each by `tl.sum`",
    "transpose": "`tl.trans({x})`; of more axes, `tl.permute({x}, order)`",
    "type": "`{x}.to(dtype)`, as in `{x}.to(tl.float32)`",
    "unsqueeze": "`tl.expand_dims({x}, axis)`",
    "var": "the mean of squares less the square of the mean, each by `tl.sum`",
}
_OF_LISTS = frozenset({"append", "extend", "insert", "pop", "remove", "reverse", "sort"})


def _known_attribute(mistake: Mistake, owner: Any, name: str) -> str | None:
    """The alternative to an attribute that arrays, lists or modules of other libraries have."""
    if isinstance(owner, tuple) and name in _OF_LISTS:
        return (
            "a list is a tuple here and does not change: write `values = values + [value]`, in a "
            "loop only if it is unrolled (`tl.static_range`), or keep the values in a tile"
        )
    operand = next((o for o in mistake.tensors if o.value is owner), None)
    if operand is None:
        return None
    if operand.is_pointer and name in _EXTENTS:
        return _pass_extents(operand)
    x = operand.bracketed
    if name in C_TYPES:
        return f"`{x}.to(tl.{C_TYPES[name]})`"
    if name in _OF_ARRAYS:
        return _OF_ARRAYS[name].format(x=x)
    if name.endswith("_"):
        return f"a tile does not change: assign a new one, as in `{x} = {x} + 1`"
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
        f"`{pointer.text}` is a pointer to the first element, without a length: pass lengths and "
        "strides to the kernel as arguments"
    )


@suggests("subscripted-function")
def subscripted_function(mistake: Mistake) -> str | None:
    """`x.to[tl.float16]`."""
    if not isinstance(mistake.node, ast.Subscript):
        return None
    function, arguments = mistake.node.value, mistake.node.slice
    shown = arguments.elts if isinstance(arguments, ast.Tuple) else [arguments]
    return f"it is a function: `{ast.unparse(ast.Call(function, shown, []))}`"


@suggests("length-of-tensor")
def length(mistake: Mistake) -> str | None:
    pointers = mistake.pointers
    if pointers:
        return _pass_extents(pointers[0])
    tiles = [o for o in mistake.tensors if o.shape]
    return f"`{tiles[0].bracketed}.shape[0]`" if tiles else None


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
    return f"`{x}.to({ast.unparse(mistake.node.func)})`"


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
            return f"`{name}` of {library} computes with arrays, not with tiles of a kernel"
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
        return f"`{called}(seed, offsets)` has a number for each of a tile of offsets"
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
    """The parameter that a keyword is taken for."""
    alike = _KEYWORDS.get(keyword)
    return alike if alike in names else _nearest(keyword, names)


def _as_arange(call: ast.Call) -> str | None:
    """`arange(n)`, `arange(start, end, step)` and `arange(…, dtype=…)`, as NumPy has them."""
    of_type = next((k.value for k in call.keywords if k.arg == "dtype"), None)
    if of_type is not None:
        rest = [k for k in call.keywords if k.arg != "dtype"]
        plain = ast.unparse(ast.Call(call.func, call.args, rest))
        return f"a range is of int32: `{plain}.to({ast.unparse(of_type)})`"
    match [ast.unparse(a) for a in call.args]:
        case [end]:
            return f"`tl.arange(0, {end})`"
        case ["0", _, step]:
            return f"a step is a factor: `tl.arange(0, n) * {step}`, with the number of elements n"
        case [start, _, step]:
            return (
                f"a step is a factor: `{start} + tl.arange(0, n) * {step}`, with the number of "
                "elements n"
            )
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
    return f"the items are separate arguments: `{ast.unparse(separate)}`"


def _parameters(function: Any) -> list[str]:
    function = function.__init__ if is_aggregate_class(function) else function
    try:
        signature = getattr(function, "signature", None) or inspect.signature(function)
    except (TypeError, ValueError):
        return []
    return list(signature.parameters)
