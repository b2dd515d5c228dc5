"""Suggestions for Python constructs: compile-time values, control flow, syntax."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from inspect import signature
from typing import Any

import tilewright.language as tl
from tilewright.base.codes import Code
from tilewright.frontend.ast_to_ir.advice.names import C_TYPES, counterpart, extremum_of_two
from tilewright.frontend.ast_to_ir.explain import Mistake, print_values, suggests
from tilewright.frontend.source import JITCallable
from tilewright.ir.types import DType, Pointer, shape_of
from tilewright.language.values import constexpr, is_builtin, tensor, tuple, unwrap
from tilewright.ops.arith import Constant

# -- compile time ----------------------------------------------------------------------------------


@suggests("needs-constant")
def needs_constant(mistake: Mistake) -> str | None:
    """A run-time value, or one of the wrong kind, where a compile-time value is required."""
    frame = mistake.frame
    names = [n.id for n in ast.walk(mistake.node) if isinstance(n, ast.Name)]
    for name in dict.fromkeys(names):
        value = frame.names.get(name)
        if isinstance(value, constexpr) and hasattr(value.value, "item"):
            kind = type(value.value)
            return (
                f"`{name}` is a {kind.__module__}.{kind.__qualname__}: convert it, `{name}=int(…)`"
            )
        if not isinstance(value, tensor) or value.handle.type != value.type:
            continue
        if name in frame.fn.arg_names and value.handle.op is None:
            if not isinstance(value.type, Pointer):
                return (
                    f"`{name}` is a run-time value: make it a compile-time "
                    f"parameter, `def {frame.fn.__name__}(…, {name}: tl.constexpr)`"
                )
        elif _is_loop_index(frame.definition, name):
            return (
                f"`{name}` is the index of a run-time loop: `for {name} in tl.static_range(…)` "
                "unrolls the loop and makes the index a compile-time value"
            )
        elif _constant(value):
            return f"`{name}` is a run-time variable: write `{name}: tl.constexpr = …`"
        elif value.type is value.dtype:
            return (
                f"`{name}` is computed at run time: compute it from `tl.constexpr` "
                f"parameters{', with `//`' if value.dtype.is_floating() else ''}"
            )
    return None


def _is_loop_index(definition: ast.AST, name: str) -> bool:
    loops = [node for node in ast.walk(definition) if isinstance(node, ast.For)]
    return any(isinstance(n.target, ast.Name) and n.target.id == name for n in loops)


def _constant(value: tensor) -> bool:
    """Whether a value is a constant that became a tensor by assignment to a local variable."""
    return isinstance(value.handle.op, Constant) and value.type is value.dtype


@suggests("needs-constant")
def float_for_int(mistake: Mistake) -> str | None:
    """A compile-time float for an int: `BLOCK / 2`, or a launch with `BLOCK=128.0`."""
    number = mistake.facts.get("value")
    if not isinstance(number, float) or extremum_of_two(mistake) is not None:
        return None
    values = mistake.frame.values
    for node in ast.walk(mistake.node):
        if not isinstance(node, ast.expr) or unwrap(values.get(node)) is not number:
            continue
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                whole = f"{ast.unparse(left)} // {ast.unparse(right)}"
                return f"`/` returns a float: use `{whole}`"
            case ast.Name(id=name) if name in mistake.frame.fn.arg_names and number.is_integer():
                return f"`{name}` is the float {number}: pass `{name}={int(number)}`"
            case _:
                return f"`{ast.unparse(node)}` is a float: an int is required"
    return None


@suggests("extent")
def number_of_elements(mistake: Mistake) -> str | None:
    """`x.reshape(4, 4)` of eight elements."""
    shape, tiles = mistake.facts["shape"], [o for o in mistake.tensors if o.shape]
    if not tiles or any(d <= 0 for d in shape):
        return None
    return (
        f"`{tiles[0].text}` has {math.prod(tiles[0].shape)} elements, and the shape "
        f"{list(shape)} has {math.prod(shape)}"
    )


@suggests("extent")
def derived_extent(mistake: Mistake) -> str | None:
    """`x.reshape(-1, 8)`."""
    shape, tiles = mistake.facts["shape"], [o for o in mistake.tensors if o.shape]
    known = math.prod(d for d in shape if d > 0)
    if not tiles or [d for d in shape if d <= 0] != [-1] or math.prod(tiles[0].shape) % known:
        return None
    extents = [math.prod(tiles[0].shape) // known if d == -1 else d for d in shape]
    return f"extents are not inferred: write {', '.join(map(str, extents))}"


@suggests("run-time-text")
def run_time_text(mistake: Mistake) -> str | None:
    """An f-string with run-time values."""
    if not isinstance(mistake.node, ast.JoinedStr):
        return None
    parts = [p for p in mistake.node.values if isinstance(p, ast.FormattedValue)]
    values = ", ".join(ast.unparse(p.value) for p in parts)
    for statement in ast.walk(mistake.frame.definition):
        if isinstance(statement, ast.Assert) and statement.msg is mistake.node:
            condition = ast.unparse(statement.test)
            return (
                "an assertion's message cannot contain run-time values: use `assert "
                f"{condition}, {condition!r}`"
            )
    return print_values(values)


@suggests("constexpr-reassigned")
def constexpr_reassigned(mistake: Mistake) -> str:
    name = mistake.facts["name"]
    return (
        f"`{name}` has one value in the whole function, including unrolled iterations: repeat the "
        f"expression, or move the loop body to a function with a parameter `{name}: tl.constexpr`"
    )


@suggests("compile-time-function")
def number_of_python(mistake: Mistake) -> str | None:
    """`int(x)`, `np.float32(x)` and `math.sqrt(x)` of a tensor; a launch within a kernel."""
    if isinstance(mistake.node, ast.Call) and isinstance(mistake.node.func, ast.Subscript):
        called = ast.unparse(mistake.node.func.value)
        return f"kernels cannot launch kernels: call the function, `{called}(…)`"
    name = getattr(mistake.facts["function"], "__name__", "")
    kinds = {"int": "tl.int32", "float": "tl.float32"}
    operand = mistake.tensors[0] if mistake.tensors else None
    if name in kinds and operand is not None:
        return f"use `{operand.bracketed}.to({kinds[name]})`"
    if operand is not None and isinstance(getattr(tl, name, None), DType):
        return f"use `{operand.bracketed}.to(tl.{name})`"
    return counterpart(name)


@suggests("print-prefix")
def text_first(mistake: Mistake) -> str | None:
    """`tl.device_print` without a text."""
    values = mistake.tensors or mistake.operands
    if not values:
        return None
    text = values[0].text
    return f"the first argument is a string: use `tl.device_print({text + ' ='!r}, {text})`"


@suggests("combine-function")
def combine_function(mistake: Mistake) -> str:
    """A Python function, or one of `tl`, as the combine function."""
    name = getattr(mistake.facts["function"], "__name__", "")
    found = getattr(tl, name, None)
    if callable(found) and is_builtin(found) and "axis" in signature(found).parameters:
        return f"use `tl.{name}(x, axis)`"
    return "define a function of two elements at module level, with `@triton.jit`"


# -- suggestions that depend on the code only ------------------------------------------------------

_INSTEAD: dict[Code, str] = {
    "kernel-result": "pass a pointer and store the value, `tl.store(ptr, value)`: only functions "
    "that kernels call may return values",
    "invert": "`~` takes integers: negate a condition with `not`",
    "mask-type": "a mask has type int1: use a comparison, `mask=offsets < n` or `mask=m != 0`",
    "membership": "compare with each element: `(x == a) | (x == b)`",
    "matmul-operator": "use `tl.dot(a, b)`",
    "nested-comprehension": "nest one comprehension inside the other",
    "other-without-mask": "`other` replaces masked-off elements: pass `mask=offsets < n`, or omit "
    "`other`",
    "power-of-two": "use the next power of two, and mask off the elements beyond the end: "
    "`mask=offsets < n`",
    "several-targets": "write one assignment per line",
    "tile-condition": "a branch requires a scalar condition: select elements with `tl.where`, or "
    "reduce the condition, as in `tl.max(condition.to(tl.int32)) != 0`",
    "too-many-elements": "use a smaller tile, with a loop or with more programs",
}


def _always(text: str) -> Callable[[Mistake], str]:
    return lambda mistake: text


for _code, _text in _INSTEAD.items():
    suggests(_code)(_always(_text))

_SYNTAX = {
    "Lambda": "define a function at module level, with `@triton.jit`",
    "ClassDef": "define it at module level, with `@tl.core._aggregate`",
    "Dict": "use a tuple, or a named tuple",
    "Set": "use a tuple",
    "Delete": "omit it: values are not kept after their last use",
    "Try": "kernels cannot raise exceptions: use `tl.device_assert`",
    "Raise": "use `tl.device_assert`, or `tl.static_assert` for compile-time conditions",
    "Match": "use `if` and `elif`",
    "Import": "import at module level",
    "ImportFrom": "import at module level",
    "Global": "pass values as arguments, and return them",
    "Nonlocal": "pass values as arguments, and return them",
    "Yield": "return a tuple",
}


@suggests("comprehension-source")
def comprehension_source(mistake: Mistake) -> str:
    """A comprehension over a tile, or over a range."""
    if isinstance(mistake.facts["source"], tensor):
        return "apply operators and functions to the whole tile"
    return "iterate over a tuple, `for i in (0, 1, 2, 3)`, or use a loop over `tl.static_range(n)`"


@suggests("tile-choice")
def tile_choice(mistake: Mistake) -> str | None:
    """`a if condition else b` with a tile as the condition."""
    match mistake.node:
        case ast.IfExp(test=test, body=a, orelse=b):
            return f"use `tl.where({', '.join(map(ast.unparse, (test, a, b)))})`"
        case _:
            return None


@suggests("loop-iterable", "iterated-tensor")
def loop_iterable(mistake: Mistake) -> str:
    if any(o.shape for o in mistake.tensors):
        return "apply functions to the whole tile: `tl.sum(x)` returns the sum of its elements"
    return "use `for i in range(n)`"


@suggests("context-manager")
def context_manager(mistake: Mistake) -> str:
    """`with torch.no_grad():`."""
    return "omit it, or enter it around the launch: it has no effect on a kernel"


@suggests("tensor-class")
def tensor_class(mistake: Mistake) -> str:
    """`tl.tensor([1.0, 2.0])`."""
    return "create a tile with `tl.full` or `tl.arange`, or load it from memory"


@suggests("unpacked-value")
def unpacked_value(mistake: Mistake) -> str | None:
    """`m, i = x.max(0)`, and a tile as if it were a tuple."""
    match getattr(mistake.node, "value", None):
        case ast.Call(func=ast.Attribute(attr=name)) as reduction:
            function: Any = getattr(tl, name, None)
            if is_builtin(function) and "return_indices" in signature(function).parameters:
                inside = ast.unparse(reduction).removesuffix(")")
                return f"use `{inside}, return_indices=True)`, which returns both"
        case _:
            pass
    value = mistake.facts["value"]
    if not isinstance(value, tensor) or not shape_of(value.type):
        return None
    return "a tile is one value: `tl.split(x)` returns the two halves of a tile of shape (…, 2)"


@suggests("not-a-type")
def not_a_type(mistake: Mistake) -> str | None:
    """An element type of Python or of another library, or its name, instead of one of `tl`."""
    value = mistake.facts["value"]
    if isinstance(value, int) and isinstance(mistake.node, ast.Call):
        extents = ", ".join(ast.unparse(a) for a in mistake.node.args)
        function = ast.unparse(mistake.node.func)
        if function.endswith("zeros"):  # `zeros(m, n)`, as PyTorch has it
            return f"a shape is a tuple: use `{function}(({extents}), tl.float32)`"
    # `np.float16` is a class, `torch.float16` and NumPy's dtypes are named by their text.
    text = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    name = C_TYPES.get(text, text.removeprefix("torch."))
    found = [n for n in dir(tl) if isinstance(getattr(tl, n), DType)]
    named = [n for n in found if name in (n, getattr(tl, n).name)]
    return f"use `tl.{named[0]}`" if named else "use a type of `tl`, such as `tl.float32`"


@suggests("loop-bounds")
def integer_bounds(mistake: Mistake) -> str | None:
    """`range(n / 2)`, and bounds that are floats."""
    arguments = getattr(getattr(mistake.node, "iter", None), "args", [])
    for bound in arguments:
        if isinstance(bound, ast.BinOp) and isinstance(bound.op, ast.Div):
            whole = ast.unparse(ast.BinOp(bound.left, ast.FloorDiv(), bound.right))
            return f"`/` returns a float: use `{whole}`"
    floats = [o for o in mistake.tensors if o.value.dtype.is_floating()]
    return f"use `{floats[0].bracketed}.to(tl.int32)`" if floats else None


@suggests("syntax")
def other_syntax(mistake: Mistake) -> str | None:
    """Alternatives to unsupported statements and expressions."""
    return _SYNTAX.get(mistake.facts["kind"])


@suggests("not-a-tensor")
def not_a_tensor(mistake: Mistake) -> str | None:
    """Another kind of value where a tensor or a number is required."""
    value = mistake.facts["value"]
    if isinstance(value, tuple):
        return "a list is a tuple, not a tile: compute the tile, or load it from memory"
    if hasattr(value, "__array__"):
        return array_of_host(mistake)
    if isinstance(value, str):
        return "use `name: tl.constexpr = …` for compile-time values that are not numbers"
    if isinstance(value, tl.range):
        return "use `for i in range(n)`: a range is not a value in kernels"
    if isinstance(value, JITCallable):
        return "call the function by its own name, or use `name: tl.constexpr = …`"
    return None


def array_of_host(mistake: Mistake) -> str:
    """An array of NumPy or PyTorch, created in the kernel or a global of its module."""
    match getattr(mistake.node, "value", mistake.node):
        case ast.Call(func=ast.Attribute(attr=name)) if (known := counterpart(name)) is not None:
            return known
        case _:
            return "pass the array as an argument of the kernel, which is then a pointer"
