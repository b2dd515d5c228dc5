"""Which names of the language take which element types on which target, and the table of it.

    python -m tests.language.support_table

writes `docs/support.md` from the uses in `uses.py`, each built on every element type for each
target. `test_support_table.py` runs the kernels, and detects a stale table.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tilewright.language as tl
from tests.arrays import aligned
from tests.frontend.kernels import constexpr_function, kernel_from
from tests.ir_values import floats_in, numbers, same_bits
from tests.lowering.simt.harness import run_emulated
from tests.targets.cpu.harness import run_compiled
from tilewright.base.diagnostics import CompilationError
from tilewright.compiler.pipeline import STEPS
from tilewright.conformance.libdevice_names import SIGNATURES
from tilewright.conformance.references import Inputs, Reference
from tilewright.conformance.use_cases import OPERANDS, function_text, input_of, language_name
from tilewright.conformance.uses import EXTRAS, MODULES, SECTIONS, USES, Use
from tilewright.frontend.build import build_module
from tilewright.frontend.options import FrontendOptions
from tilewright.frontend.source import SourceFunction
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PassContext, run
from tilewright.ir.types import FP32, FP64, I1, I32, I64, SCALARS, U32, U64, DType
from tilewright.ir.verify import verify_module
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target as find_target

TABLE = Path(__file__).parents[2] / "docs/support.md"
LANGUAGE = Path(__file__).parents[2] / "docs/language.md"
NAMES = re.compile(r"(?<=<!-- names -->\n).*?(?=<!-- end -->)", re.DOTALL)
TARGETS = {
    "interpreter": GPUTarget("interpreter", "", 1),
    "CPU": GPUTarget("cpu", "", 1),
    "sm_90": GPUTarget("cuda", 90, 32),
}
RunOn = Callable[[Module, tuple[int, int, int], list[np.ndarray]], object]


class Cell(NamedTuple):
    """The outcome of a use on an element type: the type of its value, or why there is none."""

    result: Any = None
    rejection: str = ""


# -- kernels --------------------------------------------------------------------------------------


@cache
def _options(target: str) -> FrontendOptions:
    found = find_target(TARGETS[target])
    return found.frontend_options(found.parse_options({}))


def _build(
    fn: SourceFunction, types: dict[str, str], target: str, constants: dict[str, Any] | None = None
) -> Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = build_module(fn, types, constants or {}, {}, _options(target))
    verify_module(module)
    return module


def _see(value: Any) -> None:
    """Record the type of a value while the kernel is compiled."""
    _see.seen.append(value.type)  # pyright: ignore[reportFunctionMemberAccess]


@cache
def _probed(use: Use) -> SourceFunction:
    """A kernel that records the type of a use's value."""
    text = "def kernel(pa, pb, pc, T: tl.constexpr):\n    see(use(pa, pb, pc, T))\n"
    return kernel_from(function_text(use) + text, see=constexpr_function(_see))


@cache
def probe(use: Use, element: DType, target: str) -> Cell:
    """Build the use on one element type."""
    seen: list[Any] = []
    _see.seen = seen  # pyright: ignore[reportFunctionMemberAccess]
    types = dict.fromkeys(OPERANDS, f"*{element.short}") | {"T": "constexpr"}
    try:
        _build(_probed(use), types, target, {"T": element})
    except CompilationError as error:
        return Cell(rejection=_reason(error))
    return Cell(result=seen[0])


def _reason(error: BaseException) -> str:
    """The first cause's first line."""
    while error.__cause__ is not None:
        error = error.__cause__
    message = getattr(error, "error_message", None) or str(error) or type(error).__name__
    # Errors of operators include their class.
    wrapped = re.fullmatch(r"""\w+\((["'])(.*)\1\)""", message)
    return (wrapped[2] if wrapped else message).strip().splitlines()[0]


def batch(use: Use, elements: Sequence[DType], target: str) -> tuple[SourceFunction, list[Any]]:
    """One kernel with the use on each of the types, and its arguments: results, then operands."""
    lines, args, names = [], list[Any](), list[str]()
    rng = np.random.default_rng(len(use.text))
    for n, element in enumerate(elements):
        result = probe(use, element, target).result
        mine = [f"out{n}", *(f"{o}{n}" for o in OPERANDS)]
        count = int(np.prod([int(d) for d in getattr(result, "shape", ())]))
        lines.append(f"r{n} = use({', '.join(mine[1:])}, {language_name(element)})")
        lines.append(f"tl.store(out{n} + tl.arange(0, {count}), tl.reshape(r{n}, ({count},)))")
        dtype: Any = result.scalar
        args += [np.zeros(count, dtype.numpy), *(input_of(use, element, rng) for _ in OPERANDS)]
        names += mine
    text = f"{function_text(use)}def kernel({', '.join(names)}):\n    " + "\n    ".join(lines)
    return kernel_from(text + "\n"), args


def module_of(fn: SourceFunction, args: Sequence[np.ndarray], target: str) -> Module:
    short = {t.numpy: t.short for t in reversed(SCALARS)}
    types = {p.name: f"*{short[a.dtype]}" for p, a in zip(fn.params, args, strict=True)}
    return _build(fn, types, target)


def elements_of(use: Use) -> Sequence[DType]:
    """The types to try a use on."""
    return SCALARS if use.typed else (I32,)


def taken(use: Use, target: str) -> list[DType]:
    """The types that a target takes."""
    return [t for t in elements_of(use) if not probe(use, t, target).rejection]


# -- running --------------------------------------------------------------------------------------


def disagreement(
    use: Use, target: str, elements: Sequence[DType] = (), run_on: RunOn = run_compiled
) -> str:
    """How the use differs between the interpreter and a target, in words; "" if it does not.

    Args:
        elements: the types to try it on; by default all that the target takes.
        run_on: for the CPU, runs a module on a grid and arrays.
    """
    elements = elements or taken(use, target)
    fn, args = batch(use, elements, target)
    module = module_of(fn, args, target)
    expected, actual = ([aligned(a) for a in args] for _ in range(2))
    interpret(module, (1, 1, 1), expected)
    if target == "CPU":
        run(module, STEPS, PassContext(), [])
        run_on(module, (1, 1, 1), actual)
    else:
        run_emulated(module, (1, 1, 1), actual, warps=1, lanes=32)
    for param, x, y in zip(fn.params, actual, expected, strict=True):
        if not same_bits(x, y, close=use.close):
            return f"{param.name}, of {y.dtype}: {x[:32]} not {y[:32]}"
    return ""


def error_of_numpy(use: Use, reference: Reference, elements: Sequence[DType], ulp: float) -> str:
    """How the use on the interpreter differs from a formula in NumPy; "" if it does not.

    Args:
        ulp: how far floats may be from the formula's, in units of the last place.
    """
    fn, args = batch(use, elements, "interpreter")
    given = [a.copy() for a in args]
    interpret(module_of(fn, args, "interpreter"), (1, 1, 1), args)
    i = np.arange(16)
    for n, element in enumerate(elements):
        a, b, c = map(_computable, given[4 * n + 1 : 4 * n + 4])
        with np.errstate(all="ignore"):
            want = np.ravel(reference(Inputs(a, b, c, i, i % 3 != 0)))
        to: DType = probe(use, element, "interpreter").result.scalar
        if not _agree(_computable(args[4 * n]), want, to, ulp):
            return f"{element}: {_computable(args[4 * n])} not {want}"
    return ""


def _computable(array: np.ndarray) -> np.ndarray:
    """Floats of any kind as fp64."""
    return array if array.dtype.kind in "biu" else numbers(array).astype(np.float64)


def _agree(found: np.ndarray, want: np.ndarray, to: DType, ulp: float) -> bool:
    if not to.is_floating():
        return bool(np.array_equal(found, want.astype(found.dtype)))
    want = _computable(floats_in(want, to))
    unit = 2.0**-to.fp_mantissa_width
    return bool(np.allclose(found, want, rtol=ulp * unit, atol=0, equal_nan=True))


# -- the table ------------------------------------------------------------------------------------

GROUPS = {
    "integers": [t for t in SCALARS if t.is_int() and not t.is_bool()],
    "fp8": [t for t in SCALARS if t.is_fp8()],
    "fp16, bf16, fp32, fp64": [t for t in SCALARS if t.is_floating() and not t.is_fp8()],
}
LETTERS = {"f": FP32, "d": FP64, "i": I32, "u": U32, "l": I64, "m": U64, "b": I1}


def summary(elements: Sequence[DType]) -> str:
    """The names of element types, groups by theirs."""
    if len(elements) == len(SCALARS):
        return "all"
    names, left = list[str](), list(elements)
    for name, group in GROUPS.items():
        if all(t in left for t in group):
            names.append(name)
            left = [t for t in left if t not in group]
    return ", ".join([*names, *(str(t) for t in left)]) or "none"


HEAD = """<!-- Generated by `python -m tests.language.support_table`; do not edit. -->

# The language, name by name

The element types that each public name supports on the interpreter, the CPU and NVIDIA GPUs of
compute capability 9.0. A test compiles every entry for all three, runs it on the interpreter, the
CPU and an emulated GPU, and compares the results. The interpreter evaluates each op's definition in
NumPy and shares only the front end with compiled code; what the front end determines is checked
against independent NumPy formulas (`tilewright/conformance/references.py`), and math functions
against mpmath ([accuracy](accuracy.md)). Types that are not listed are rejected at compile time
with one of the messages below each table. "yes" marks names that do not depend on an element type;
"all" means int1, integers of 8 to 64 bits, the five fp8 formats, fp16, bf16, fp32 and fp64.

Binary operations are shown for two operands of one type; mixed types are promoted first. Tensor
methods are the functions of the same name. For `tl.dot_scaled`, the type is the storage type.
"""


def _cell(name: str, use: Use, target: str, reasons: dict[str, list[str]]) -> str:
    found: list[DType] = []
    for element in elements_of(use):
        cell = probe(use, element, target)
        if not cell.rejection:
            found.append(element)
            continue
        # One sentence for all types: the type's name is replaced by T.
        reason = re.sub(rf"\b({element}|{element.short})\b", "T", cell.rejection)
        who = reasons.setdefault(reason, [])
        if name not in who:
            who.append(name)
    return summary(found) if use.typed else ("yes" if found else "no")


def _section(title: str, uses: dict[str, Use]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    yield from (f"\n## {title}\n", f"| name | {' | '.join(TARGETS)} |", "|---|---|---|---|")
    for name, use in uses.items():
        cells = [_cell(name, use, target, reasons) for target in TARGETS]
        label = f"`tl.{name}`" if name in tl.__all__ else f"`{name}`".replace("|", "\\|")
        yield f"| {label} | {' | '.join(cells)} |"
    if reasons:
        yield "\nRejected with:\n"
    for reason, names in sorted(reasons.items()):
        escaped = reason.replace("`", "'")
        yield f"- `{escaped}`: {', '.join(f'`{n}`' for n in names)}"


def _libdevice() -> Iterator[str]:
    yield "\n## `tl.extra.libdevice`\n"
    yield "Operands and result of each overload, the same on all targets. Other types are rejected:"
    yield "`input arg type does not match. Expect one of …; cast the arguments first, with .to`.\n"
    yield from (f"| name | {' | '.join(TARGETS)} |", "|---|---|---|---|")
    for name, text in SIGNATURES.items():
        forms: list[str] = []
        for form in text.split():
            for letter in "fd" if "x" in form else "-":
                operands, result = form.replace("x", letter).split("->")
                forms.append(f"({', '.join(str(LETTERS[o]) for o in operands)}) → "
                             f"{LETTERS[result]}")  # fmt: skip
        cell = "; ".join(forms)
        yield f"| `{name}` | {cell} | {cell} | {cell} |"


def table() -> str:
    """The text of `docs/support.md`."""
    lines = [HEAD.rstrip()]
    for title, uses in SECTIONS.items():
        lines += _section(title, uses)
    modules = ", ".join(f"`tl.{m}`" for m in MODULES)
    lines.append(
        f"\n{modules} are modules; `tl.math` and `tl.core` hold names of the tables above."
    )
    lines += _section("Target-specific extras", EXTRAS)
    lines += _libdevice()
    return "\n".join(lines) + "\n"


def names() -> str:
    """The table of names in `docs/language.md`."""
    lines = ["| | in `tl` |", "|---|---|"]
    for title, uses in SECTIONS.items():
        cells = " ".join(f"`{name}`" for name in uses if name in tl.__all__)
        lines += [f"| {title} | {cells} |"] if cells else []
    return "\n".join(lines) + "\n"


def unknown() -> set[str]:
    """Public names without a use, and uses of names that are not public."""
    named = set(USES) - set(SECTIONS["Operators and tensor attributes"])
    return (set(tl.__all__) - set(MODULES)) ^ named


if __name__ == "__main__":
    TABLE.write_text(table(), "utf-8")
    LANGUAGE.write_text(NAMES.sub(names(), LANGUAGE.read_text("utf-8")), "utf-8")
