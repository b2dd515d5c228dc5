"""Decodes machine code of AMD's processors: bytes to instructions with operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.amd_emulator.formats import (
    DPP,
    DPP_FIELDS,
    FORMATS,
    GENERATIONS,
    MAI,
    SDWA,
    SDWA_FIELDS,
    Format,
    fields_of,
)

LITERAL = 255  # the code of a source whose value is the word behind the instruction
FIXED = (
    "v_fmaak",
    "v_fmamk",
    "v_madak",
    "v_madmk",
    "s_fmaak",
    "s_fmamk",
)  # these have a literal always
_SEGMENTS = ("FLAT", "SCRATCH", "GLOBAL")


class UnknownInstruction(Exception):
    """The bytes are no instruction that the emulator knows."""


@dataclass(slots=True)
class Instruction:
    """A decoded instruction.

    Attributes:
        address: of its first byte, from the start of the code.
        data: its bytes.
        format: its format; FLAT instructions have the name of their segment.
        name: as LLVM prints it, without a suffix for the encoding.
        base: the name of the same instruction on CDNA, by which its semantics are known.
        fields: of the format.
        literal: the word behind it, if it has one.
        dpp, sdwa: the fields of the extra word, if it has one.
        half: the second half of a VOPD instruction.
    """

    address: int
    data: bytes
    format: str
    name: str
    base: str
    fields: dict[str, int]
    literal: int | None = None
    dpp: dict[str, int] | None = None
    sdwa: dict[str, int] | None = None
    half: Instruction | None = field(default=None)

    @property
    def end(self) -> int:
        """The address of the next instruction."""
        return self.address + len(self.data)


@cache
def opcodes(generation: str) -> dict[tuple[str, int], tuple[str, str]]:
    """The names of instructions by format and opcode: the processor's own, and CDNA's.

    The tables are of a generation, or of what a processor has in addition or otherwise.
    """
    path = Path(__file__).parent / "opcodes" / f"{generation}.txt"
    text = path.read_text("utf-8") if path.exists() else ""
    found: dict[tuple[str, int], tuple[str, str]] = {}
    for line in text.replace("\n   ", "").splitlines():
        kind, _, entries = line.partition(": ")
        for entry in entries.split(","):
            number, name, *base = entry.split()
            found[kind, int(number)] = (name, base[0] if base else name)
    return found


class Decoder:
    """Decodes the code of one processor.

        Decoder("gfx942").decode(code, 0).name

    Attributes:
        generation: of the formats: gfx9, gfx11 or gfx12.
    """

    def __init__(self, processor: str) -> None:
        self.processor = processor
        self.generation = GENERATIONS[processor]
        self._formats = FORMATS[self.generation]
        self._names = opcodes(self.generation) | opcodes(processor)
        # VOP3 has the opcodes of the shorter formats, too.
        self._short = (("VOPC", 0), ("VOP2", 256), ("VOP1", 384 if self.has_vopd else 320))

    @property
    def has_vopd(self) -> bool:
        """Whether it is an RDNA processor, which has two instructions in one."""
        return self.generation != "gfx9"

    @property
    def short_forms(self) -> frozenset[str]:
        """The names of instructions that have a format of 32 bits, too."""
        return frozenset(
            name for (kind, _), (name, _) in self._names.items() if kind in ("VOP1", "VOP2", "VOPC")
        )

    def decode(self, code: bytes, address: int) -> Instruction:
        """The instruction at an address.

        Raises:
            UnknownInstruction: names the address and the bytes.
        """
        first = int.from_bytes(code[address : address + 4], "little")
        for kind in self._formats:
            if first & kind.mask == kind.value:
                return self._decoded(code, address, kind)
        raise self._unknown(code, address, "no format")

    def _decoded(self, code: bytes, address: int, kind: Format) -> Instruction:
        size = kind.words * 4
        bits = int.from_bytes(code[address : address + size], "little")
        fields = fields_of(kind.fields, bits)
        if kind.name == "VOPD":
            return self._dual(code, address, fields)
        form, found = self._named(kind.name, fields)
        if found is None:
            raise self._unknown(code, address, f"{form} opcode {fields['op']}")
        name, base = found
        if name.startswith(("v_mfma", "v_accvgpr_read", "v_accvgpr_write")):
            form, fields = MAI.name, fields_of(MAI.fields, bits)
        made = Instruction(address, b"", form, name, base, fields)
        size += self._extra(made, code, address + size)
        made.data = code[address : address + size]
        return made

    def _named(self, form: str, fields: dict[str, int]) -> tuple[str, tuple[str, str] | None]:
        if form == "FLAT" and "seg" in fields:
            form = _SEGMENTS[fields["seg"]]
        found = self._names.get((form, fields["op"]))
        if form == "VOP3" and found is None:
            for short, start in self._short:
                found = found or self._names.get((short, fields["op"] - start))
        return form, found

    def _extra(self, made: Instruction, code: bytes, end: int) -> int:
        """Read the word behind an instruction, if it has one; returns its bytes."""
        word = int.from_bytes(code[end : end + 4], "little")
        source = made.fields.get("src0")
        if made.format[:4] in ("VOP1", "VOP2", "VOPC", "VOP3") and source in (DPP, SDWA):
            if source == DPP:
                made.dpp = fields_of(DPP_FIELDS, word)
            else:
                made.sdwa = fields_of(SDWA_FIELDS, word)
            return 4
        fixed = made.name.startswith(FIXED) or made.name == "s_setreg_imm32_b32"
        sources = [made.fields.get(name) for name in ("src0", "src1", "src2")]
        if fixed or (made.format != MAI.name and LITERAL in sources):
            made.literal = word
            return 4
        return 0

    def _dual(self, code: bytes, address: int, fields: dict[str, int]) -> Instruction:
        names = [self._names.get(("VOPD", fields[f"op{half}"])) for half in "xy"]
        if names[0] is None or names[1] is None:
            raise self._unknown(code, address, "VOPD opcode")
        places = {
            "x": fields["vdstx"],
            "y": fields["vdsty"] << 1 | (~fields["vdstx"] & 1),
        }
        halves: list[Instruction] = []
        for half, found in zip("xy", names, strict=True):
            assert found is not None
            own = {
                "vdst": places[half],
                "src0": fields[f"src{half}0"],
                "vsrc1": fields[f"vsrc{half}1"],
            }
            halves.append(Instruction(address, b"", "VOPD", found[0], found[1], own))
        fixed = any(half.base.startswith(FIXED) for half in halves)
        size = 8
        if fixed or LITERAL in (fields["srcx0"], fields["srcy0"]):
            word = int.from_bytes(code[address + 8 : address + 12], "little")
            halves[0].literal = halves[1].literal = word
            size = 12
        halves[0].half = halves[1]
        halves[0].data = halves[1].data = code[address : address + size]
        return halves[0]

    def _unknown(self, code: bytes, address: int, what: str) -> UnknownInstruction:
        words = " ".join(
            f"{int.from_bytes(code[i : i + 4], 'little'):08x}"
            for i in range(address, min(address + 12, len(code)), 4)
        )
        return UnknownInstruction(
            f"{self.processor}: unknown instruction at {address:#x} ({what}): {words}"
        )
