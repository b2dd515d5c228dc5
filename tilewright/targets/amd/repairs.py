"""Workarounds for faults of LLVM's back end, as rewrites of the text of LLVM IR.

LLVM's optimisation would undo them, so they are applied after it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial

from tilewright.lowering.ir_text import in_each_function
from tilewright.lowering.selected_zeros import with_selected_zeros
from tilewright.targets.amd.features import Processor
from tilewright.targets.amd.release_waits import with_release_waits


def repair(text: str, chip: Processor) -> str:
    """Rewrite optimised IR such that the back end compiles it correctly."""
    text = with_selected_zeros(text)
    if " = fcmp " in text and " = select " in text:
        text = with_selected_constants(text)
    if " = fsub " in text:
        text = with_opaque_negations(text)
    if "fptrunc" in text:
        text = with_signed_zeros(text)
    if "div i" in text or "rem i" in text:
        text = with_wide_divisors(text)
    if "mul " in text and " i64 " in text:
        text = with_wide_factors(text)
    if " = add " in text and " = icmp " in text:
        text = with_compared_sums(text)
    if " i128 " in text:
        text = with_short_equalities(text)
    if "@llvm.amdgcn.update.dpp." in text:
        text = with_moved_subtrahends(text)
    text = _TRAP.sub(r"\g<trap>ret void", text)
    if " = ashr " in text and " = or " in text:
        text = with_sign_bytes(text)
    return with_release_waits(text, chip)


_TRAP = re.compile(r"(?P<trap>call void @llvm\.trap\(\)[^\n]*\n\s*)unreachable")
"""Behind a trap, the kernel returns. On gfx1100, LLVM 22 expands a trap that ends the last block on
its path by a loop, and then leaves out the blocks in between: it ends the process at the next sum
of 64 bits in scalar registers."""

_OPERAND = r"(?:<[^>]*>|splat\ \([^)]*\)|[^\s,]+)"
_DIFFERENCE = re.compile(
    rf"""^(?P<indent>\s*)(?P<result>%[\w.]+)\ =\ fcmp\ (?:[a-z]+\ )*(?P<order>one|ueq)
        \ (?P<type><(?P<lanes>\d+)\ x\ \w+>|\w+)\ (?P<src>%[\w.]+),\ (?P<constant>(?!%){_OPERAND})
        (?P<rest>.*)$""",
    re.MULTILINE | re.VERBOSE,
)
_SELECTION = re.compile(
    rf"""\ =\ select\ (?:[a-z]+\ )*(?:<\d+\ x\ i1>|i1)\ (?P<condition>%[\w.]+),
        \ (?:<\d+\ x\ \w+>|\w+)\ (?P<a>{_OPERAND}),\ (?:<\d+\ x\ \w+>|\w+)\ (?P<b>{_OPERAND})""",
    re.VERBOSE,
)


def with_selected_constants(text: str) -> str:
    """Compare with a constant in two steps, of which one is for NaN, where the constant is selected
    by the comparison.

    LLVM 22's back end selects the compared value in place of a constant to which it is equal. But
    by these comparisons, the constant is selected for NaN as well.
    """
    return in_each_function(text, _with_selected_constants)


_STEPS = {"one": ("ord", "une", "and"), "ueq": ("uno", "oeq", "or")}


def _with_selected_constants(function: str) -> str:
    selected: dict[str, set[str]] = defaultdict(set)
    for found in _SELECTION.finditer(function):
        selected[found["condition"]] |= {found["a"], found["b"]}

    def rewritten(found: re.Match[str]) -> str:
        type, lanes, src = found["type"], found["lanes"], found["src"]
        chosen = selected.get(found["result"], set[str]())
        # Constants that are vectors may be equal in some elements.
        if found["constant"] not in chosen and not (lanes and any(c[0] in "<s" for c in chosen)):
            return found[0]
        number, equal, both = _STEPS[found["order"]]
        name = f"%compared.{found.start()}"  # unique, as offsets are
        lines = [
            f"{name}.number = fcmp {number} {type} {src}, {src}{found['rest']}",
            f"{name}.equal = fcmp {equal} {type} {src}, {found['constant']}{found['rest']}",
            f"{found['result']} = {both} {f'<{lanes} x i1>' if lanes else 'i1'} "
            f"{name}.number, {name}.equal{found['rest']}",
        ]
        return _indented(found, lines)

    return _DIFFERENCE.sub(rewritten, function)


_PRODUCT = re.compile(
    rf"""^\s*(?P<result>%[\w.]+)\ =\ fmul\ (?P<flags>(?:[a-z]+\ )*)
        (?P<type>float|<\d+\ x\ float>)\ (?P<lhs>{_OPERAND}),\ (?P<rhs>{_OPERAND})""",
    re.MULTILINE | re.VERBOSE,
)
_NEGATION = re.compile(
    r"""^\s*(?P<result>%[\w.]+)\ =\ fneg\ (?:[a-z]+\ )*(?:float|<\d+\ x\ float>)
        \ (?P<src>%[\w.]+)""",
    re.MULTILINE | re.VERBOSE,
)
_TRUNCATION = re.compile(
    r"""^(?P<indent>\s*)(?P<result>%[\w.]+\ =\ fptrunc\ (?:[a-z]+\ )*)
        (?P<type>float|<\d+\ x\ float>)\ (?P<src>%[\w.]+)
        (?P<rest>\ to\ (?:half|<\d+\ x\ half>).*)$""",
    re.MULTILINE | re.VERBOSE,
)


def with_signed_zeros(text: str) -> str:
    """Replace products that are truncated to fp16 by `fma(x, y, -0.0)`.

    LLVM 22's back end combines product and truncation to `v_fma_mixlo_f16 x, y, 0`, whose addend
    makes a product of -0.0 positive. With -0.0 as the addend the sum is the product, of any sign.
    """
    return in_each_function(text, _with_signed_zeros)


def _with_signed_zeros(function: str) -> str:
    products = {found["result"]: found for found in _PRODUCT.finditer(function)}
    negations = {found["result"]: found["src"] for found in _NEGATION.finditer(function)}

    def rewritten(found: re.Match[str]) -> str:
        source, negated = found["src"], False
        while source in negations:
            source, negated = negations[source], not negated
        product = products.get(source)
        if product is None:
            return found[0]
        type, name = found["type"], f"%product.{found.start()}"  # unique, as offsets are
        operands = (product["lhs"], product["rhs"], _minus_zero(type))
        given = ", ".join(f"{type} {operand}" for operand in operands)
        lines = [f"{name} = call {product['flags']}{type} @{_fma(type)}({given})"]
        if negated:
            lines.append(f"{name}.negated = fneg {type} {name}")
            name += ".negated"
        lines.append(f"{found['result']}{type} {name}{found['rest']}")
        return _indented(found, lines)

    return _TRUNCATION.sub(rewritten, function)


def _fma(type: str) -> str:
    return "llvm.fma.f32" if type == "float" else f"llvm.fma.v{type[1:].partition(' ')[0]}f32"


def _minus_zero(type: str) -> str:
    return "-0.0" if type == "float" else "splat (float -0.0)"


_FROM_ZERO = re.compile(
    r"""^(?P<indent>\s*)(?P<result>%[\w.]+)\ =\ (?P<fsub>fsub\ (?:[a-z]+\ )*
        (?P<type>(?:<(?P<lanes>\d+)\ x\ )?(?P<element>half|float|double)>?)
        \ (?:0\.0+e\+00|0xH0000|zeroinitializer|splat\ \(\w+\ (?:0\.0+e\+00|0xH0000)\)),\ %[\w.]+)
        (?P<rest>.*)$""",
    re.MULTILINE | re.VERBOSE,
)
_MANGLED = {"half": "f16", "float": "f32", "double": "f64"}


def with_opaque_negations(text: str) -> str:
    """Make `0.0 - y` opaque to the back end by `llvm.canonicalize`, which takes no instruction
    after a subtraction. (LLVM cannot select an arithmetic fence of a value in scalar registers.)

    LLVM 22's back end takes the difference for `-y` where it is an operand of another instruction,
    which negates it; but 0.0 - 0.0 is 0.0, not -0.0.
    """
    used: set[str] = set()

    def fenced(found: re.Match[str]) -> str:
        type, name = found["type"], f"%difference.{found.start()}"  # unique, as offsets are
        lanes = f"v{found['lanes']}" if found["lanes"] else ""
        fence = f"@llvm.canonicalize.{lanes}{_MANGLED[found['element']]}"
        used.add(f"declare {type} {fence}({type})")
        return (
            f"{found['indent']}{name} = {found['fsub']}{found['rest']}\n"
            f"{found['indent']}{found['result']} = call {type} {fence}({type} {name})"
            f"{found['rest']}"
        )

    text = _FROM_ZERO.sub(fenced, text)
    return text + "".join(f"\n{line}\n" for line in sorted(used) if line not in text)


_ASHR = re.compile(
    r"^(?P<indent>\s*)(?P<result>%[\w.]+) = ashr (?:exact )?i(?P<bits>\d+) (?P<src>%[\w.]+), "
    r"(?P<count>\d+)(?P<rest>.*)$",
    re.MULTILINE,
)
_BYTES = re.compile(
    r"^\s*(?P<result>%[\w.]+) = (?P<op>or|and|shl|lshr|ashr|trunc|zext) (?P<operands>[^!\n]*)",
    re.MULTILINE,
)
_NAME = re.compile(r"%[\w.]+")


def with_sign_bytes(text: str) -> str:
    """Replace signed shifts by whole bytes, of which an `or` takes bytes.

    LLVM 22's back end combines such an `or` to a permutation of bytes, `v_perm_b32`, and takes the
    bytes that a signed shift fills with the sign for zeros. The sum by which the sign is extended
    here is no shift to it.
    """
    return in_each_function(text, _with_sign_bytes)


def _with_sign_bytes(function: str) -> str:
    definitions = {found["result"]: found for found in _BYTES.finditer(function)}
    pending = [name for name, found in definitions.items() if found["op"] == "or"]
    permuted: set[str] = set()
    while pending:
        name = pending.pop()
        if name in definitions and name not in permuted:
            permuted.add(name)
            pending += _NAME.findall(definitions[name]["operands"])

    def rewritten(found: re.Match[str]) -> str:
        count, name = int(found["count"]), found["result"]
        if name not in permuted or count % 8 or not count:
            return found[0]
        sign, type = 1 << (int(found["bits"]) - 1 - count), f"i{found['bits']}"
        shifted = f"%shifted.{found.start()}"  # unique, as offsets are; a name may be a number
        lines = [
            f"{shifted} = lshr {type} {found['src']}, {count}",
            f"{shifted}.flipped = xor {type} {shifted}, {sign}",
            f"{name} = sub {type} {shifted}.flipped, {sign}{found['rest']}",
        ]
        return _indented(found, lines)

    return _ASHR.sub(rewritten, function)


_DIVISION = re.compile(
    r"^(?P<indent>\s*)(?P<head>%[\w.]+ = [su](?:div|rem) (?:exact )?i(?P<bits>32|64) [^,]+, )"
    r"(?P<operand>%[\w.]+)(?P<rest>.*)$",
    re.MULTILINE,
)
_PERMUTE = "i32 @llvm.amdgcn.perm(i32 {word}, i32 {word}, i32 50462976)"  # bytes 0, 1, 2 and 3


def with_wide_divisors(text: str) -> str:
    """Hide from the back end how few bits a divisor has, by a permutation of its bytes that moves
    none.

    LLVM 22 divides numbers of up to 24 bits by a reciprocal in fp32, and corrects a quotient that
    is too small, but not one that is too large: 16777214 // 7 is rounded up. As reciprocals of the
    hardware are off by up to one ulp, so are some quotients of 23 bits. Those of 8 and 16 bits are
    right; their types are not changed.
    """
    return _with_permute(_DIVISION.sub(partial(_hide, "divisor"), text), text)


def _with_permute(text: str, before: str) -> str:
    """The text with a declaration of the intrinsic, unless it is as before."""
    if text == before or "declare i32 @llvm.amdgcn.perm(" in text:
        return text
    return f"{text}\ndeclare i32 @llvm.amdgcn.perm(i32, i32, i32)\n"


def _hide(kind: str, found: re.Match[str]) -> str:
    """An instruction with another name, of that kind, for its operand, whose bits are unknown."""
    name = f"%{kind}.{found.start()}"  # unique, as offsets are
    lines = _hidden(name, found["bits"] == "64", found["operand"])
    return _indented(found, [*lines, found["head"] + name + found["rest"]])


def _hidden(name: str, is_long: bool, value: str) -> list[str]:
    """Code that renames a value, and makes its last 32 bits opaque."""
    if not is_long:
        return [f"{name} = call {_PERMUTE.format(word=value)}"]
    return [
        f"{name}.word = trunc i64 {value} to i32",
        f"{name}.hidden = call {_PERMUTE.format(word=f'{name}.word')}",
        f"{name}.low = zext i32 {name}.hidden to i64",
        f"{name}.high = and i64 {value}, -4294967296",
        f"{name} = or i64 {name}.high, {name}.low",
    ]


def _indented(found: re.Match[str], lines: list[str]) -> str:
    return "\n".join(found["indent"] + line for line in lines)


_MASK = re.compile(
    r" = (?:and i(?:32|64) %[\w.]+, (?P<mask>\d+)"
    r"|[al]shr (?:exact )?(?:i32 [^,]+, 8|i64 [^,]+, 40))(?=,|$)",
    re.MULTILINE,
)
_LONG_PRODUCT = re.compile(
    r"^(?P<indent>\s*)(?P<head>%[\w.]+ = mul (?:[a-z]+ )*i(?P<bits>64) )"
    r"(?P<operand>%[\w.]+)(?P<rest>, .*)$",
    re.MULTILINE,
)


def with_wide_factors(text: str) -> str:
    """Hide from the back end how few bits a factor of a product of 64 bits has.

    LLVM 22 removes the mask of a factor of 24 bits, as an instruction that multiplies so many bits
    ignores the others. But if a sum follows, it selects `v_mad_u64_u32`, which does not.
    """
    masks = [found["mask"] for found in _MASK.finditer(text)]
    if not any(mask is None or int(mask).bit_length() == 24 for mask in masks):
        return text
    return _with_permute(_LONG_PRODUCT.sub(partial(_hide, "factor"), text), text)


_LONG_SUM = re.compile(
    r"^\s*(?P<result>%[\w.]+) = add (?:[a-z]+ )*i64 (?P<lhs>[^,\s]+), (?P<rhs>[^,\s]+)",
    re.MULTILINE,
)
_INVERSE = re.compile(
    r"^\s*(?P<result>%[\w.]+) = xor i64 (?P<operand>%[\w.]+), -1(?=,|$)", re.MULTILINE
)
_LONG_COMPARISON = re.compile(
    r"^(?P<indent>\s*)(?P<head>%[\w.]+ = icmp (?:samesign )?(?P<predicate>eq|ne|ult|ugt) "
    r"i(?P<bits>64) )(?P<operand>%[\w.]+)(?P<rest>, (?P<rhs>[^,\s]+).*)$",
    re.MULTILINE,
)


def with_compared_sums(text: str) -> str:
    """Hide from the back end that a comparison tells whether a sum of 64 bits overflows.

    LLVM 22 takes the carry of the upper words' sum for it. If the upper word of one operand is a
    sum itself, and that of the other zero, it adds all three words with the carry from the lower
    ones at once: the sum is right, but the carry is also that of the inner sum.
    """
    return _with_permute(in_each_function(text, _with_compared_sums), text)


def _with_compared_sums(function: str) -> str:
    sums: dict[str, list[set[str]]] = defaultdict(list)
    for found in _LONG_SUM.finditer(function):
        values = set(found.group("result", "lhs", "rhs"))
        for name in values:
            sums[name].append(values)
    if not sums:
        return function
    inverses = {found["result"]: found["operand"] for found in _INVERSE.finditer(function)}

    def rewritten(found: re.Match[str]) -> str:
        lhs, rhs = (inverses.get(found[side], found[side]) for side in ("operand", "rhs"))
        if found["predicate"] in ("eq", "ne"):
            tells = rhs in ("0", "-1") and any({"1", "-1"} & sum for sum in sums.get(lhs, []))
        else:
            tells = any(rhs in sum for sum in sums.get(lhs, []))
        return _hide("sum", found) if tells else found[0]

    return _LONG_COMPARISON.sub(rewritten, function)


_LONG_EQUALITY = re.compile(
    r"^(?P<indent>\s*)(?P<result>%[\w.]+) = icmp (?:samesign )?(?P<predicate>eq|ne) i128 "
    r"(?P<src>%[\w.]+), (?P<constant>-?\d+)(?P<rest>.*)$",
    re.MULTILINE,
)


def with_short_equalities(text: str) -> str:
    """Compare numbers of 128 bits with constants, for equality, by halves.

    LLVM 22 ends the process at a constant of more than 64 bits. The upper halves of products, which
    are numbers of 64 bits, are compared so: LLVM shifts the constant instead of the product.
    """
    return _LONG_EQUALITY.sub(_by_halves, text)


def _by_halves(found: re.Match[str]) -> str:
    name, constant = f"%equal.{found.start()}", int(found["constant"])  # unique, as offsets are
    compare = f"icmp {found['predicate']} i64"
    lines = [
        f"{name}.low = trunc i128 {found['src']} to i64",
        f"{name}.shifted = lshr i128 {found['src']}, 64",
        f"{name}.high = trunc i128 {name}.shifted to i64",
        f"{name}.first = {compare} {name}.low, {_signed(constant)}",
        f"{name}.second = {compare} {name}.high, {_signed(constant >> 64)}",
        f"{found['result']} = {'and' if found['predicate'] == 'eq' else 'or'} i1 "
        f"{name}.first, {name}.second{found['rest']}",
    ]
    return _indented(found, lines)


def _signed(number: int) -> int:
    """The last 64 bits as a signed number."""
    number &= (1 << 64) - 1
    return number - (number >> 63 << 64)


_MOVE = re.compile(
    r"^(?P<indent>\s*)(?P<result>%[\w.]+) = "
    r"(?P<call>(?:tail )?call i32 @llvm\.amdgcn\.update\.dpp\.[^\n]*)$",
    re.MULTILINE,
)
_CARRIED = re.compile(
    r"^\s*(?P<result>%[\w.]+) = (?:or|and|shl|lshr|ashr|trunc|zext|sext|bitcast|insertelement) "
    r"(?P<operands>[^!\n]*)",
    re.MULTILINE,
)
_REVERSED = re.compile(r" = (?:sub|shl|lshr|ashr) (?:[a-z]+ )*i\d+ [^,]+, (?P<operand>%[\w.]+)")


def with_moved_subtrahends(text: str) -> str:
    """Permute the bytes of words from other lanes, moving none, where integers are reduced or
    shifted by them.

    LLVM 22 merges the exchange with such an instruction, as `v_subrev_u32_dpp` or
    `v_lshlrev_b32_dpp`, whose first operand is the subtrahend or the number of bits. But the
    hardware implements them by exchanging operands, and moves the other one between lanes. (Those
    of floats are not concerned.)
    """
    return _with_permute(in_each_function(text, _with_moved_subtrahends), text)


def _with_moved_subtrahends(function: str) -> str:
    definitions = {found["result"]: found["operands"] for found in _CARRIED.finditer(function)}
    pending = [found["operand"] for found in _REVERSED.finditer(function)]
    operands: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in operands:
            operands.add(name)
            pending += _NAME.findall(definitions.get(name, ""))

    def rewritten(found: re.Match[str]) -> str:
        if found["result"] not in operands:
            return found[0]
        moved = f"%moved.{found.start()}"  # unique, as offsets are
        lines = [
            f"{moved} = {found['call']}",
            f"{found['result']} = call {_PERMUTE.format(word=moved)}",
        ]
        return _indented(found, lines)

    return _MOVE.sub(rewritten, function)
