"""The uses of the public names of the language (`uses.py`), one case for each element type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.base.diagnostics import CompilationError
from tilewright.conformance.case import Case, NotInLanguage, Program, first_line
from tilewright.conformance.inputs import rng_of
from tilewright.conformance.libdevice_names import EXACT_NAMES, LETTERS, SIGNATURES, forms
from tilewright.conformance.text_kernels import constexpr_function, kernel_from
from tilewright.conformance.uses import ATOMICS, PRODUCTS, RANDOM, SECTIONS, Use
from tilewright.conformance.values import floats_in, random_array
from tilewright.frontend.build import build_module
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.types import I32, SCALARS, DType, Tile

COUNT = 512  # elements of each array
OPERANDS = ("pa", "pb", "pc")
CLOSE_ULP = 16.0
"""Of uses that combine several functions that are not rounded correctly."""

SECOND = {
    "cat", "reduce", "sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce_or", "softmax",
    "range", "static_range", "condition", "make_block_ptr", "advance", "x.T", "x[:, None]", "x[3]",
    "x[0:8]", "x.item()", "not x",
}  # fmt: skip
FOURTH = {
    "tensor_descriptor", "tensor_descriptor_type", "make_tensor_descriptor",
    "load_tensor_descriptor", "store_tensor_descriptor", "associative_scan", "cumsum", "cumprod",
    "sort", "bitonic_merge", "topk", "histogram", "map_elementwise", "flip", "gather",
    "dot_scaled", "device_assert", *RANDOM,
}  # fmt: skip
FIFTH = {*ATOMICS, "debug_barrier"}
# The assembly is that of one machine; output of kernels is not compared.
LEFT_OUT = {"inline_asm_elementwise", "device_print"}


def level_of(section: str, name: str) -> str:
    """The level of a use."""
    if name in FIFTH:
        return "5"
    if name in FOURTH:
        return "4"
    if name in PRODUCTS:
        return "3"
    return "2" if section == "Shape" or name in SECOND else "1"


def language_name(element: DType) -> str:
    """`tl.float32` of fp32."""
    return repr(element).replace("triton.language", "tl").replace("tilewright.language", "tl")


def function_text(use: Use) -> str:
    """A function `use` of three pointers and an element type that returns the value of a use."""
    lines = use.text.strip().splitlines()
    body = ["i = tl.arange(0, 16)", "p = pa + i", "m = i % 3 != 0", "a = tl.load(p)"]
    body += ["b = tl.load(pb + i)", "c = tl.load(pc + i)", *lines[:-1], f"return {lines[-1]}"]
    return f"{use.helpers}@jit\ndef use(pa, pb, pc, T):\n    " + "\n    ".join(body) + "\n"


def input_of(use: Use, element: DType, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """An array that an operand of a use points to."""
    if use.kind == "integral" and not element.is_bool():
        low = -2 if element.is_int_signed() or element.is_floating() else 0
        values = rng.integers(low, 3, COUNT).astype(np.float32)
        if element.is_fp8():  # one bit and few of them, so that no partial sum is rounded
            values = np.sign(values) * (np.arange(COUNT) % 5 == 0) / 4
    elif use.kind == "positive" and not element.is_bool():
        values = np.exp(rng.normal(0, 1, COUNT)).astype(np.float32)
    else:
        return random_array(Tile((COUNT,), element), rng)
    converted = floats_in(values, element) if element.is_floating() else values.astype(np.int64)
    return converted.astype(element.numpy)


def result_type(use: Use, element: DType) -> Any:
    """The type of the value of a use.

    Raises:
        NotInLanguage: the front end rejects the element type.
    """
    seen: list[Any] = []

    def see(value: Any) -> None:
        """Record the type of a value while the kernel is compiled."""
        seen.append(value.type)

    text = function_text(use) + (
        f"def kernel(pa, pb, pc):\n    see(use(pa, pb, pc, {language_name(element)}))\n"
    )
    kernel = kernel_from(text, see=constexpr_function(see))
    types: dict[str, str] = {name: f"*{element.short}" for name in OPERANDS}
    try:
        build_module(kernel, types, {}, {}, FrontendOptions())
    except CompilationError as error:
        raise NotInLanguage(first_line(error)) from error
    return seen[0]


def _program(name: str, use: Use, element: DType) -> Program:
    result = result_type(use, element)
    count = int(np.prod([int(d) for d in getattr(result, "shape", ())]))
    lines = [
        f"r = use(pa, pb, pc, {language_name(element)})",
        f"tl.store(out + tl.arange(0, {count}), tl.reshape(r, ({count},)))",
    ]
    text = f"{function_text(use)}def kernel(out, pa, pb, pc):\n    " + "\n    ".join(lines) + "\n"
    rng = rng_of(name, element)
    args = [np.zeros(count, result.scalar.numpy), *(input_of(use, element, rng) for _ in OPERANDS)]
    return Program(kernel_from(text), args, ulp=CLOSE_ULP if use.close else 0)


def _libdevice(name: str, operands: str, result: str) -> Program:
    letters = "abcd"[: len(operands)]
    loads = "".join(f"    {x} = tl.load({x}_ptr + i)\n" for x in letters)
    pointers = ", ".join(f"{x}_ptr" for x in letters)
    text = (
        f"def kernel(out, {pointers}):\n    i = tl.arange(0, 64)\n{loads}"
        f"    tl.store(out + i, tl.extra.libdevice.{name}({', '.join(letters)}))\n"
    )
    rng, types = rng_of(name, operands), {t.numpy: t for t in SCALARS}
    args = [_libdevice_input(name, types[np.dtype(LETTERS[x])], rng) for x in operands]
    return Program(
        kernel_from(text), [np.zeros(64, LETTERS[result]), *args],
        ulp=0 if name in EXACT_NAMES else CLOSE_ULP,
    )  # fmt: skip


def _libdevice_input(name: str, element: DType, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if element.is_int():
        return rng.integers(0, 9, 64).astype(element.numpy)
    if name in EXACT_NAMES:
        return random_array(Tile((64,), element), rng)
    return rng.uniform(0.1, 0.9, 64).astype(element.numpy)  # where all functions are defined


def _uses() -> Iterator[tuple[str, str, Use]]:
    for section, uses in SECTIONS.items():
        for name, use in uses.items():
            if name not in LEFT_OUT:
                yield section, name, use


def elements_of(use: Use) -> Sequence[DType]:
    """The element types to try a use on."""
    return SCALARS if use.typed else (I32,)


def cases() -> Iterator[Case]:
    """A case for each use and element type, of levels 1 to 5."""
    for section, name, use in _uses():
        level = level_of(section, name)
        for element in elements_of(use):
            short = (element.short,)
            yield Case(
                level, f"use of {name}", element.short, partial(_program, name, use, element),
                products=short if name in PRODUCTS else (),
                atomics=short if name in ATOMICS else (),
            )  # fmt: skip
    for name in SIGNATURES:
        for operands, result in forms(name):
            body = partial(_libdevice, name, operands, result)
            yield Case("4", f"libdevice.{name}", operands, body)
