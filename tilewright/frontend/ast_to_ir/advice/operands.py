"""Suggestions for operands: shapes, element types, pointers."""

from __future__ import annotations

import ast
import builtins
from typing import Any

import tilewright.language as tl
from tilewright.frontend.ast_to_ir.advice.names import array_of_host
from tilewright.frontend.ast_to_ir.explain import Mistake, Operand, in_words, print_values, suggests
from tilewright.ir.types import DType, Pointer
from tilewright.language.semantic.convert import common_shape
from tilewright.language.values import constexpr, tensor, tuple, unwrap

# -- shapes ----------------------------------------------------------------------------------------


@suggests("broadcast")
def broadcast(mistake: Mistake) -> str:
    """Incompatible shapes; suggests an additional axis if that makes them compatible."""
    tiles = [o for o in mistake.tensors if o.shape]
    if any(o.is_pointer for o in tiles) and isinstance(mistake.node, ast.Call):
        return "`mask`, `other` and the stored value must broadcast to the shape of the pointer"
    for a in tiles:
        for b in tiles:
            if a is not b and len(a.shape) == 1 and _differ(a, b):
                shape = _fitting((a.shape[0], 1), b.shape)
                if shape is not None:
                    return (
                        f"`{a.bracketed}[:, None]` has shape {[a.shape[0], 1]}, which "
                        f"broadcasts with `{b.text}` to {list(shape)}"
                    )
    return "shapes broadcast if, from the last axis, extents are equal or one of them is 1"


def _differ(a: Operand, b: Operand) -> bool:
    return _fitting(a.shape, b.shape) is None


def _fitting(
    a: builtins.tuple[int, ...], b: builtins.tuple[int, ...]
) -> builtins.tuple[int, ...] | None:
    try:
        return common_shape(a, b)
    except ValueError:
        return None


# -- element types ---------------------------------------------------------------------------------


@suggests("added-pointers")
def added_pointers(mistake: Mistake) -> str:
    return f"load the values first: `tl.load({mistake.pointers[0].text})`"


@suggests("operand-types")
def operand_types(mistake: Mistake) -> str | None:
    """Invalid operand types: a pointer and a float, a bitwise operation on a float."""
    pointers = mistake.pointers
    others = [o for o in mistake.tensors if not o.is_pointer and o.value.dtype.is_floating()]
    if not pointers and (comparison := _around(mistake)) is not None:
        return f"`&` and `|` bind more tightly than comparisons: `{comparison}`"
    if not pointers:
        return _bits_of(others[0]) if others else None
    moves = isinstance(mistake.node, ast.BinOp | ast.AugAssign) and isinstance(
        mistake.node.op, ast.Add | ast.Sub
    )
    if moves and others:
        return (
            f"offsets are integers: use `{others[0].bracketed}.to(tl.int64)`, or load the "
            f"value first, `tl.load({pointers[0].text})`"
        )
    if moves and len(mistake.tensors) == 1:
        return "offsets are integers, in elements"
    return _load(pointers[0])


def _around(mistake: Mistake) -> str | None:
    """The comparisons that `a > 1 & b < 5` is meant to combine, in parentheses."""
    inner = mistake.node
    if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.BitAnd | ast.BitOr):
        return None
    for outer in ast.walk(mistake.frame.definition):
        if isinstance(outer, ast.Compare) and len(outer.ops) == 2 and outer.comparators[0] is inner:
            before = ast.Compare(outer.left, outer.ops[:1], [inner.left])
            after = ast.Compare(inner.right, outer.ops[1:], outer.comparators[1:])
            return ast.unparse(ast.BinOp(before, inner.op, after))
    return None


def _bits_of(operand: Operand) -> str:
    bits = operand.value.dtype.primitive_bitwidth
    return (
        f"convert to an integer: `{operand.bracketed}.to(tl.int32)` converts the value, "
        f"`.to(tl.int{bits}, bitcast=True)` reinterprets the bits"
    )


def _load(pointer: Operand) -> str:
    return f"`{pointer.text}` is a pointer: load the value, `tl.load({pointer.text})`"


@suggests("wrong-element-type", "needs-float", "fp8-mix", "floor-division", "axis")
def pointer_as_value(mistake: Mistake) -> str | None:
    """A pointer where a number is required."""
    pointers = mistake.pointers
    return _load(pointers[0]) if pointers else None


@suggests("axis")
def axes_of_tile(mistake: Mistake) -> str | None:
    """An axis that the tile does not have."""
    tiles = [o for o in mistake.tensors if o.shape and not o.is_pointer]
    if not tiles:
        return None
    x, rank = tiles[0], len(tiles[0].shape)
    match mistake.node:
        case ast.Call(func=ast.Attribute(attr="expand_dims")):
            return f"use `{x.bracketed}[{':, ' * rank}None, None]` to insert several axes"
        case _:
            axes = ("only axis 0", "axes 0 and 1")[rank - 1 : rank]
            return f"`{x.text}` has {axes[0] if axes else f'axes 0 to {rank - 1}'}"


@suggests("grid-axis")
def axis_of_grid(mistake: Mistake) -> str:
    return (
        "a grid has axes 0, 1 and 2: launch `rows * columns` programs along one of them, and use "
        "the indices `program // columns` and `program % columns`"
    )


@suggests("minor-axis")
def other_axis(mistake: Mistake) -> str | None:
    """Sorting along an axis that is not the last."""
    tiles = [o for o in mistake.tensors if len(o.shape) == 2]
    return f"transpose first: `tl.trans({tiles[0].text})`" if tiles else None


@suggests("bitcast-width")
def bitcast_width(mistake: Mistake) -> str | None:
    if not mistake.tensors:
        return None
    x, bits = mistake.tensors[0], mistake.facts["source"].primitive_bitwidth
    return (
        f"use `{x.bracketed}.to({_named(mistake.facts['to'])})` to convert the value, or a type of "
        f"{bits} bits, such as tl.int{bits}, to reinterpret its bits"
    )


def _named(type: Any) -> str:
    """A type as programs write it, `tl.int64`."""
    names = (n for n in dir(tl) if getattr(tl, n) is type)
    return f"tl.{next(names, type)}"


@suggests("pointer-cast")
def converted_pointer(mistake: Mistake) -> str | None:
    """A pointer where a number is converted: in an access the value, which follows the address."""
    pointers = mistake.pointers
    return _load(pointers[-1]) if pointers else None


@suggests("not-a-pointer")
def value_as_pointer(mistake: Mistake) -> str | None:
    """A number or None where a pointer is required."""
    missing = next((o for o in mistake.operands if _is_none(o)), None)
    if missing is not None and not mistake.pointers:
        return _none_tested(missing)
    values = [o for o in mistake.tensors if not o.is_pointer]
    if not values:
        return None
    if isinstance(mistake.node, ast.Call) and len(mistake.pointers) == 1:
        function, pointer = ast.unparse(mistake.node.func), mistake.pointers[0].text
        return f"pass the pointer as the first argument: `{function}({pointer}, …)`"
    number = _first_parameter(mistake, values[0].node)
    if number is not None and number.value.dtype.is_floating():
        return (
            f"the launch passed a number, {number.value.dtype}, for `{number.text}`: pass an array"
        )
    if number is not None and number.value.type in (tl.int64, tl.uint64):
        address = number.text
        return (
            f"`{address}` is an integer: pass the array instead of its address, or convert the "
            f"address, as in `{address}.to(tl.pointer_type(tl.float32))`"
        )
    return f"`{values[0].text}` is not a pointer: add it to one, as in `ptr + {values[0].text}`"


def _first_parameter(mistake: Mistake, e: ast.expr) -> Operand | None:
    """The parameter with which a sum of offsets begins, where that is a number."""
    while isinstance(e, ast.BinOp) and isinstance(e.op, ast.Add):
        e = e.left
    value = mistake.frame.names.get(e.id) if isinstance(e, ast.Name) else None
    if not isinstance(value, tensor) or value.handle.op is not None:
        return None
    return Operand(e, value) if isinstance(value.type, DType) else None


def _is_condition(mistake: Mistake, index: ast.expr) -> bool:
    """Whether an index is a tile of conditions. That of a target is not evaluated."""
    value = mistake.frame.values.get(index)
    if value is None and isinstance(index, ast.Name):
        value = mistake.frame.names.get(index.id)
    return isinstance(index, ast.Compare) or (
        isinstance(value, tensor) and isinstance(value.dtype, DType) and value.dtype.is_bool()
    )


@suggests("tensor-index")
def element_of_array(mistake: Mistake) -> str | None:
    """`x_ptr[i]`, and `x[x > 0]`."""
    if not mistake.tensors:
        return None
    owner = mistake.tensors[0]
    index = getattr(mistake.node, "slice", None)
    if isinstance(index, ast.expr) and _is_condition(mistake, index):
        condition, x = ast.unparse(index), owner.text
        return (
            f"use a mask: `tl.load({x} + offsets, mask={condition})`"
            if owner.is_pointer
            else f"use `tl.where({condition}, {x}, 0)`, with the identity of the computation that "
            "follows, such as 0 for a sum"
        )
    if not owner.is_pointer:
        return None
    pointer = owner.text
    if not isinstance(index, ast.expr) or isinstance(index, ast.Slice | ast.Tuple):
        return f"load a block: `tl.load({pointer} + tl.arange(0, BLOCK), mask=…)`"
    return f"load the element: `tl.load({_sum(owner.node, index)})`"


def _sum(pointer: ast.expr, offset: ast.expr) -> str:
    return ast.unparse(ast.BinOp(pointer, ast.Add(), offset))


@suggests("item-assignment")
def item_assignment(mistake: Mistake) -> str:
    """`y_ptr[i] = value`, and item assignment to a tile."""
    target = mistake.facts["target"]
    owner = Operand(target.value, mistake.frame.names.get(ast.unparse(target.value)))
    index = ast.unparse(target.slice)
    if _is_condition(mistake, target.slice):
        return (
            f"store with a mask: `tl.store({owner.text} + offsets, value, mask={index})`"
            if owner.is_pointer
            else f"tiles are immutable: use `{owner.text} = tl.where({index}, value, {owner.text})`"
        )
    if any(isinstance(part, ast.Slice) for part in ast.walk(target.slice)):
        return (
            f"tiles are immutable: use `{owner.text} = tl.where(mask, value, {owner.text})`, where "
            "`mask` compares a `tl.arange`; to write to memory, use `tl.store(pointer + "
            "tl.arange(0, BLOCK), value, mask=mask)`"
        )
    if owner.is_pointer:
        address = _sum(target.value, target.slice)
        if isinstance(mistake.node, ast.AugAssign):
            return (
                f"to update memory, use `tl.load({address})` and `tl.store({address}, …)`, or "
                f"`tl.atomic_add({address}, …)` if several programs may update an element"
            )
        return f"to write to memory, use `tl.store({address}, value)`"
    return (
        f"tiles are immutable: use `{owner.text} = tl.where(index == {index}, value, {owner.text})`"
        f"; to write to memory, use `tl.store(pointer + {index}, value)`"
    )


@suggests("operator")
def operator(mistake: Mistake) -> str | None:
    """Unsupported operators of tensors."""
    match mistake.facts["sign"], mistake.operands:
        case "**", [base, exponent, *_] if base.is_tensor:
            return _power(base, exponent, mistake.facts["rhs"])
        case "**", [base, exponent] if unwrap(base.value) == 2:
            return f"use `1 << {exponent.bracketed}`, or `tl.exp2({exponent.text})` for floats"
        case "%" | "+", [text, value, *_] if value.is_tensor and _is_text(text):
            return print_values(value.text)
        case "==" | "!=", operands if mistake.facts["rhs"] is None and operands[0].is_tensor:
            return "use `x is None`, which is decided at compile time: run-time values are not None"
        case "==" | "!=", [a, b] if _is_text(a) != _is_text(b):
            value = b.text if _is_text(a) else a.text
            return f"strings are compile-time values: declare `{value}: tl.constexpr`"
        case _, operands:
            return next((t for o in operands if (t := _no_number(o)) is not None), None)


def _no_number(operand: Operand) -> str | None:
    """A suggestion for an operand that is None, a tuple or a host array."""
    value = operand.value
    if _is_none(operand):
        return _none_tested(operand)
    if isinstance(value, tuple) and isinstance(operand.node, ast.Name):
        return f"`{operand.text}` is a tuple of {len(value)}: index it, as in `{operand.text}[0]`"
    if isinstance(value, constexpr) and hasattr(value.value, "__array__"):
        return array_of_host(operand.text)
    return None


def _is_none(operand: Operand) -> bool:
    """Whether a name has the value None, as an optional argument of the kernel may."""
    value = operand.value
    return (
        isinstance(value, constexpr) and value.value is None and isinstance(operand.node, ast.Name)
    )


def _none_tested(operand: Operand) -> str:
    return (
        f"`{operand.text}` is None: guard its uses with `if {operand.text} is not None:`, which is "
        "decided at compile time"
    )


def _is_text(operand: Operand) -> bool:
    return isinstance(operand.value, constexpr) and isinstance(operand.value.value, str)


def _power(base: Operand, exponent: Operand, number: Any) -> str:
    if isinstance(number, int) and 2 <= number <= 4:
        product = " * ".join([base.text if isinstance(base.node, ast.Name) else "x"] * number)
        text = f"use `{product}`"
        return text if base.text in product else f"{text}, with `x = {base.text}`"
    if isinstance(number, float) and abs(number) == 0.5:
        return f"use `tl.{'sqrt' if number > 0 else 'rsqrt'}({base.text})`"
    return f"use `tl.exp2({exponent.bracketed} * tl.log2({base.text}))`, for a positive base"


@suggests("stored-shape")
def stored_shape(mistake: Mistake) -> str:
    shape = list(mistake.facts["shape"])
    return (
        f"store through pointers of shape {shape}, such as "
        "`ptr + rows[:, None] * stride + columns[None, :]` for two axes"
    )


@suggests("dot-shapes")
def dot_shapes(mistake: Mistake) -> str | None:
    """A product with a vector, or with an operand that must be transposed."""
    if len(mistake.tensors) < 2:
        return None
    a, b = mistake.tensors[:2]
    match a.shape, b.shape:
        case (_, k), (n,) if k == n:
            x = b.bracketed
            return f"use `tl.sum({a.bracketed} * {x}[None, :], 1)` for a matrix and a vector"
        case (k,), (n,) if k == n:
            return f"use `tl.sum({a.bracketed} * {b.bracketed}, 0)` for two vectors"
        case (*_, k), (*_, _, n) if k == n:
            return f"transpose the right operand: `tl.dot({a.text}, {b.bracketed}.T)`"
        case _:
            return None


@suggests("number-range")
def number_range(mistake: Mistake) -> str | None:
    number, tensors = mistake.facts["number"], mistake.tensors
    if not tensors:
        return None
    wide = next((t for t in ("int32", "int64") if abs(number) < 1 << int(t[3:]) - 1), None)
    return f"use `{tensors[0].bracketed}.to(tl.{wide})`" if wide else None


@suggests("signedness")
def signedness(mistake: Mistake) -> str | None:
    unsigned = [o for o in _numbers(mistake) if o.value.dtype.is_int_unsigned()]
    if not unsigned:
        return None
    bits = unsigned[0].value.dtype.primitive_bitwidth
    return f"use `{unsigned[0].bracketed}.to(tl.int{bits})`, if its values fit"


def _numbers(mistake: Mistake) -> list[Operand]:
    return [o for o in mistake.tensors if isinstance(o.value.dtype, DType)]


@suggests("wrong-element-type", "needs-float")
def needs_float(mistake: Mistake) -> str | None:
    """A function of floats with an operand of another type."""
    if mistake.facts.get("allowed", ("fp32",))[0] != "fp32":
        return None
    for o in _numbers(mistake):
        if o.value.dtype.name not in ("fp32", "fp64"):
            return f"use `{o.bracketed}.to(tl.float32)`"
    return None


@suggests("unlike-types")
def unlike_types(mistake: Mistake) -> str | None:
    numbers = _numbers(mistake)
    if len(numbers) < 2:
        return None
    return f"use `{numbers[1].bracketed}.to({numbers[0].bracketed}.dtype)`"


@suggests("fp8-mix")
def fp8_mix(mistake: Mistake) -> str | None:
    narrow = [o for o in _numbers(mistake) if o.value.dtype.is_fp8()]
    if not narrow:
        return None
    return f"use `{narrow[0].bracketed}.to(tl.float32)`: fp8 and integers are not promoted"


@suggests("floor-division")
def floor_division(mistake: Mistake) -> str | None:
    if not _numbers(mistake):
        return None
    return "`//` takes integers: use `tl.floor(a / b)` for floats"


@suggests("loop-type")
def changed_type(mistake: Mistake) -> str:
    """A loop-carried variable whose type changes."""
    name, before, after = (mistake.facts[k] for k in ("name", "before", "after"))
    if not isinstance(before, DType | Pointer) or not isinstance(after, DType | Pointer):
        return (
            f"the type and shape of `{name}` must not change in a loop: the loop assigns "
            f"{in_words(after)}, so initialise it alike, not with {in_words(before)}"
        )
    return (
        f"the type of `{name}` must not change in a loop: initialise it with a value of type "
        f"{after}, or cast the assigned value to {before}"
    )


@suggests("branch-type")
def branches_differ(mistake: Mistake) -> str:
    """A variable whose type depends on a run-time condition."""
    name, (first, second) = mistake.facts["name"], mistake.facts["types"]
    if isinstance(first, DType) and isinstance(second, DType):
        return f"cast one of the values of `{name}`: to {first}, or to {second}"
    return (
        f"the type and shape of `{name}` must not depend on a run-time condition, "
        f"{in_words(first)} or {in_words(second)}: assign values of one type and shape, or make "
        "the condition compile-time"
    )


# -- memory ----------------------------------------------------------------------------------------


@suggests("tile-through-scalar-pointer")
def one_address(mistake: Mistake) -> str:
    pointer = next((o.text for o in mistake.tensors if o.is_pointer), "the pointer")
    return f"`{pointer}` is a single address: use a tile of pointers, `{pointer} + tl.arange(0, …)`"
