"""Workarounds for faults of LLVM's back ends, as rewrites of the text of LLVM IR: miscompiles, and
superlinear compile time.

The patterns arise from constant folding, so they are applied after optimisation.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tilewright.lowering.ir_text import in_each_function
from tilewright.lowering.selected_zeros import with_selected_zeros
from tilewright.targets.cpu.machine import BLOCK, Machine


def repair(text: str, machine: Machine) -> str:
    """Rewrite optimised IR such that the machine's back end compiles it correctly."""
    text = without_lone_lanes(text)
    if machine.triple.startswith("x86_64"):  # whose extrema are selections, also of zeros
        text = with_called_divisions(text)
    else:
        text = with_selected_zeros(text)
    if machine.is_aarch64:
        text = without_stores_of_three_bytes(text)
        return with_scalable_extrema(text, machine.vector_bytes) if machine.uses_sve else text
    if "avx512f" in machine.features:
        text = with_tested_masks(with_opaque_alternatives(text))
        return with_opaque_halves(with_opaque_extrema(text))
    if "avx" in machine.features:
        return with_opaque_masks(text)
    return text


def _replaced(part: str, pattern: str, by: Callable[[re.Match[str]], str], text: str) -> str:
    """The text with all matches of a pattern replaced.

    Args:
        part: what every match contains. Compiling a pattern takes longer than searching a text for
            its part, which few have.
    """
    return re.sub(pattern, by, text) if part in text else text


_MASKED_STORE = r"""(?mx)^(?P<indent>\s*)(?:tail\ )?call\ void\ @llvm\.masked\.store\.[\w.]+\(
        (?P<type><\d+\ x\ (?P<element>\w+)>)\ (?P<value>%[\w.]+),\ ptr\ (?:align\ (?P<align>\d+)\ )?
        (?P<ptr>%[\w.]+),\ <\d+\ x\ i1>\ <(?P<mask>i1\ \w+(?:,\ i1\ \w+)*)>\).*$"""


def without_lone_lanes(text: str) -> str:
    """Replace masked stores whose constant mask has one lane set by stores of one element.

    If the value was truncated from 32 bits, LLVM 22's back end for AVX-512 combines truncation and
    store, and then stores the lane without truncating it.
    """
    return _replaced("x i1> <i1 ", _MASKED_STORE, _lone_lane, text)


def _lone_lane(found: re.Match[str]) -> str:
    lanes = [word == "true" for word in found["mask"].replace("i1 ", "").split(", ")]
    if sum(lanes) != 1:
        return found[0]
    lane, indent, element = lanes.index(True), found["indent"], found["element"]
    name = f"%lone.{found.start()}"  # unique, as offsets are
    align = f", align {found['align']}" if found["align"] else ""
    return (
        f"{indent}{name} = extractelement {found['type']} {found['value']}, i64 {lane}\n"
        f"{indent}{name}.at = getelementptr {element}, ptr {found['ptr']}, i64 {lane}\n"
        f"{indent}store {element} {name}, ptr {name}.at{align}"
    )


_STORE_OF_THREE_BYTES = r"(?m)^(?P<indent>\s*)store <3 x i8> (?P<value>%[\w.]+), (?P<rest>ptr .*)$"


def without_stores_of_three_bytes(text: str) -> str:
    """Replace stores of three bytes by stores of one integer of 24 bits.

    If the bytes were truncated from 64 bits, LLVM 22's back end for AArch64 fails an assertion.
    """
    return _replaced("store <3 x i8>", _STORE_OF_THREE_BYTES, _as_integer, text)


def _as_integer(found: re.Match[str]) -> str:
    indent, value = found["indent"], found["value"]
    name = f"%bytes.{found.start()}"  # unique, as offsets are
    four = "<4 x i32> <i32 0, i32 1, i32 2, i32 2>"
    return (
        f"{indent}{name}.four = shufflevector <3 x i8> {value}, <3 x i8> poison, {four}\n"
        f"{indent}{name}.word = bitcast <4 x i8> {name}.four to i32\n"
        f"{indent}{name} = trunc i32 {name}.word to i24\n"
        f"{indent}store i24 {name}, {found['rest']}"
    )


_OPERAND = r"(?:<[^>]*>|splat\ \([^)]*\)|[^\s,()]+)"
_DIVISIONS = "sdiv", "udiv", "srem", "urem", "sdiv exact", "udiv exact"
MOST_LANES = 512
"""Lanes of vector divisions in a module up to which they are left where they are."""

_DIVISION = rf"""(?mx)^(?P<before>\s*%[\w.]+\ =)\ (?P<name>[su](?:div|rem)(?:\ exact)?)
        \ (?P<type><(?P<lanes>\d+)\ x\ i(?P<bits>\d+)>)
        \ (?P<lhs>{_OPERAND}),\ (?P<rhs>{_OPERAND})(?P<after>,\ !.*)?$"""


def with_called_divisions(text: str) -> str:
    """Divide vectors by calls of a function for each type and constant divisor if there are many.

    x86 divides one lane at a time, in fixed registers. The scheduler of LLVM 22 checks, in
    builds with assertions, the whole live range of these registers whenever it moves one of the
    instructions: its time is quadratic in their number. What a call costs is little beside the
    divisions that it does.
    """
    if not any(f"{operation} <" in text for operation in _DIVISIONS):
        return text
    found = list(re.finditer(_DIVISION, text))
    if sum(int(match["lanes"]) for match in found if _is_by_lanes(match)) <= MOST_LANES:
        return text
    functions: dict[tuple[str, str, str], str] = {}
    text = re.sub(_DIVISION, lambda match: _called_division(match, functions), text)
    return text + "".join(map(_dividing_function, functions.values(), functions))


def _is_by_lanes(division: re.Match[str]) -> bool:
    """Whether lanes are divided one by one: not by constants of up to 32 bits, whose reciprocals
    are multiplied by as vectors, nor by powers of two."""
    rhs = division["rhs"]
    if rhs.startswith("%"):
        return True
    number = re.fullmatch(r"splat \(i64 (-?\d+)\)", rhs)
    size = abs(int(number[1])) if number else 0
    return division["bits"] == "64" and (number is None or size & (size - 1) != 0)


def _called_division(division: re.Match[str], functions: dict[tuple[str, str, str], str]) -> str:
    """The call in place of a division; adds its function, by operation, type and divisor."""
    if not _is_by_lanes(division):
        return division[0]
    type, rhs = division["type"], division["rhs"]
    divisor = "%d" if rhs.startswith("%") else rhs
    name = functions.setdefault(
        (division["name"], type, divisor), f"@lanes.divide.{len(functions)}"
    )
    operands = f"{type} {division['lhs']}" + (f", {type} {rhs}" if divisor == "%d" else "")
    return f"{division['before']} call fastcc {type} {name}({operands}){division['after'] or ''}"


def _dividing_function(name: str, key: tuple[str, str, str]) -> str:
    operation, type, divisor = key
    params = f"{type} %x" + (f", {type} %d" if divisor == "%d" else "")
    return f"""
define internal fastcc {type} {name}({params}) noinline nounwind memory(none) {{
  %q = {operation} {type} %x, {divisor}
  ret {type} %q
}}
"""


_VECTOR_EXTREMUM = rf"""(?mx)^(?P<indent>\s*)(?P<result>%[\w.]+)\ =\ (?:tail\ )?call\ (?:[a-z]+\ )*
        (?P<type><(?P<lanes>\d+)\ x\ (?P<element>float|double)>)
        \ @llvm\.(?P<which>minimum|maximum)num\.v\d+f\d+
        \(<\d+\ x\ \w+>\ (?P<lhs>{_OPERAND}),\ <\d+\ x\ \w+>\ (?P<rhs>{_OPERAND})\).*$"""


def with_scalable_extrema(text: str, vector_bytes: int) -> str:
    """Compute extrema that ignore NaN on the scalable vectors of SVE.

    LLVM 22's back end computes those of fixed vectors wider than 16 bytes lane by lane; those of
    more than one register, as of fp64, still are. The instruction ignores a quiet NaN only, and
    makes it one if both operands are the same.
    """
    used: set[str] = set()
    text = _replaced(
        "mumnum.v", _VECTOR_EXTREMUM, lambda found: _scalable(found, vector_bytes, used), text
    )
    missing = sorted(line for line in used if line.partition("(")[0] not in text)
    return text + "".join(f"\n{line}\n" for line in missing)


def _scalable(found: re.Match[str], vector_bytes: int, used: set[str]) -> str:
    """The instructions for an extremum, whose declarations are added to `used`."""
    bits = 32 if found["element"] == "float" else 64
    lanes = int(found["lanes"])
    if not 8 * BLOCK < lanes * bits <= 8 * vector_bytes:
        return found[0]
    fixed, scalable = found["type"], f"<vscale x {128 // bits} x {found['element']}>"
    short, wide = f"v{lanes}f{bits}", f"nxv{128 // bits}f{bits}"
    insert, extract = f"@llvm.vector.insert.{wide}.{short}", f"@llvm.vector.extract.{short}.{wide}"
    low, high = (f"@llvm.aarch64.sve.f{x}nm.{wide}" for x in ("min", "max"))
    best = high if found["which"] == "maximum" else low
    mask = f"<vscale x {128 // bits} x i1>"
    used.add(f"declare {scalable} {insert}({scalable}, {fixed}, i64)")
    used.add(f"declare {fixed} {extract}({scalable}, i64)")
    used |= {f"declare {scalable} {f}({mask}, {scalable}, {scalable})" for f in (low, best)}
    name = f"%extremum.{found.start()}"  # unique, as offsets are

    def extremum(to: str, function: str, lhs: str, rhs: str) -> str:
        operands = f"{scalable} {lhs}, {scalable} {rhs}"
        return f"{to} = call {scalable} {function}({mask} splat (i1 true), {operands})"

    lines: list[str] = []
    for side in ("lhs", "rhs"):
        operands = f"{scalable} poison, {fixed} {found[side]}, i64 0"
        lines.append(f"{name}.{side} = call {scalable} {insert}({operands})")
        at = f"{name}.{side}"
        lines.append(extremum(f"{at}.quiet", low, at, at))
    lines.append(extremum(f"{name}.best", best, f"{name}.lhs.quiet", f"{name}.rhs.quiet"))
    lines.append(f"{found['result']} = call {fixed} {extract}({scalable} {name}.best, i64 0)")
    return "\n".join(found["indent"] + line for line in lines)


_MASKED_LOAD = r"""(?mx)^(?P<indent>\s*)
        (?P<call>%[\w.]+\ =\ (?:tail\ )?call\ [^@\n]*
        @llvm\.masked\.load\.v(?P<lanes>\d+)(?:[if](?P<bits>32|64)|p0)\.p0\(
        [^<\n]*<\d+\ x\ i1>)\ (?P<mask>%[\w.]+|<[^>]*>),"""
_REGISTER = 128, 256  # bits of the vectors that inline assembly accepts as operands


def with_opaque_masks(text: str) -> str:
    """Make the masks of masked loads opaque to the back end, by empty inline assembly.

    LLVM 22's back end for AVX represents a mask by the sign bits of integers. If it can prove that
    no lane of a register is set, it creates a constant whose other bits are not zero, takes that
    for a mask with all lanes set, and reads the whole register, out of bounds.
    """
    return _replaced("@llvm.masked.load.", _MASKED_LOAD, _opaque, text)


def _opaque(found: re.Match[str]) -> str:
    lanes, indent = int(found["lanes"]), found["indent"]
    full = 1 << (lanes - 1).bit_length()
    least, most = (bits // full for bits in _REGISTER)
    wide = f"<{full} x i{max(least, min(most, int(found['bits'] or 64)))}>"
    name = f"%mask.{found.start()}"  # unique, as offsets are
    return (
        f"{indent}{name}.full = {_resized(found['mask'], lanes, full)}\n"
        f"{indent}{name}.wide = sext <{full} x i1> {name}.full to {wide}\n"
        f'{indent}{name}.same = call {wide} asm "", "=x,0"({wide} {name}.wide)\n'
        f"{indent}{name}.set = icmp slt {wide} {name}.same, zeroinitializer\n"
        f"{indent}{name} = {_resized(name + '.set', full, lanes)}\n"
        f"{indent}{found['call']} {name},"
    )


def _resized(mask: str, lanes: int, to: int) -> str:
    """A mask extended by lanes that are not set, or truncated."""
    picked = ", ".join(f"i32 {min(k, lanes)}" for k in range(to))
    old = f"<{lanes} x i1>"
    return f"shufflevector {old} {mask}, {old} zeroinitializer, <{to} x i32> <{picked}>"


_EXTREMUM = r"""(?mx)^(?P<indent>\s*)
        (?P<call>%[\w.]+\ =\ (?:tail\ )?call\ [^@\n]*@llvm\.(?:minimum|maximum)num\.f(?:32|64))
        \((?P<type>float|double)\ (?P<lhs>%[\w.]+),\ (?:float|double)\ (?P<rhs>%[\w.]+)\)"""


def with_opaque_extrema(text: str) -> str:
    """Make the operands of scalar extrema opaque to the back end, by empty inline assembly.

    If LLVM 22's back end for AVX-512 can prove that one operand is not NaN, such as a converted
    integer, it returns the other one even if that is NaN.
    """
    return _replaced("mumnum.f", _EXTREMUM, _opaque_operand, text)


def _opaque_operand(found: re.Match[str]) -> str:
    indent, type = found["indent"], found["type"]
    name = f"%extremum.{found.start()}"  # unique, as offsets are
    return (
        f'{indent}{name}.lhs = call {type} asm "", "=x,0"({type} {found["lhs"]})\n'
        f'{indent}{name}.rhs = call {type} asm "", "=x,0"({type} {found["rhs"]})\n'
        f"{indent}{found['call']}({type} {name}.lhs, {type} {name}.rhs)"
    )


_HALF = r"(?m)^(?P<indent>\s*)(?P<result>%[\w.]+) = bitcast i16 (?P<word>%[\w.]+) to half\b"


def with_opaque_halves(text: str) -> str:
    """Make integers whose bits are taken as a half opaque to the back end, by empty inline
    assembly.

    LLVM 22's back end for AVX512-FP16 ends the process ("Cannot select: f16 = bitcast") if the
    integer is a comparison of floats for which one flag of the processor does not suffice.
    """
    return _replaced("bitcast i16 ", _HALF, _opaque_word, text)


def _opaque_word(found: re.Match[str]) -> str:
    indent, name = found["indent"], f"%half.{found.start()}"  # unique, as offsets are
    return (
        f'{indent}{name} = call i16 asm "", "=r,0"(i16 {found["word"]})\n'
        f"{indent}{found['result']} = bitcast i16 {name} to half"
    )


_SIGNS = r"""(?mx)^(?P<indent>\s*)(?P<result>%[\w.]+)\ =\ (?:
        icmp\ slt\ (?P<signed><\d+\ x\ i\d+>)\ (?P<negative>%[\w.]+),\ zeroinitializer\b
        |trunc\ (?:nuw\ |nsw\ )*(?P<whole><\d+\ x\ i\d+>)\ (?P<odd>%[\w.]+)\ to\ <\d+\ x\ i1>)"""

_PARTS_OF_SIGNS = ", zeroinitializer", "trunc <", "trunc nuw <", "trunc nsw <", "trunc nuw nsw <"
"""Each match has one of them. Compiling the pattern takes longer than searching for these."""


def with_tested_masks(text: str) -> str:
    """Take masks from a bit of each lane of short vectors by a test of that bit, not of the sign.

    LLVM 22's back end for AVX-512 moves signs to a mask and the mask to an integer by one
    instruction (vpmovd2m and kmov by vmovmskps, of 16 and 32 bytes), but forgets other uses of the
    mask that overwrite it, which then shift or invert a register that was never set, and that the
    instruction has no encoding for the upper 16 registers.
    """
    if not any(part in text for part in _PARTS_OF_SIGNS):
        return text
    return re.sub(_SIGNS, _tested_bit, text)


def _tested_bit(found: re.Match[str]) -> str:
    type, value = found["signed"] or found["whole"], found["negative"] or found["odd"]
    lanes, bits = map(int, re.findall(r"\d+", type))
    if lanes * bits > 256:
        return found[0]
    bit = -(1 << (bits - 1)) if found["signed"] else 1
    indent, result = found["indent"], found["result"]
    name = f"%bit.{found.start()}"  # unique, as offsets are
    return (
        f"{indent}{name} = and {type} {value}, splat (i{bits} {bit})\n"
        f"{indent}{result} = icmp ne {type} {name}, zeroinitializer"
    )


_BITS = rf"""(?mx)^\s*(?P<result>%[\w.]+)\ =\ (?:and|or|xor)\ (?:disjoint\ )?
        <\d+\ x\ i(?:32|64)>\ (?P<lhs>{_OPERAND}),\ (?P<rhs>{_OPERAND})"""
_CHOICE = rf"""(?mx)^(?P<indent>\s*)(?P<head>%[\w.]+\ =\ select\ <\d+\ x\ i1>\ {_OPERAND},\ )
        (?P<type><\d+\ x\ i(?P<bits>32|64)>)\ (?P<lhs>{_OPERAND}),\ <\d+\ x\ i\d+>
        \ (?P<rhs>{_OPERAND})(?P<rest>.*)$"""


def with_opaque_alternatives(text: str) -> str:
    """Make the values that a select uses instead of computed bits opaque to the back end, by a zero
    of inline assembly.

    LLVM 22's back end for AVX-512 merges logic of three vectors, of which one may be in memory, and
    a selection between the result and one of them in one instruction (vpternlogd), and then takes
    the truth table of another order of the three. That it is one of them is not told by its name,
    as equal values may have several.
    """
    if " = select <" not in text or not (" = xor <" in text or " = or " in text):
        return text
    return in_each_function(text, _with_opaque_alternatives)


def _with_opaque_alternatives(function: str) -> str:
    logic = {found["result"]: found.group("lhs", "rhs") for found in re.finditer(_BITS, function)}

    def merges(name: str, other: str) -> bool:
        operands = logic.get(name, ())
        inner = [x for operand in operands for x in logic.get(operand, ())]
        return bool(inner) and (other.startswith("%") or other in (*operands, *inner))

    def rewritten(found: re.Match[str]) -> str:
        lhs, rhs, type = found.group("lhs", "rhs", "type")
        if merges(lhs, rhs):
            other = rhs
        elif merges(rhs, lhs):
            other = lhs
        else:
            return found[0]
        indent, name = found["indent"], f"%other.{found.start()}"  # unique, as offsets are
        scalar, lanes = f"i{found['bits']}", re.match(r"<(\d+)", type)
        assert lanes
        chosen = ", ".join(f"{type} {name if x == other else x}" for x in (lhs, rhs))
        return (
            f'{indent}{name}.zero = call {scalar} asm "", "=r,0"({scalar} 0)\n'
            f"{indent}{name}.first = insertelement {type} poison, {scalar} {name}.zero, i64 0\n"
            f"{indent}{name}.zeros = shufflevector {type} {name}.first, {type} poison, "
            f"<{lanes[1]} x i32> zeroinitializer\n"
            f"{indent}{name} = or {type} {other}, {name}.zeros\n"
            f"{indent}{found['head']}{chosen}{found['rest']}"
        )

    return re.sub(_CHOICE, rewritten, function)
