"""The text of decoded instructions, as LLVM prints it; for tests of the decoder and for errors."""

from __future__ import annotations

from tests.amd_emulator.accesses import access_of, data_words
from tests.amd_emulator.decode import FIXED, LITERAL, Decoder, Instruction
from tests.amd_emulator.operands import AGPR, EXEC, VCC, VGPR, Operand, OperandReader

_FLOATS = {
    240: "0.5", 241: "-0.5", 242: "1.0", 243: "-1.0", 244: "2.0", 245: "-2.0", 246: "4.0",
    247: "-4.0",
}  # fmt: skip
_INVERSE_TWO_PI = 248
_INVERSE = {16: "0.15915494", 32: "0.15915494", 64: "0.15915494309189532"}
_SPECIAL = {
    235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base",
    238: "src_private_limit", 251: "vccz", 252: "execz", 253: "scc",
}  # fmt: skip
_SELECT = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
_CACHE_BITS = ("sc0", "glc", "nt", "slc", "sc1", "dlc")
_OF_GFX90A = {"sc0": "glc", "nt": "slc", "sc1": "scc"}  # other names of the same bits
_HINTS = {1: "NT", 2: "HT", 3: "LU"}  # of RDNA4, how long data is kept in caches
_SCOPES = {1: "SE", 2: "DEV", 3: "SYS"}
_SHORT_FORMATS = ("VOP1", "VOP2", "VOPC")
_WITHOUT_SUFFIX = ("v_readfirstlane", "v_nop", "v_accvgpr", "v_swap")


class Printer:
    """Prints the instructions of a processor."""

    def __init__(self, decoder: Decoder, lanes: int) -> None:
        self.decoder = decoder
        self.reader = OperandReader(decoder, lanes)
        self.lanes = lanes

    def text(self, made: Instruction) -> str:
        """The instruction with its operands and modifiers."""
        if made.format == "VOPD":
            assert made.half is not None
            return f"{self._half(made)} :: {self._half(made.half)}"
        if made.format in ("SOPP", "SOPK"):
            return self._immediate(made)
        if made.format == "SMEM":
            return self._scalar_memory(made)
        if made.format == "DS":
            return self._lds(made)
        if made.format in ("GLOBAL", "FLAT", "SCRATCH", "MUBUF"):
            return self._memory(made)
        results, sources = self.reader.operands(made)
        shown = [self.operand(x, made) for x in (*results, *sources) if not x.implied]
        name = self._name(made) + self._suffix(made)
        return " ".join([name, ", ".join(shown), *self._modifiers(made, results, sources)]).strip()

    def _name(self, made: Instruction) -> str:
        """The name; the matrix instructions of gfx90a have other ones in LLVM."""
        if self.decoder.processor != "gfx90a" or not made.name.startswith("v_mfma"):
            return made.name
        shape, _, kind = made.name.rpartition("_")
        return f"{shape}{kind}" + "_1k" * (kind == "bf16")

    def _half(self, made: Instruction) -> str:
        results, sources = self.reader.operands(made)
        shown = [self.operand(x, made) for x in (*results, *sources) if not x.implied]
        return f"{made.name} {', '.join(shown)}"

    # -- operands -------------------------------------------------------------------------------

    def operand(self, found: Operand, made: Instruction) -> str:
        """A register or constant with its modifiers."""
        text = self._plain(found, made)
        if found.half or self._has_halves(found, made):
            text += ".h" if found.half else ".l"
        if found.extend:
            text = f"sext({text})"
        if found.absolute:
            text = f"|{text}|"
        return f"-{text}" if found.negate else text

    def _has_halves(self, found: Operand, made: Instruction) -> bool:
        named = self.reader.true16 and found.is_vector
        return named and found.kind[1:] == "16" and made.format != "VOP3P"

    def _plain(self, found: Operand, made: Instruction) -> str:
        code = found.code
        if code >= VGPR:
            letter, first = ("a", code - AGPR) if code >= AGPR else ("v", code - VGPR)
            return _registers(letter, first, found.words)
        if code == LITERAL:
            assert found.literal is not None
            return f"{_shown_literal(found.literal, found.kind):#x}"
        return self.scalar(code, found.words, found.kind)

    def scalar(self, code: int, words: int, kind: str = "b32") -> str:
        """A scalar register or an inline constant."""
        if code < VCC:
            return _registers("s", code, words)
        if code in (VCC, VCC + 1, EXEC, EXEC + 1):
            name = "vcc" if code < EXEC else "exec"
            part = ("_lo", "_hi")[code & 1] if words == 1 else ""
            return name + part
        rdna = self.decoder.has_vopd
        if code == 124 + rdna:
            return "m0"
        if code == 124:
            return "null"
        if code < 124:
            return _registers("ttmp", code - 108, words)
        return _constant(code, kind)

    def _suffix(self, made: Instruction) -> str:
        if made.sdwa is not None:
            return "_sdwa"
        if made.format in _SHORT_FORMATS:
            fixed = made.base.startswith((*FIXED, *_WITHOUT_SUFFIX))
            return "_dpp" if made.dpp is not None else "" if fixed else "_e32"
        if made.format != "VOP3":
            return ""
        if made.dpp is not None:
            return "_e64_dpp"
        return "_e64" if made.name in self.decoder.short_forms else ""

    def _modifiers(
        self, made: Instruction, results: list[Operand], sources: list[Operand]
    ) -> list[str]:
        if made.format == "VOP3P":
            return _packed_modifiers(made, len(sources))
        if made.format == "VOP3P-MAI":
            return _matrix_modifiers(made)
        found: list[str] = []
        if made.format == "VOP3":
            found += self._op_sel(made, results, sources)
        if made.name.startswith("v_bitop3"):
            table = truth_table(made.fields)
            return [f"bitop3:{table}" if table <= 10 else f"bitop3:{table:#x}", *found]
        if made.format == "VOP3":
            found += ["clamp"] * made.fields["clamp"]
            found += [("", "mul:2", "mul:4", "div:2")[made.fields["omod"]]]
        if made.sdwa is not None:
            found += _sdwa_modifiers(made, made.sdwa, len(sources))
        if made.dpp is not None:
            found += _dpp_modifiers(made.dpp)
        return [text for text in found if text]

    def _op_sel(
        self, made: Instruction, results: list[Operand], sources: list[Operand]
    ) -> list[str]:
        halves = [x.half for x in (*sources, *results[:1])]
        if self.reader.true16 or not any(halves):
            return []
        return [f"op_sel:[{','.join(map(str, halves))}]"]

    # -- formats --------------------------------------------------------------------------------

    def _immediate(self, made: Instruction) -> str:
        value = made.fields["simm16"]
        if made.format == "SOPK" and made.name != "s_setreg_imm32_b32":
            register = self.scalar(made.fields["sdst"], 1)
            return f"{made.name} {register}, {value:#x}"
        if made.name in ("s_waitcnt",):
            return f"{made.name} {wait_text(self.decoder.generation, value)}"
        if made.name.startswith(("s_branch", "s_cbranch")):
            target = made.end + 4 * (value - 0x10000 if value & 0x8000 else value)
            return f"{made.name} {target:#x}"
        if made.name == "s_barrier_wait":
            return f"{made.name} {value - 0x10000 if value & 0x8000 else value}"
        if made.name in ("s_nop", "s_setprio", "s_sleep", "s_barrier", "s_endpgm"):
            return f"{made.name} {value}".removesuffix(" 0" if made.name[2] in "be" else "!")
        return f"{made.name} {value:#x}"

    def _scalar_memory(self, made: Instruction) -> str:
        access, fields = access_of(made.base), made.fields
        if access is None:
            return made.name
        wide = 4 if "buffer" in made.name else 2
        place = self.scalar(fields["sbase"] * 2, wide)
        data = self.scalar(fields["sdata"], access.words)
        return f"{made.name} {data}, {place}, {self._scalar_offset(fields)}"

    def _scalar_offset(self, fields: dict[str, int]) -> str:
        offset = fields["offset"]
        if "imm" in fields:
            if fields["imm"]:
                register = fields["soffset"] if fields["soffset_en"] else None
            else:
                register = fields["soffset"] if fields["soffset_en"] else offset & 0x7F
                offset = 0
        else:
            register = None if fields["soffset"] == 124 else fields["soffset"]
        if register is None:
            return f"{offset:#x}"
        name = self.scalar(register, 1)
        return f"{name} offset:{offset:#x}" if offset else name

    def _lds(self, made: Instruction) -> str:
        access, fields = access_of(made.base), made.fields
        letter = "a" if fields.get("acc") else "v"
        first, second = (_registers("v", fields[k], 1) for k in ("addr", "data0"))
        if access is None:
            offset = fields["offset0"] | fields["offset1"] << 8
            shown = f" offset:{offset}" if offset else ""
            if "swizzle" in made.name:
                shown = f" offset:{_swizzle(offset)}"
            data = [] if "swizzle" in made.name else [second]
            place = [_registers("v", fields["vdst"], 1), first, *data]
            return f"{made.name} {', '.join(place)}{shown}"
        parts = [first]
        if access.action == "load" or access.returns:
            words = access.words * access.addresses
            parts.insert(0, _registers(letter, fields["vdst"], words))
        if access.action != "load":
            parts.append(_registers(letter, fields["data0"], access.words))
        if access.action in ("cmpst", "cmpstore") or (
            access.action == "store" and access.addresses == 2
        ):
            parts.append(_registers(letter, fields["data1"], access.words))
        return f"{made.name} {', '.join(parts)}{_lds_offset(fields, access.addresses)}"

    def _memory(self, made: Instruction) -> str:
        access, fields = access_of(made.base), made.fields
        if access is None:
            return " ".join([made.name, *self._cache(made.name, fields)])
        letter = "a" if fields.get("acc") else "v"
        words = data_words(access)
        if made.format == "MUBUF":
            return self._buffer(made, letter, words)
        stored = fields["data"]
        address = self._address(made)
        if access.action == "load":
            parts = [_registers(letter, fields["vdst"], words), *address]
        else:
            parts = [address[0], _registers(letter, stored, words), *address[1:]]
            if access.action != "store" and returns_value(fields):
                parts.insert(0, _registers(letter, fields["vdst"], access.words))
        signed = fields["offset"]
        bits = 24 if self.decoder.generation == "gfx12" else 13
        signed -= (signed >> bits - 1 & 1) << bits
        shown = [f"offset:{signed}"] if signed else []
        return " ".join(
            [f"{made.name} {', '.join(parts)}", *shown, *self._cache(made.name, fields)]
        )

    def _address(self, made: Instruction) -> list[str]:
        fields = made.fields
        none = 124 if self.decoder.has_vopd else 127
        if made.format == "FLAT":
            return [_registers("v", fields["addr"], 2)]
        register = fields["saddr"]
        if made.format == "GLOBAL":
            if register == none:
                return [_registers("v", fields["addr"], 2), "off"]
            return [_registers("v", fields["addr"], 1), self.scalar(register, 2)]
        base = "off" if register == none else self.scalar(register, 1)
        return [_registers("v", fields["addr"], 1) if fields["sve"] else "off", base]

    def _buffer(self, made: Instruction, letter: str, words: int) -> str:
        fields = made.fields
        address = "off"
        if fields["offen"] or fields["idxen"]:
            address = _registers("v", fields["vaddr"], fields["offen"] + fields["idxen"])
        place = fields["srsrc"] * (1 if self.decoder.generation == "gfx12" else 4)
        parts = [_registers(letter, fields["vdata"], words), address, self.scalar(place, 4)]
        parts.append(self.scalar(fields["soffset"], 1))
        if fields.get("lds"):
            parts = parts[1:]
        shown = [name for name in ("idxen", "offen") if fields[name]]
        shown += [f"offset:{fields['offset']}"] if fields["offset"] else []
        shown += self._cache(made.name, fields) + ["lds"] * fields.get("lds", 0)
        return " ".join([f"{made.name} {', '.join(parts)}", *shown])

    def _cache(self, name: str, fields: dict[str, int]) -> list[str]:
        names = _OF_GFX90A if self.decoder.processor == "gfx90a" else {}
        shown = [names.get(bit, bit) for bit in _CACHE_BITS if fields.get(bit)]
        if hint := fields.get("th"):
            what = "ATOMIC" if "atomic" in name else "STORE" if "store" in name else "LOAD"
            shown.append(f"th:TH_{what}_{'RETURN' if what == 'ATOMIC' else _HINTS[hint]}")
        if scope := fields.get("scope"):
            shown.append(f"scope:SCOPE_{_SCOPES[scope]}")
        return shown


def _shown_literal(value: int, kind: str) -> int:
    """A literal of 32 bits as LLVM shows it: extended for integers of 64."""
    if kind[1:] == "16":
        return value & 0xFFFF
    if kind in ("i64", "u64"):
        return (value & 0xFFFFFFFF) - (value << 1 & 1 << 32) & (1 << 64) - 1
    return value & 0xFFFFFFFF


def returns_value(fields: dict[str, int]) -> bool:
    """Whether an atomic of FLAT or MUBUF format returns the value before."""
    return bool(fields.get("sc0") or fields.get("glc") or fields.get("th", 0) & 1)


def truth_table(fields: dict[str, int]) -> int:
    """The table of v_bitop3, in the place of the modifiers of other instructions."""
    return fields["neg"] | fields["abs"] << 3 | fields["omod"] << 6


def _registers(letter: str, first: int, count: int) -> str:
    return f"{letter}{first}" if count == 1 else f"{letter}[{first}:{first + count - 1}]"


def _constant(code: int, kind: str) -> str:
    if code <= 192:
        return str(code - 128)
    if code <= 208:
        return str(192 - code)
    if code == _INVERSE_TWO_PI:
        return _INVERSE[int(kind[1:]) if kind[1:].isdigit() else 32]
    return _FLOATS.get(code) or _SPECIAL[code]


def wait_counts(generation: str, value: int) -> dict[str, int]:
    """The counts of s_waitcnt that are not the largest, by name."""
    if generation == "gfx9":
        counts = {
            "vmcnt": (value & 15 | (value >> 14 & 3) << 4, 63),
            "expcnt": (value >> 4 & 7, 7),
            "lgkmcnt": (value >> 8 & 15, 15),
        }
    else:
        counts = {
            "vmcnt": (value >> 10 & 63, 63),
            "expcnt": (value & 7, 7),
            "lgkmcnt": (value >> 4 & 63, 63),
        }
    return {name: count for name, (count, most) in counts.items() if count != most}


def wait_text(generation: str, value: int) -> str:
    """The counts of s_waitcnt in words."""
    return " ".join(f"{name}({count})" for name, count in wait_counts(generation, value).items())


def _swizzle(offset: int) -> str:
    if offset & 0x8000:
        places = ",".join(str(offset >> 2 * i & 3) for i in range(4))
        return f"swizzle(QUAD_PERM,{places})"
    keep, change, flip = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    if keep == 31 and change == 0 and flip and flip & (flip - 1) == 0:
        return f"swizzle(SWAP,{flip})"
    if keep == 31 and change == 0 and flip and flip & (flip + 1) == 0:
        return f"swizzle(REVERSE,{flip + 1})"
    letters: list[str] = []
    for bit in reversed(range(5)):
        k, c, f = keep >> bit & 1, change >> bit & 1, flip >> bit & 1
        letters.append(str(c ^ f) if not k or c else "i" if f else "p")
    return f'swizzle(BITMASK_PERM,"{"".join(letters)}")'


def _lds_offset(fields: dict[str, int], addresses: int) -> str:
    first, second = fields["offset0"], fields["offset1"]
    if addresses == 2:
        shown = [f"offset{i}:{x}" for i, x in enumerate((first, second)) if x]
        return "".join(f" {text}" for text in shown)
    offset = first | second << 8
    return f" offset:{offset}" if offset else ""


def _packed_modifiers(made: Instruction, count: int) -> list[str]:
    fields = made.fields
    high = fields["op_sel_hi"] | fields["op_sel_hi2"] << 2
    mixed = "fma_mix" in made.name
    shown: list[str] = []
    for name, value, usual in (
        ("op_sel", fields["op_sel"], 0),
        ("op_sel_hi", high, 0 if mixed else 7),
        ("neg_lo", 0 if mixed else fields["neg"], 0),
        ("neg_hi", 0 if mixed else fields["neg_hi"], 0),
    ):
        bits = [value >> i & 1 for i in range(count)]
        hidden = name.startswith("op_sel") and made.name.startswith(("v_dot", "v_wmma"))
        if bits != [usual & 1] * count and not (hidden and name == "op_sel_hi"):
            shown.append(f"{name}:[{','.join(map(str, bits))}]")
    return shown + ["clamp"] * fields["clamp"]


def _matrix_modifiers(made: Instruction) -> list[str]:
    fields = made.fields
    if made.name.startswith("v_accvgpr"):
        return []
    return [f"{name}:{fields[name]}" for name in ("cbsz", "abid", "blgp") if fields[name]]


def _sdwa_modifiers(made: Instruction, fields: dict[str, int], count: int) -> list[str]:
    shown: list[str] = []
    if made.format != "VOPC":
        shown += ["clamp"] * fields["clamp"]
        shown.append(f"dst_sel:{_SELECT[fields['dst_sel']]}")
        shown.append(f"dst_unused:{_UNUSED[fields['dst_unused']]}")
    shown += [f"src{i}_sel:{_SELECT[fields[f'src{i}_sel']]}" for i in range(min(count, 2))]
    return shown


def _dpp_modifiers(fields: dict[str, int]) -> list[str]:
    control = fields["ctrl"]
    kinds = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror", 0x150: "row_share"}
    kinds[0x160] = "row_xmask"
    names = {0x140: "row_mirror", 0x141: "row_half_mirror", 0x142: "row_bcast:15"}
    names |= {0x143: "row_bcast:31", 0x130: "wave_shl:1", 0x138: "wave_shr:1"}
    if control < 0x100:
        shown = f"quad_perm:[{','.join(str(control >> 2 * i & 3) for i in range(4))}]"
    else:
        shown = names.get(control) or f"{kinds[control & 0x1F0]}:{control & 15}"
    masks = [f"{name}:{fields[name]:#x}" for name in ("row_mask", "bank_mask")]
    return [shown, *masks, *(["bound_ctrl:1"] * fields["bound_ctrl"]), *(["fi:1"] * fields["fi"])]
