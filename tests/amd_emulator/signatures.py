"""The types of the operands of scalar and vector instructions, by name.

A signature is ``results=sources``. Types are f32, i32, u32, b32 (bits) and so on, v2f16 for two
halves in a word, v2f32 for two words; ``b128`` and wider for matrices. Others:

    m    a mask of lanes: two scalar registers of a wave of 64 lanes, one of a wave of 32; where the
         format has no field for it, it is VCC
    s    a scalar register of a vector instruction, as the lane number of v_readlane_b32
    D    the destination, read as well
    K    a literal in the middle of the operands (v_fmamk_f32)

Names are those of CDNA; the tables of opcodes map the other names of RDNA to them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Signature(NamedTuple):
    """The types of results and sources."""

    results: tuple[str, ...]
    sources: tuple[str, ...]


_TABLE = """
s_mov_b32 s_not_b32 s_brev_b32 s_wqm_b32 s_cmov_b32 s_bitset0_b32 s_bitset1_b32: b32=b32
s_mov_b64 s_not_b64 s_brev_b64 s_cmov_b64: b64=b64
s_abs_i32 s_sext_i32_i8 s_sext_i32_i16 s_flbit_i32: i32=i32
s_flbit_i32_b32 s_ff0_i32_b32 s_ff1_i32_b32 s_bcnt0_i32_b32 s_bcnt1_i32_b32: i32=u32
s_flbit_i32_b64 s_ff1_i32_b64 s_bcnt0_i32_b64 s_bcnt1_i32_b64: i32=u64
s_getpc_b64: b64=
s_setpc_b64: =b64
s_barrier_signal: =b32
s_swappc_b64: b64=b64
s_and_saveexec_b64 s_or_saveexec_b64 s_xor_saveexec_b64 s_andn2_saveexec_b64: b64=b64
s_orn2_saveexec_b64 s_andn1_saveexec_b64 s_andn1_wrexec_b64 s_andn2_wrexec_b64: b64=b64
s_and_saveexec_b32 s_or_saveexec_b32 s_xor_saveexec_b32 s_andn2_saveexec_b32: b32=b32
s_orn2_saveexec_b32 s_andn1_saveexec_b32 s_andn1_wrexec_b32 s_andn2_wrexec_b32: b32=b32
s_add_u32 s_sub_u32 s_addc_u32 s_subb_u32 s_min_u32 s_max_u32 s_mul_hi_u32: u32=u32,u32
s_add_i32 s_sub_i32 s_min_i32 s_max_i32 s_mul_i32 s_mul_hi_i32 s_absdiff_i32: i32=i32,i32
s_lshl1_add_u32 s_lshl2_add_u32 s_lshl3_add_u32 s_lshl4_add_u32: u32=u32,u32
s_cselect_b32 s_and_b32 s_or_b32 s_xor_b32 s_andn2_b32 s_orn2_b32 s_nand_b32: b32=b32,b32
s_nor_b32 s_xnor_b32 s_pack_ll_b32_b16 s_pack_lh_b32_b16 s_pack_hh_b32_b16: b32=b32,b32
s_pack_hl_b32_b16 s_bfm_b32: b32=b32,b32
s_cselect_b64 s_and_b64 s_or_b64 s_xor_b64 s_andn2_b64 s_orn2_b64 s_nand_b64: b64=b64,b64
s_nor_b64 s_xnor_b64 s_add_u64 s_sub_u64 s_mul_u64: b64=b64,b64
s_bfm_b64: b64=b32,b32
s_lshl_b32 s_lshr_b32 s_bfe_u32: u32=u32,u32
s_ashr_i32 s_bfe_i32: i32=i32,u32
s_lshl_b64 s_lshr_b64 s_bfe_u64: u64=u64,u32
s_ashr_i64 s_bfe_i64: i64=i64,u32
s_cmp_eq_i32 s_cmp_lg_i32 s_cmp_gt_i32 s_cmp_ge_i32 s_cmp_lt_i32 s_cmp_le_i32: =i32,i32
s_cmp_eq_u32 s_cmp_lg_u32 s_cmp_gt_u32 s_cmp_ge_u32 s_cmp_lt_u32 s_cmp_le_u32: =u32,u32
s_cmp_eq_u64 s_cmp_lg_u64: =u64,u64
s_bitcmp0_b32 s_bitcmp1_b32: =u32,u32
s_bitcmp0_b64 s_bitcmp1_b64: =u64,u32
s_add_f32 s_sub_f32 s_mul_f32 s_min_f32 s_max_f32: f32=f32,f32
s_minimum_f32 s_maximum_f32: f32=f32,f32
s_fmac_f32: f32=f32,f32,D
s_fmaak_f32: f32=f32,f32,K
s_fmamk_f32: f32=f32,K,f32
s_ceil_f32 s_floor_f32 s_trunc_f32 s_rndne_f32: f32=f32
s_ceil_f16 s_floor_f16 s_trunc_f16 s_rndne_f16: f16=f16
s_add_f16 s_sub_f16 s_mul_f16 s_min_f16 s_max_f16: f16=f16,f16
s_minimum_f16 s_maximum_f16: f16=f16,f16
s_fmac_f16: f16=f16,f16,D
s_cvt_f16_f32: f16=f32
s_cvt_f32_f16: f32=f16
s_cvt_hi_f32_f16: f32=u32
s_cvt_f32_i32: f32=i32
s_cvt_f32_u32: f32=u32
s_cvt_i32_f32: i32=f32
s_cvt_u32_f32: u32=f32
s_cmp_lt_f32 s_cmp_eq_f32 s_cmp_le_f32 s_cmp_gt_f32 s_cmp_lg_f32 s_cmp_ge_f32: =f32,f32
s_cmp_o_f32 s_cmp_u_f32 s_cmp_nge_f32 s_cmp_nlg_f32 s_cmp_ngt_f32 s_cmp_nle_f32: =f32,f32
s_cmp_neq_f32 s_cmp_nlt_f32: =f32,f32
s_cmp_lt_f16 s_cmp_eq_f16 s_cmp_le_f16 s_cmp_gt_f16 s_cmp_lg_f16 s_cmp_ge_f16: =f16,f16
s_cmp_o_f16 s_cmp_u_f16 s_cmp_nge_f16 s_cmp_nlg_f16 s_cmp_ngt_f16 s_cmp_nle_f16: =f16,f16
s_cmp_neq_f16 s_cmp_nlt_f16: =f16,f16

v_nop: =
v_mov_b32 v_not_b32 v_bfrev_b32: b32=b32
v_mov_b64: b64=b64
v_mov_b16 v_not_b16: b16=b16
v_swap_b32: b32=D,b32
v_readfirstlane_b32: s=b32
v_s_exp_f32 v_s_log_f32 v_s_rcp_f32 v_s_rsq_f32 v_s_sqrt_f32: s=f32
v_readlane_b32: s=b32,s
v_writelane_b32: b32=s,s
v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32: b32=b32
v_cndmask_b32: b32=b32,b32,m
v_cndmask_b16: b16=b16,b16,m
v_ffbh_u32 v_ffbl_b32: u32=u32
v_ffbh_i32: i32=i32

v_add_f32 v_sub_f32 v_subrev_f32 v_mul_f32 v_min_f32 v_max_f32 v_mul_legacy_f32: f32=f32,f32
v_minimum_f32 v_maximum_f32: f32=f32,f32
v_add_f64 v_mul_f64 v_min_f64 v_max_f64 v_minimum_f64 v_maximum_f64: f64=f64,f64
v_add_f16 v_sub_f16 v_subrev_f16 v_mul_f16 v_min_f16 v_max_f16: f16=f16,f16
v_minimum_f16 v_maximum_f16: f16=f16,f16
v_fma_f32 v_min3_f32 v_max3_f32 v_med3_f32 v_div_fixup_f32: f32=f32,f32,f32
v_minimum3_f32 v_maximum3_f32 v_minmax_f32 v_maxmin_f32: f32=f32,f32,f32
v_maximumminimum_f32 v_minimummaximum_f32: f32=f32,f32,f32
v_fma_f64 v_div_fixup_f64: f64=f64,f64,f64
v_fma_f16 v_min3_f16 v_max3_f16 v_med3_f16 v_div_fixup_f16: f16=f16,f16,f16
v_minimum3_f16 v_maximum3_f16: f16=f16,f16,f16
v_fmac_f32: f32=f32,f32,D
v_fmac_f64: f64=f64,f64,D
v_fmac_f16: f16=f16,f16,D
v_fmaak_f32 v_madak_f32: f32=f32,f32,K
v_fmamk_f32 v_madmk_f32: f32=f32,K,f32
v_mad_f32: f32=f32,f32,f32
v_mac_f32: f32=f32,f32,D
v_fmaak_f16: f16=f16,f16,K
v_fmamk_f16: f16=f16,K,f16
v_fma_mix_f32 v_fma_mixlo_f16 v_fma_mixhi_f16: mix=mix,mix,mix
v_div_scale_f32: f32,m=f32,f32,f32
v_div_scale_f64: f64,m=f64,f64,f64
v_div_fmas_f32: f32=f32,f32,f32
v_div_fmas_f64: f64=f64,f64,f64
v_rcp_f32 v_rsq_f32 v_sqrt_f32 v_exp_f32 v_log_f32 v_sin_f32 v_cos_f32: f32=f32
v_rcp_iflag_f32 v_trunc_f32 v_ceil_f32 v_floor_f32 v_rndne_f32 v_fract_f32: f32=f32
v_rcp_f64 v_rsq_f64 v_sqrt_f64 v_trunc_f64 v_ceil_f64 v_floor_f64 v_rndne_f64: f64=f64
v_fract_f64 v_frexp_mant_f64: f64=f64
v_frexp_mant_f32: f32=f32
v_frexp_exp_i32_f32: i32=f32
v_frexp_exp_i32_f64: i32=f64
v_rcp_f16 v_rsq_f16 v_sqrt_f16 v_exp_f16 v_log_f16 v_sin_f16 v_cos_f16: f16=f16
v_trunc_f16 v_ceil_f16 v_floor_f16 v_rndne_f16 v_fract_f16 v_frexp_mant_f16: f16=f16
v_frexp_exp_i16_f16: i16=f16
v_ldexp_f32: f32=f32,i32
v_ldexp_f64: f64=f64,i32
v_ldexp_f16: f16=f16,i16
v_cvt_f32_i32: f32=i32
v_cvt_f32_u32: f32=u32
v_cvt_i32_f32 v_cvt_flr_i32_f32 v_cvt_rpi_i32_f32: i32=f32
v_cvt_u32_f32: u32=f32
v_cvt_f64_i32: f64=i32
v_cvt_f64_u32: f64=u32
v_cvt_i32_f64: i32=f64
v_cvt_u32_f64: u32=f64
v_cvt_f32_f64: f32=f64
v_cvt_f64_f32: f64=f32
v_cvt_f16_f32: f16=f32
v_cvt_f32_f16: f32=f16
v_cvt_f32_bf16: f32=b16
v_cvt_f16_u16: f16=u16
v_cvt_f16_i16: f16=i16
v_cvt_u16_f16: u16=f16
v_cvt_i16_f16: i16=f16
v_cvt_i32_i16: i32=i16
v_cvt_u32_u16: u32=u16
v_cvt_f32_ubyte0 v_cvt_f32_ubyte1 v_cvt_f32_ubyte2 v_cvt_f32_ubyte3: f32=u32
v_cvt_pkrtz_f16_f32 v_cvt_pk_f16_f32: b32=f32,f32
v_cvt_pk_bf16_f32: b32=f32,f32
v_cvt_f32_fp8 v_cvt_f32_bf8: f32=b32
v_cvt_pk_f32_fp8 v_cvt_pk_f32_bf8: v2f32=b32
v_cvt_pk_fp8_f32 v_cvt_pk_bf8_f32: b32=f32,f32
v_cvt_pk_i16_i32: b32=i32,i32
v_cvt_pk_u16_u32: b32=u32,u32
v_pack_b32_f16: b32=f16,f16

v_and_b32 v_or_b32 v_xor_b32 v_xnor_b32: b32=b32,b32
v_and_b16 v_or_b16 v_xor_b16: b16=b16,b16
v_add_u32 v_sub_u32 v_subrev_u32 v_mul_lo_u32 v_mul_hi_u32 v_min_u32 v_max_u32: u32=u32,u32
v_mul_u32_u24 v_mul_hi_u32_u24: u32=u32,u32
v_add_i32 v_sub_i32 v_mul_hi_i32 v_min_i32 v_max_i32 v_mul_i32_i24 v_mul_hi_i32_i24: i32=i32,i32
v_add_u16 v_sub_u16 v_subrev_u16 v_mul_lo_u16 v_min_u16 v_max_u16: u16=u16,u16
v_add_i16 v_sub_i16 v_min_i16 v_max_i16: i16=i16,i16
v_lshlrev_b32 v_lshrrev_b32: u32=u32,u32
v_ashrrev_i32: i32=u32,i32
v_lshlrev_b64 v_lshrrev_b64: u64=u32,u64
v_ashrrev_i64: i64=u32,i64
v_lshlrev_b16 v_lshrrev_b16: u16=u16,u16
v_ashrrev_i16: i16=u16,i16
v_bcnt_u32_b32 v_mbcnt_lo_u32_b32 v_mbcnt_hi_u32_b32 v_bfm_b32: u32=u32,u32
v_bfe_u32 v_lshl_add_u32 v_add_lshl_u32 v_add3_u32 v_xad_u32: u32=u32,u32,u32
v_bfe_i32: i32=i32,u32,u32
v_lshl_or_b32 v_and_or_b32 v_or3_b32 v_xor3_b32 v_bfi_b32 v_perm_b32 v_bitop3_b32: b32=b32,b32,b32
v_bitop3_b16: b16=b16,b16,b16
v_alignbit_b32 v_alignbyte_b32: b32=b32,b32,b32
v_lshl_add_u64: u64=u64,u32,u64
v_min3_u32 v_max3_u32 v_med3_u32 v_mad_u32_u24 v_sad_u32 v_minmax_u32 v_maxmin_u32: u32=u32,u32,u32
v_min3_i32 v_max3_i32 v_med3_i32 v_mad_i32_i24 v_minmax_i32 v_maxmin_i32: i32=i32,i32,i32
v_min3_u16 v_max3_u16 v_med3_u16 v_mad_u16 v_mad_legacy_u16: u16=u16,u16,u16
v_min3_i16 v_max3_i16 v_med3_i16 v_mad_i16 v_mad_legacy_i16: i16=i16,i16,i16
v_mad_u32_u16: u32=u16,u16,u32
v_mad_i32_i16: i32=i16,i16,i32
v_mad_u64_u32: u64,m=u32,u32,u64
v_mad_i64_i32: i64,m=i32,i32,i64
v_add_co_u32 v_sub_co_u32 v_subrev_co_u32: u32,m=u32,u32
v_addc_co_u32 v_subb_co_u32 v_subbrev_co_u32: u32,m=u32,u32,m
v_add_u64 v_sub_u64 v_mul_lo_u64: u64=u64,u64

v_pk_add_f16 v_pk_mul_f16 v_pk_min_f16 v_pk_max_f16: v2f16=v2f16,v2f16
v_pk_minimum_f16 v_pk_maximum_f16: v2f16=v2f16,v2f16
v_pk_fma_f16: v2f16=v2f16,v2f16,v2f16
v_pk_minimum3_f16 v_pk_maximum3_f16: v2f16=v2f16,v2f16,v2f16
v_pk_add_u16 v_pk_sub_u16 v_pk_mul_lo_u16 v_pk_min_u16 v_pk_max_u16: v2u16=v2u16,v2u16
v_pk_lshlrev_b16 v_pk_lshrrev_b16: v2u16=v2u16,v2u16
v_pk_add_i16 v_pk_sub_i16 v_pk_min_i16 v_pk_max_i16 v_pk_ashrrev_i16: v2i16=v2i16,v2i16
v_pk_mad_u16: v2u16=v2u16,v2u16,v2u16
v_pk_mad_i16: v2i16=v2i16,v2i16,v2i16
v_pk_add_f32 v_pk_mul_f32: v2f32=v2f32,v2f32
v_pk_fma_f32: v2f32=v2f32,v2f32,v2f32
v_pk_mov_b32: v2b32=v2b32,v2b32
v_dot4c_i32_i8: i32=b32,b32,D
v_dot4_i32_i8 v_dot4_i32_iu8 v_dot8_i32_i4: i32=b32,b32,i32
v_dot4_u32_u8: u32=b32,b32,u32
v_dot2_f32_f16: f32=b32,b32,f32
v_dot2c_f32_f16: f32=b32,b32,D
v_permlane16_b32 v_permlanex16_b32: b32=b32,s,s
v_permlane64_b32: b32=b32

v_mfma_f32_32x32x8_f16 v_mfma_f32_32x32x8_bf16: b512=b64,b64,b512
v_mfma_f32_16x16x16_f16 v_mfma_f32_16x16x16_bf16: b128=b64,b64,b128
v_mfma_f32_32x32x2_f32: b512=b32,b32,b512
v_mfma_f32_16x16x4_f32: b128=b32,b32,b128
v_mfma_f32_32x32x4_xf32: b512=b64,b64,b512
v_mfma_f32_16x16x8_xf32: b128=b64,b64,b128
v_mfma_i32_32x32x16_i8: b512=b64,b64,b512
v_mfma_i32_16x16x32_i8: b128=b64,b64,b128
v_mfma_i32_32x32x8_i8: b512=b32,b32,b512
v_mfma_i32_16x16x16_i8: b128=b32,b32,b128
v_mfma_f32_32x32x16_fp8_fp8 v_mfma_f32_32x32x16_fp8_bf8: b512=b64,b64,b512
v_mfma_f32_32x32x16_bf8_fp8 v_mfma_f32_32x32x16_bf8_bf8: b512=b64,b64,b512
v_mfma_f32_16x16x32_fp8_fp8 v_mfma_f32_16x16x32_fp8_bf8: b128=b64,b64,b128
v_mfma_f32_16x16x32_bf8_fp8 v_mfma_f32_16x16x32_bf8_bf8: b128=b64,b64,b128
v_mfma_f32_16x16x32_f16 v_mfma_f32_16x16x32_bf16: b128=b128,b128,b128
v_mfma_f32_32x32x16_f16 v_mfma_f32_32x32x16_bf16: b512=b128,b128,b512
v_mfma_i32_32x32x32_i8: b512=b128,b128,b512
v_mfma_i32_16x16x64_i8: b128=b128,b128,b128
v_mfma_f64_16x16x4_f64: b256=b64,b64,b256
v_mfma_f64_4x4x4_4b_f64: b64=b64,b64,b64
"""

_FLOAT_COMPARISONS = (
    *("f", "lt", "eq", "le", "gt", "lg", "ge", "o", "u"),
    *("nge", "nlg", "ngt", "nle", "neq", "nlt", "tru", "class"),
)
_INTEGER_COMPARISONS = ("f", "lt", "eq", "le", "gt", "ne", "ge", "t")


def _parsed(text: str) -> Signature:
    results, _, sources = text.partition("=")
    return Signature(
        tuple(x for x in results.split(",") if x), tuple(x for x in sources.split(",") if x)
    )


@cache
def signatures() -> dict[str, Signature]:
    """The signature of each scalar and vector instruction, by its name on CDNA."""
    found: dict[str, Signature] = {}
    for line in filter(None, _TABLE.splitlines()):
        names, _, text = line.partition(": ")
        found |= dict.fromkeys(names.split(), _parsed(text))
    for kind in ("f16", "f32", "f64"):
        for what in _FLOAT_COMPARISONS:
            second = ("u16" if kind == "f16" else "u32") if what == "class" else kind
            found[f"v_cmp_{what}_{kind}"] = _parsed(f"m={kind},{second}")
            found[f"v_cmpx_{what}_{kind}"] = _parsed(f"m={kind},{second}")
    for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
        for what in _INTEGER_COMPARISONS:
            found[f"v_cmp_{what}_{kind}"] = _parsed(f"m={kind},{kind}")
            found[f"v_cmpx_{what}_{kind}"] = _parsed(f"m={kind},{kind}")
    for shape in ("f32_16x16x16_f16", "f32_16x16x16_bf16"):
        found[f"v_wmma_{shape}"] = _parsed("wide=wmma,wmma,wide")
    found["v_wmma_f16_16x16x16_f16"] = found["v_wmma_bf16_16x16x16_bf16"] = _parsed(
        "wide=wmma,wmma,wide"
    )
    found["v_wmma_i32_16x16x16_iu8"] = _parsed("wide=wmma8,wmma8,wide")
    for a in ("fp8", "bf8"):
        for b in ("fp8", "bf8"):
            found[f"v_wmma_f32_16x16x16_{a}_{b}"] = _parsed("wide=wmma8,wmma8,wide")
    return found


def signature(name: str) -> Signature | None:
    """The signature of an instruction by its name on CDNA; None if it has none."""
    return signatures().get(name)


# The registers of types whose name does not state their size.
WIDTHS = {"v2f32": 2, "v2b32": 2, "mix": 1, "v2f16": 1, "v2u16": 1, "v2i16": 1, "D": 1, "K": 1}


def words_of(kind: str) -> int:
    """The number of registers of a type."""
    if kind in WIDTHS:
        return WIDTHS[kind]
    return max(1, int(kind[1:]) // 32)
