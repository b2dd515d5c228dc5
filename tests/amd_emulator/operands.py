"""The operands of decoded scalar and vector instructions.

Operands have the codes of the 9-bit source fields of AMD's formats: 0 to 127 are scalar registers,
128 to 255 constants and special values, 256 to 511 vector registers. Accumulation registers are
512 to 767.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.amd_emulator.decode import LITERAL, Decoder, Instruction
from tests.amd_emulator.signatures import Signature, signature, words_of

VCC, EXEC, VGPR, AGPR = 106, 126, 256, 512

# What SDWA selects of a word: bytes 0 to 3, halves 0 and 1, or all.
SDWA_BYTE, SDWA_HALF, SDWA_WORD = (0, 1, 2, 3), (4, 5), 6


@dataclass(slots=True)
class Operand:
    """A source or result.

    Attributes:
        kind: its type, as in signatures.
        code: the register or constant.
        words: the number of registers.
        literal: its value, if the code is `LITERAL`.
        negate, absolute: modifiers of floats.
        half: 1 if a 16-bit value is in the upper half of its register.
        select, extend: the part of a word that SDWA selects, and whether its sign is extended.
        packed: for each of two packed elements, the half it comes from and whether it is negated;
            for fma_mix the half that the source is, if it is one, and whether it is one.
        implied: whether the text of the instruction does not show it.
    """

    kind: str
    code: int
    words: int = 1
    literal: int | None = None
    negate: bool = False
    absolute: bool = False
    half: int = 0
    select: int = SDWA_WORD
    extend: bool = False
    packed: tuple[tuple[int, bool], ...] = ()
    implied: bool = False

    @property
    def is_vector(self) -> bool:
        """Whether it is a vector or accumulation register."""
        return self.code >= VGPR


def _bits(kind: str) -> int:
    return int(kind[1:]) if kind[1:].isdigit() else 32


class OperandReader:
    """The operands of instructions for waves of `lanes` lanes."""

    def __init__(self, decoder: Decoder, lanes: int) -> None:
        self.decoder = decoder
        self.lanes = lanes
        self.true16 = decoder.generation == "gfx11"  # halves of registers have names of their own

    def signature(self, made: Instruction) -> Signature:
        """The signature; that of matrices with the registers that they have here.

        Raises:
            NotImplementedError: there is none.
        """
        found = signature(made.base)
        if found is None:
            raise NotImplementedError(f"no signature of {made.name}")
        if not made.name.startswith("v_wmma"):
            return found
        # In RDNA3 both halves of a wave hold the operands, 16 to a lane; in RDNA4 each has a half.
        share = 1 if self.decoder.generation == "gfx11" else 2
        narrow = made.name.startswith(("v_wmma_f16", "v_wmma_bf16")) and share == 2
        words = {"wmma": 8 // share, "wmma8": 4 // share, "wide": 4 if narrow else 8}
        kinds = {name: f"b{32 * count}" for name, count in words.items()}
        return Signature(
            tuple(kinds[k] for k in found.results), tuple(kinds[k] for k in found.sources)
        )

    def operands(self, made: Instruction) -> tuple[list[Operand], list[Operand]]:
        """Results and sources of a scalar or vector instruction."""
        found = self.signature(made)
        results = [self._result(made, i, kind) for i, kind in enumerate(found.results)]
        sources = [self._source(made, i, kind, results) for i, kind in enumerate(found.sources)]
        return results, sources

    def _words(self, kind: str) -> int:
        if kind in ("m", "s"):
            return self.lanes // 32 if kind == "m" else 1
        return words_of(kind)

    def _result(self, made: Instruction, index: int, kind: str) -> Operand:
        fields = made.fields
        found = Operand(kind, 0, self._words(kind))
        if made.format.startswith("SOP"):
            found.code = fields["sdst"]
        elif kind == "m":
            found.code = self._mask_result(made, index)
            cmpx = made.name.startswith("v_cmpx") and self.decoder.has_vopd
            found.implied = cmpx
            if cmpx:
                found.code = EXEC
        elif kind == "s":
            found.code = fields["vdst"]
        else:
            self._vector_result(made, found)
        return found

    def _mask_result(self, made: Instruction, index: int) -> int:
        if made.sdwa is not None:
            return made.sdwa["sdst"] if made.sdwa["sd"] and made.format == "VOPC" else VCC
        if made.format != "VOP3":
            return VCC
        return made.fields["sdst"] if index else made.fields["vdst"]

    def _vector_result(self, made: Instruction, found: Operand) -> None:
        fields = made.fields
        accumulates = fields.get("acc_cd", 0) or made.name in (
            "v_accvgpr_write_b32",
            "v_accvgpr_mov_b32",
        )
        found.code = fields["vdst"] + (AGPR if accumulates else VGPR)
        if _bits(found.kind) != 16:
            return
        if made.format == "VOP3":
            found.half = fields["op_sel"] >> 3 & 1
        elif self.true16 and found.code & 128:
            found.code, found.half = found.code - 128, 1

    def _source(self, made: Instruction, index: int, kind: str, results: list[Operand]) -> Operand:
        found = Operand(kind, 0, self._words(kind))
        fields = made.fields
        if kind == "D":
            found.kind, found.words = results[0].kind, results[0].words
            found.code, found.half, found.implied = results[0].code, results[0].half, True
            return found
        if kind == "K":
            found.kind, found.code, found.literal = made.base[-3:], LITERAL, made.literal
            return found
        if kind == "m" and made.format not in ("VOP3", "VOP3P"):
            found.code = VCC
            found.implied = made.format == "VOPD"
            return found
        place = self._place(made, index)
        name = f"src{place}"
        found.code = fields[name] if name in fields else fields[f"vsrc{place}"] + VGPR
        found.literal = made.literal if found.code == LITERAL else None
        self._modifiers(made, place, found)
        if made.name == "v_accvgpr_mov_b32":
            found.code += VGPR
        if made.format == "VOP3P-MAI":
            self._accumulation(made, place, found)
        return found

    def _place(self, made: Instruction, index: int) -> int:
        """The number of the field of a source: a literal in between has none, nor has the
        destination of an exchange."""
        if made.base.startswith("v_swap"):
            return 0
        return (
            1 if made.base.startswith(("v_fmamk", "v_madmk", "s_fmamk")) and index == 2 else index
        )

    def _accumulation(self, made: Instruction, place: int, found: Operand) -> None:
        if made.name == "v_accvgpr_write_b32":  # whose bits in the place of flags have no meaning
            return
        reads = made.name == "v_accvgpr_read_b32"
        flag = made.fields["acc_cd"] if place == 2 else made.fields["acc"] >> place & 1
        if (flag or reads) and found.code >= VGPR:
            found.code += VGPR

    def _modifiers(self, made: Instruction, place: int, found: Operand) -> None:
        fields = made.fields
        if made.format == "VOP3P":
            self._packed(made, place, found)
        elif made.format == "VOP3" and made.name.startswith("v_bitop3"):
            found.half = fields["op_sel"] >> place & 1 if _bits(found.kind) == 16 else 0
        elif made.format == "VOP3":
            found.negate = bool(fields["neg"] >> place & 1)
            # The format of instructions with two results has another field in the place of `abs`.
            two = len(self.signature(made).results) == 2
            found.absolute = not two and bool(fields["abs"] >> place & 1)
            sixteen = _bits(found.kind) == 16 or "fp8" in made.name or "bf8" in made.name
            if sixteen and not two:
                found.half = fields["op_sel"] >> place & 1
        elif self.true16 and _bits(found.kind) == 16 and found.code >= VGPR + 128:
            found.code, found.half = found.code - 128, 1
        if made.dpp is not None and place == 0:
            found.code = made.dpp["src0"] + VGPR
            if self.true16 and _bits(found.kind) == 16 and made.format != "VOP3":
                found.half, found.code = found.code >> 7 & 1, found.code & ~128
        if made.dpp is not None and place < 2 and made.format in ("VOP1", "VOP2", "VOPC"):
            found.negate = bool(made.dpp[f"src{place}_neg"])
            found.absolute = bool(made.dpp[f"src{place}_abs"])
        if made.sdwa is not None and place < 2:
            self._sdwa(made.sdwa, place, found)

    def _sdwa(self, fields: dict[str, int], place: int, found: Operand) -> None:
        if place == 0:
            found.code = fields["src0"] + (0 if fields["s0"] else VGPR)
        elif fields["s1"]:
            found.code -= VGPR
        found.select = fields[f"src{place}_sel"]
        found.extend = bool(fields[f"src{place}_sext"])
        found.negate = bool(fields[f"src{place}_neg"])
        found.absolute = bool(fields[f"src{place}_abs"])

    def _packed(self, made: Instruction, place: int, found: Operand) -> None:
        fields = made.fields
        low = fields["op_sel"] >> place & 1
        high = fields["op_sel_hi2"] if place == 2 else fields["op_sel_hi"] >> place & 1
        negate = fields["neg"] >> place & 1, fields["neg_hi"] >> place & 1
        found.packed = (low, bool(negate[0])), (high, bool(negate[1]))
        if made.base.startswith("v_fma_mix"):  # one value, not two: `neg_hi` is `abs`
            found.negate, found.absolute = bool(negate[0]), bool(negate[1])
