"""The instruction formats of AMD's processors: which bits are which field.

From AMD's instruction set reference guides (MI200, MI300, RDNA3, RDNA4), chapter "Microcode
Formats"; the names of formats and fields are those of the guides.
"""

from __future__ import annotations

from dataclasses import dataclass

Fields = dict[str, tuple[int, int]]  # name -> lowest bit, number of bits


@dataclass(frozen=True)
class Format:
    """A format: the bits that select it, its size, and its fields.

    Attributes:
        name: such as ``VOP2``.
        mask, value: an instruction has the format if its first word has these bits.
        words: its size, without a literal and without the extra word of DPP and SDWA.
        fields: bits counted from the lowest of the first word.
    """

    name: str
    mask: int
    value: int
    words: int
    fields: Fields


def _format(name: str, prefix: str, words: int, fields: str) -> Format:
    """A format whose highest bits are `prefix`; fields as ``name:low+count``, low in decimal."""
    shift = 32 - len(prefix)
    mask = (1 << len(prefix)) - 1 << shift
    found: Fields = {}
    for field in fields.split():
        key, _, place = field.partition(":")
        low, _, count = place.partition("+")
        found[key] = (int(low), int(count or 1))
    return Format(name, mask, int(prefix or "0", 2) << shift, words, found)


_SCALAR = [
    _format("SOP1", "101111101", 1, "op:8+8 sdst:16+7 src0:0+8"),
    _format("SOPC", "101111110", 1, "op:16+7 src1:8+8 src0:0+8"),
    _format("SOPP", "101111111", 1, "op:16+7 simm16:0+16"),
    _format("SOPK", "1011", 1, "op:23+5 sdst:16+7 simm16:0+16"),
    _format("SOP2", "10", 1, "op:23+7 sdst:16+7 src1:8+8 src0:0+8"),
]
_VECTOR = [
    _format("VOPC", "0111110", 1, "op:17+8 vsrc1:9+8 src0:0+9"),
    _format("VOP1", "0111111", 1, "op:9+8 vdst:17+8 src0:0+9"),
    _format("VOP2", "0", 1, "op:25+6 vdst:17+8 vsrc1:9+8 src0:0+9"),
]
_SOURCES = "src0:32+9 src1:41+9 src2:50+9"
_VOP3 = f"vdst:0+8 sdst:8+7 abs:8+3 op_sel:11+4 clamp:15 op:16+10 {_SOURCES} omod:59+2 neg:61+3"
_VOP3P = (
    "vdst:0+8 neg_hi:8+3 op_sel:11+3 op_sel_hi2:14 clamp:15 op:16+7 "
    f"{_SOURCES} op_sel_hi:59+2 neg:61+3"
)
_MAI = f"vdst:0+8 cbsz:8+3 abid:11+4 acc_cd:15 op:16+7 {_SOURCES} acc:59+2 blgp:61+3"

GFX9 = (
    *_SCALAR,
    *_VECTOR,
    _format("VOP3P", "110100111", 2, _VOP3P),
    _format("VOP3", "110100", 2, _VOP3),
    _format(
        "SMEM",
        "110000",
        2,
        "sbase:0+6 sdata:6+7 soffset_en:14 glc:16 imm:17 op:18+8 offset:32+21 soffset:57+7",
    ),
    _format(
        "DS",
        "110110",
        2,
        "offset0:0+8 offset1:8+8 gds:16 op:17+8 acc:25 addr:32+8 data0:40+8 data1:48+8 vdst:56+8",
    ),
    _format(
        "FLAT",
        "110111",
        2,
        "offset:0+13 sve:13 seg:14+2 sc0:16 nt:17 op:18+7 sc1:25 addr:32+8 data:40+8 saddr:48+7 "
        "acc:55 vdst:56+8",
    ),
    _format(
        "MUBUF",
        "111000",
        2,
        "offset:0+12 offen:12 idxen:13 sc0:14 sc1:15 lds:16 nt:17 op:18+7 vaddr:32+8 vdata:40+8 "
        "srsrc:48+5 acc:55 soffset:56+8",
    ),
)

_VOPD = "srcx0:0+9 vsrcx1:9+8 opy:17+5 opx:22+4 srcy0:32+9 vsrcy1:41+8 vdsty:49+7 vdstx:56+8"
_RDNA_VECTOR = [
    _format("VOP3P", "11001100", 2, _VOP3P),
    _format("VOP3", "110101", 2, _VOP3),
    _format("VOPD", "110010", 2, _VOPD),
]
_RDNA_DS = _format(
    "DS",
    "110110",
    2,
    "offset0:0+8 offset1:8+8 gds:17 op:18+8 addr:32+8 data0:40+8 data1:48+8 vdst:56+8",
)

GFX11 = (
    *_SCALAR,
    *_VECTOR,
    *_RDNA_VECTOR,
    _RDNA_DS,
    _format(
        "SMEM",
        "111101",
        2,
        "sbase:0+6 sdata:6+7 dlc:13 glc:14 op:18+8 offset:32+21 soffset:57+7",
    ),
    _format(
        "FLAT",
        "110111",
        2,
        "offset:0+13 dlc:13 glc:14 slc:15 seg:16+2 op:18+7 addr:32+8 data:40+8 saddr:48+7 sve:55 "
        "vdst:56+8",
    ),
    _format(
        "MUBUF",
        "111000",
        2,
        "offset:0+12 slc:12 dlc:13 glc:14 op:18+8 vaddr:32+8 vdata:40+8 srsrc:48+5 tfe:53 offen:54 "
        "idxen:55 soffset:56+8",
    ),
)

_VFLAT = "saddr:0+7 op:14+8 vdst:32+8 sve:49 scope:50+2 th:52+3 data:55+8 addr:64+8 offset:72+24"
GFX12 = (
    *_SCALAR,
    *_VECTOR,
    *_RDNA_VECTOR,
    _RDNA_DS,
    _format(
        "SMEM",
        "111101",
        2,
        "sbase:0+6 sdata:6+7 op:13+6 scope:21+2 th:23+2 offset:32+24 soffset:57+7",
    ),
    _format("FLAT", "11101100", 3, _VFLAT),
    _format("SCRATCH", "11101101", 3, _VFLAT),
    _format("GLOBAL", "11101110", 3, _VFLAT),
    _format(
        "MUBUF",
        "110001",
        3,
        "soffset:0+7 op:14+8 tfe:22 vdata:32+8 srsrc:41+9 scope:50+2 th:52+3 offen:62 idxen:63 "
        "vaddr:64+8 offset:72+24",
    ),
)

FORMATS = {"gfx9": GFX9, "gfx11": GFX11, "gfx12": GFX12}
GENERATIONS = {
    "gfx90a": "gfx9", "gfx942": "gfx9", "gfx950": "gfx9", "gfx1100": "gfx11", "gfx1200": "gfx12",
}  # fmt: skip

MAI = _format("VOP3P-MAI", "110100111", 2, _MAI)  # matrix instructions of CDNA

# The extra word behind an instruction whose first source is one of these.
SDWA, DPP = 249, 250
SDWA_FIELDS: Fields = _format(
    "SDWA",
    "",
    1,
    "src0:0+8 dst_sel:8+3 dst_unused:11+2 clamp:13 omod:14+2 src0_sel:16+3 src0_sext:19 "
    "src0_neg:20 src0_abs:21 s0:23 src1_sel:24+3 src1_sext:27 src1_neg:28 src1_abs:29 s1:31 "
    "sdst:8+7 sd:15",
).fields
DPP_FIELDS: Fields = _format(
    "DPP",
    "",
    1,
    "src0:0+8 ctrl:8+9 fi:18 bound_ctrl:19 src0_neg:20 src0_abs:21 src1_neg:22 src1_abs:23 "
    "bank_mask:24+4 row_mask:28+4",
).fields


def fields_of(fields: Fields, bits: int) -> dict[str, int]:
    """The value of each field of an instruction."""
    return {name: bits >> low & (1 << count) - 1 for name, (low, count) in fields.items()}
