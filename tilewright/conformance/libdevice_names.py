"""The names of libdevice with their signatures: a letter an operand, x is each of fp32 and fp64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

LETTERS: dict[str, Any] = {
    "f": np.float32, "d": np.float64, "i": np.int32, "u": np.uint32, "l": np.int64, "m": np.uint64,
    "b": np.bool_,
}  # fmt: skip
FD = "fd"

UNARY = """floor ceil trunc rint nearbyint round sqrt rsqrt cbrt rcbrt exp exp2 exp10 expm1 log log2
    log10 log1p logb sin cos tan sinpi cospi asin acos atan sinh cosh tanh asinh acosh atanh erf
    erfc erfcx erfinv erfcinv normcdf normcdfinv lgamma tgamma j0 j1 y0 y1 cyl_bessel_i0
    cyl_bessel_i1 rcp_rn rcp_rz rcp_rd rcp_ru sqrt_rn sqrt_rz sqrt_rd sqrt_ru"""
FLOAT_UNARY = """saturatef fast_sinf fast_cosf fast_tanf fast_logf fast_log2f fast_log10f fast_expf
    fast_exp10f fast_tanhf rsqrt_rn"""
BINARY = "atan2 hypot rhypot fmod remainder copysign nextafter fdim " + " ".join(
    f"{op}_{mode}" for op in ("add", "sub", "mul", "div") for mode in ("rn", "rz", "rd", "ru")
)
SIGNATURES = {
    **dict.fromkeys(UNARY.split(), "x->x"),
    **dict.fromkeys(FLOAT_UNARY.split(), "f->f"),
    **dict.fromkeys(BINARY.split(), "xx->x"),
    **dict.fromkeys(["fast_dividef", "fast_powf"], "ff->f"),
    **dict.fromkeys(["fma", "fma_rn", "fma_rz", "fma_rd", "fma_ru", "norm3d", "rnorm3d"], "xxx->x"),
    **dict.fromkeys(["norm4d", "rnorm4d"], "xxxx->x"),
    **dict.fromkeys(["ldexp", "scalbn"], "xi->x"),
    **dict.fromkeys(["jn", "yn"], "ix->x"),
    **dict.fromkeys(["signbit", "ilogb"], "x->i"),
    **dict.fromkeys(["isnan", "isinf"], "x->b"),
    **dict.fromkeys(["llrint", "llround"], "x->l"),
    **dict.fromkeys(["clz", "popc", "ffs"], "i->i l->i"),
    **dict.fromkeys(["hadd", "rhadd", "mul24"], "ii->i uu->u"),
    "rcp64h": "d->d", "pow": "xx->x xi->x", "finitef": "f->b", "isfinited": "d->b",
    "abs": "i->i l->l f->f d->d", "brev": "i->i l->l", "byte_perm": "iii->i",
    "mulhi": "ii->i uu->u ll->l mm->m", "sad": "iiu->i uuu->u",
    "int2double_rn": "i->d", "uint2double_rn": "u->d",
    "int_as_float": "i->f", "uint_as_float": "u->f", "float_as_int": "f->i",
    "float_as_uint": "f->i", "longlong_as_double": "l->d", "double_as_longlong": "d->l",
    "hiloint2double": "ii->d", "double2hiint": "d->i", "double2loint": "d->i",
    **{f"{name}_{mode}": signature for mode in ("rn", "rz", "rd", "ru") for name, signature in {
        "double2float": "d->f", "double2int": "d->i", "double2uint": "d->i", "double2ll": "d->l",
        "double2ull": "d->l", "float2int": "f->i", "float2uint": "f->i", "float2ll": "f->l",
        "float2ull": "f->l", "int2float": "i->f", "uint2float": "u->f", "ll2float": "l->f",
        "ull2float": "m->f", "ll2double": "l->d", "ull2double": "m->d",
    }.items()},
}  # fmt: skip


def forms(name: str) -> Iterator[tuple[str, str]]:
    """The operands' letters and the result's, of each signature."""
    for text in SIGNATURES[name].split():
        for letter in FD if "x" in text else "-":
            operands, result = text.replace("x", letter).split("->")
            yield operands, result


# Those that give the same bits everywhere.
EXACT_TEXT = """
    floor ceil trunc rint nearbyint round llrint llround ilogb logb ldexp scalbn copysign nextafter
    fmod remainder fdim isnan isinf signbit finitef isfinited saturatef abs popc clz ffs brev
    byte_perm mul24 mulhi hadd rhadd sad int_as_float uint_as_float float_as_int float_as_uint
    longlong_as_double double_as_longlong hiloint2double double2hiint double2loint rcp64h"""
DIRECTED = {n for n in SIGNATURES if n[-3:] in ("_rn", "_rz", "_rd", "_ru")} - {"rsqrt_rn"}
EXACT_NAMES = DIRECTED | set(EXACT_TEXT.split())
