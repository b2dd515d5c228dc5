"""What may help against a mistake: one rule a kind of mistake, see `explain.suggests`."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import types
from collections.abc import Iterable
from typing import Any

import tilewright.language as tl
from tilewright.frontend.ast_to_ir.explain import Mistake, Operand, suggests
from tilewright.ir.types import DType, Pointer
from tilewright.language.aggregate import is_aggregate_class
from tilewright.language.semantic.context import IncompatibleTypeErrorImpl
from tilewright.language.semantic.convert import common_shape
from tilewright.language.values import constexpr, is_builtin, tensor
from tilewright.ops.arith import Constant

# -- names -----------------------------------------------------------------------------------------


def _public(owner: Any) -> list[str]:
    return [n for n in dir(owner) if not n.startswith("_")]


def _nearest(name: str, names: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name, sorted(set(names)), 1, 0.7)
    return found[0] if found else None


@suggests
def unknown_name(mistake: Mistake) -> str | None:
    """A name that nothing is bound to: assigned on another way, of `tl`, or misspelt."""
    found = re.match(r"(\w+) is not defined", mistake.message)
    if not isinstance(mistake.error, NameError) or found is None:
        return None
    name, frame = found[1], mistake.frame
    line = _assigned_before(frame.definition, name, getattr(mistake.node, "lineno", 0))
    if line:
        return f"`{name}` is assigned at line {line}, but not on every way to here"
    if hasattr(tl, name) and not name.startswith("_"):
        return f"did you mean `tl.{name}`?"
    near = _nearest(name, [*frame.names, *frame.captured, *frame.globals])
    if near is not None:
        return f"did you mean `{near}`?"
    near = _nearest(name, _public(tl))
    return None if near is None else f"did you mean `tl.{near}`?"


def _assigned_before(definition: ast.AST, name: str, line: int) -> int:
    """The first line before `line` on which the name is assigned, 0 if there is none."""
    lines = [
        node.lineno
        for node in ast.walk(definition)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    return min((n for n in lines if n < line), default=0)


@suggests
def unknown_attribute(mistake: Mistake) -> str | None:
    """A misspelt attribute, or a function of `tl` looked for elsewhere."""
    error = mistake.error
    if not isinstance(error, AttributeError) or error.name is None:
        return None
    owner, name = error.obj, error.name
    near = _nearest(name, _public(owner))
    if near is not None:
        return f"did you mean `{near}`?"
    if owner is not tl and hasattr(tl, name):
        is_value = isinstance(owner, tensor)
        return f"it is a function: `tl.{name}(…)`" if is_value else f"did you mean `tl.{name}`?"
    return None


@suggests
def python_function(mistake: Mistake) -> str | None:
    """A plain Python function where a kernel needs one of the language."""
    found = re.match(r"Cannot access global variable (\w+)", mistake.message)
    value = mistake.frame.globals.get(found[1]) if found else None
    if isinstance(value, types.FunctionType):
        return f"`{value.__name__}` is a Python function: decorate it with `@triton.jit`"
    if mistake.message.startswith("Unsupported function referenced"):
        name = mistake.message.split()[4].split(".")[-2].rstrip(">")
        if hasattr(tl, name):
            return f"kernels have `tl.{name}`"
    return None


@suggests
def wrong_arguments(mistake: Mistake) -> str | None:
    """Arguments that the parameters of the function don't take."""
    if not isinstance(mistake.error, TypeError) or not isinstance(mistake.node, ast.Call):
        return None
    asked = re.search(r"unexpected keyword argument '(\w+)'", mistake.message)
    wrong = asked or re.search(
        r"missing .*argument|positional argument|multiple values", mistake.message
    )
    function = mistake.frame.values.get(mistake.node.func)
    function = function.value if isinstance(function, constexpr) else function
    if wrong is None or not callable(function):
        return None
    names = [n for n in _parameters(function) if n not in ("_semantic", "_generator", "self")]
    near = _nearest(asked[1], names) if asked else None
    if near is not None:
        return f"did you mean `{near}=`?"
    return f"the parameters of {ast.unparse(mistake.node.func)} are ({', '.join(names)})"


def _parameters(function: Any) -> list[str]:
    function = function.__init__ if is_aggregate_class(function) else function
    try:
        signature = getattr(function, "signature", None) or inspect.signature(function)
    except (TypeError, ValueError):
        return []
    return list(signature.parameters)


# -- shapes ----------------------------------------------------------------------------------------

_SHAPES = ("make_shape_compatible", "Cannot broadcast")


@suggests
def broadcast(mistake: Mistake) -> str | None:
    """Two shapes that one more axis would make compatible."""
    if not any(text in mistake.message for text in _SHAPES):
        return None
    tiles = [o for o in mistake.tensors if o.shape]
    if any(o.is_pointer for o in tiles) and isinstance(mistake.node, ast.Call):
        return "`mask`, `other` and a stored value need a shape that broadcasts to the pointer's"
    for a in tiles:
        for b in tiles:
            if a is not b and len(a.shape) == 1 and _differ(a, b):
                shape = _fitting((a.shape[0], 1), b.shape)
                if shape is not None:
                    return (
                        f"`{_bracketed(a)}[:, None]` has shape {[a.shape[0], 1]}; with "
                        f"`{b.text}` it makes {list(shape)}"
                    )
    return "two shapes fit if, counted from the last axis, extents are equal or one of them is 1"


def _differ(a: Operand, b: Operand) -> bool:
    return _fitting(a.shape, b.shape) is None


def _fitting(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return common_shape(a, b)
    except ValueError:
        return None


def _bracketed(operand: Operand) -> str:
    """The operand's text, as something can be written behind it."""
    simple = isinstance(operand.node, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
    return operand.text if simple else f"({operand.text})"


@suggests
def power_of_two(mistake: Mistake) -> str | None:
    if "must be a power of 2" not in mistake.message:
        return None
    return "take the next power of two, and mask what lies beyond the end: `mask=offsets < n`"


# -- element types ---------------------------------------------------------------------------------


@suggests
def pointer_as_value(mistake: Mistake) -> str | None:
    """A pointer where a number is needed, or an offset that is none."""
    pointers = [o for o in mistake.tensors if o.is_pointer]
    if not pointers:
        return None
    if mistake.message == "cannot add pointers together":
        return f"to add what lies there, load it: `tl.load({pointers[0].text})`"
    arithmetic = isinstance(mistake.error, IncompatibleTypeErrorImpl)
    if not arithmetic and "pointer<" not in mistake.message:
        return None
    others = [o for o in mistake.tensors if not o.is_pointer and o.value.dtype.is_floating()]
    if others and isinstance(mistake.node, ast.BinOp | ast.AugAssign):
        moves = isinstance(mistake.node.op, ast.Add | ast.Sub)
        if moves:
            return (
                f"an offset is an integer: `{_bracketed(others[0])}.to(tl.int64)`; or load what "
                f"lies there first: `tl.load({pointers[0].text})`"
            )
    needs_value = ("Expected dtype", "Unexpected dtype", "cannot cast pointer", "unary minus")
    if arithmetic and mistake.message.endswith("and float"):
        return "an offset is an integer: it counts elements"
    if arithmetic or any(text in mistake.message for text in needs_value):
        return (
            f"`{pointers[0].text}` is a pointer; what lies there is `tl.load({pointers[0].text})`"
        )
    return None


@suggests
def value_as_pointer(mistake: Mistake) -> str | None:
    """A number where a pointer is needed."""
    if "Unsupported ptr type" not in mistake.message:
        return None
    values = [o.text for o in mistake.tensors if not o.is_pointer]
    if not values:
        return None
    return f"`{values[0]}` is no pointer: add it to one, as in `ptr + {values[0]}`"


@suggests
def missing_cast(mistake: Mistake) -> str | None:
    """An element type that a cast would make right."""
    tensors = [o for o in mistake.tensors if isinstance(o.value.dtype, DType)]
    if "different signedness" in mistake.message:
        unsigned = [o for o in tensors if o.value.dtype.is_int_unsigned()]
        if unsigned:
            bits = unsigned[0].value.dtype.primitive_bitwidth
            return f"`{_bracketed(unsigned[0])}.to(tl.int{bits})`, if its values fit"
    if mistake.message.startswith(("Expected dtype ['fp32'", "fma takes floats")):
        for o in tensors:
            if o.value.dtype.name not in ("fp32", "fp64"):
                return f"`{_bracketed(o)}.to(tl.float32)`"
    unlike = mistake.message.startswith(("Both operands must be same dtype", "join takes"))
    if unlike and len(tensors) >= 2:
        return f"`{_bracketed(tensors[1])}.to({_bracketed(tensors[0])}.dtype)`"
    if isinstance(mistake.error, IncompatibleTypeErrorImpl):
        floats = [o for o in tensors if o.value.dtype.is_floating()]
        if floats and not any(o.is_pointer for o in mistake.tensors):
            bits = floats[0].value.dtype.primitive_bitwidth
            return (
                f"this takes integers: `{_bracketed(floats[0])}.to(tl.int32)` for its value, "
                f"`.to(tl.int{bits}, bitcast=True)` for its bits"
            )
    fp8 = [o for o in tensors if o.value.dtype.is_fp8()]
    if mistake.message.startswith("unexpected type") and fp8:
        return f"`{_bracketed(fp8[0])}.to(tl.float32)`: fp8 and integers do not mix"
    if mistake.message.startswith("unexpected type") and tensors:
        return "`//` takes integers; of floats, `tl.floor(a / b)`"
    return None


@suggests
def changed_type(mistake: Mistake) -> str | None:
    """A name whose type differs between the ways or iterations that meet."""
    found = re.match(
        r"Loop-carried variable (\w+) has initial type (\w+) but is re-assigned to (\w+) ",
        mistake.message,
    )
    if found is None:
        return None
    name, before, after = found.groups()
    return (
        f"`{name}` keeps one type in a loop: begin with a value of type {after}, or cast what is "
        f"assigned to {before}"
    )


# -- memory ----------------------------------------------------------------------------------------


@suggests
def mask(mistake: Mistake) -> str | None:
    if mistake.message.startswith("`other` cannot be provided without `mask`"):
        return (
            "`other` is what is read where `mask` is false: pass `mask=offsets < n`, or leave "
            "`other` away"
        )
    if mistake.message.endswith("cannot be block type if pointer argument is not a block"):
        pointer = next((o.text for o in mistake.tensors if o.is_pointer), "the pointer")
        return f"`{pointer}` is one address: a tile of them is `{pointer} + tl.arange(0, …)`"
    if mistake.message.startswith("Mask must have boolean scalar type"):
        return "a mask is a comparison: `mask=offsets < n`, or `mask=m != 0` of integers"
    return None


# -- compile time ----------------------------------------------------------------------------------

_OF_PYTHON = "is a Python function: it takes compile-time values"
# Said of compile-time values: of another kind than wanted, or bound twice.
_NO_RUN_TIME_VALUE = re.compile(r"got `[\d'\"]|cannot reassign|cannot be reassigned")
_NEEDS_CONSTANT = re.compile(r"constexpr(?!_type)|compile[- ]time")


@suggests
def needs_constexpr(mistake: Mistake) -> str | None:
    """A run-time value where one known at compile time is needed: which parameter to annotate."""
    if not _NEEDS_CONSTANT.search(mistake.message) or _OF_PYTHON in mistake.message:
        return None
    if isinstance(mistake.node, ast.While) or _NO_RUN_TIME_VALUE.search(mistake.message):
        return None
    frame = mistake.frame
    names = [n.id for n in ast.walk(mistake.node) if isinstance(n, ast.Name)]
    for name in dict.fromkeys(names):
        value = frame.names.get(name)
        if not isinstance(value, tensor) or value.handle.type != value.type:
            continue
        if name in frame.fn.arg_names and value.handle.op is None:
            if not isinstance(value.type, Pointer):
                return (
                    f"`{name}` is known only when the kernel runs; make it a compile-time "
                    f"parameter: `def {frame.fn.__name__}(…, {name}: tl.constexpr)`"
                )
        elif _constant(value):
            return f"`{name}` is a local variable: write `{name}: tl.constexpr = …` to keep it one"
    return None


def _constant(value: tensor) -> bool:
    """Whether a local name became a tensor only because it was assigned."""
    return isinstance(value.handle.op, Constant) and value.type is value.dtype


@suggests
def number_of_python(mistake: Mistake) -> str | None:
    """`int(x)` and `float(x)` of a tensor."""
    if _OF_PYTHON not in mistake.message:
        return None
    kinds = {"int": "tl.int32", "float": "tl.float32"}
    name = mistake.message.split()[0].split("(")[-1].strip("'\"")
    operand = mistake.tensors[0] if mistake.tensors else None
    if name in kinds and operand is not None:
        return f"of a run-time value, `{_bracketed(operand)}.to({kinds[name]})`"
    return f"kernels have `tl.{name}`" if is_builtin(getattr(tl, name, None)) else None


@suggests
def tile_as_condition(mistake: Mistake) -> str | None:
    if not mistake.message.startswith("Boolean value of Tensor"):
        return None
    return (
        "a branch is taken by the whole program: choose element by element with `tl.where`, or "
        "reduce the condition, as in `tl.max(condition.to(tl.int32)) != 0`"
    )


# -- Python that kernels lack ----------------------------------------------------------------------

_INSTEAD = {
    "unsupported AST node type: Lambda": "write a function at module level with `@triton.jit`",
    "unsupported AST node type: ClassDef": "define it at module level, with `@tl.core._aggregate`",
    "unsupported AST node type: Dict": "use a tuple, or a named tuple",
    "unsupported AST node type: Set": "use a tuple",
    "unsupported AST node type: Try": "kernels raise nothing; check with `tl.device_assert`",
    "unsupported AST node type: Raise": "use `tl.device_assert`, or `tl.static_assert` of what is "
    "known at compile time",
    "unsupported AST node type: Import": "import at module level",
    "unsupported AST node type: ImportFrom": "import at module level",
    "unsupported AST node type: Global": "pass values as arguments, and return them",
    "unsupported AST node type: Nonlocal": "pass values as arguments, and return them",
    "unsupported AST node type: Yield": "return a tuple",
    "AST binary operator 'MatMult'": "the product of two matrices is `tl.dot(a, b)`",
    "__setitem__ is not supported": "make a new tile: `x = tl.where(index == i, value, x)`; to "
    "write to memory, `tl.store(pointer + offset, value)`",
    "simultaneous multiple assignment": "write one assignment a line",
    "only tuple comprehensions": "operators and functions take a whole tile",
    "nested comprehensions are not": "write one comprehension within the other",
    "cannot convert text of type": "write `name: tl.constexpr = …` for what is known at compile "
    "time and is no number",
    "wrong type argument to unary invert": "`~` takes integers; a condition is negated by `not` "
    "or `~` of a comparison",
    "Only `range` and `static_range`": "write `for i in range(n)`",
    "cannot convert JITFunction": "call a function by its own name, or annotate the new one: "
    "`name: tl.constexpr = …`",
    "cannot convert range(": "write `for i in range(n)`: a range is no value",
    "numel (": "make the tile smaller, and loop over the rest or start more programs",
}


@suggests
def text_first(mistake: Mistake) -> str | None:
    """`tl.device_print` of a value alone."""
    if not mistake.message.endswith("is not string") or not mistake.operands:
        return None
    text = mistake.operands[-1].text
    return f"the first argument is a text: `tl.device_print('{text} =', {text})`"


@suggests
def instead(mistake: Mistake) -> str | None:
    """What kernels have for what Python has and they lack."""
    found = [text for start, text in _INSTEAD.items() if mistake.message.startswith(start)]
    return found[0] if found else None
