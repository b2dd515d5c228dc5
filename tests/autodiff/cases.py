"""The kernels of `kernels.py` with grids and arguments, in fp64."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.autodiff import kernels
from tests.autodiff.harness import Arrays


def rows(rng: np.random.Generator, count: int, n: int) -> Any:
    return rng.uniform(-1.0, 1.0, (count, n))


Case = tuple[str, Any, Arrays, tuple[str, ...], tuple[str, ...], dict[str, int]]


def case(name: str) -> Case:
    """A kernel, its grid, arguments, inputs, outputs and compile-time values."""
    rng = np.random.default_rng(7)
    x, y = rows(rng, 3, 13), np.zeros((3, 13))
    match name:
        case "gelu":
            args = {"x_ptr": x.ravel(), "y_ptr": y.ravel(), "n": 39}
            return kernels.GELU, 5, args, ("x_ptr",), ("y_ptr",), {"BLOCK": 8}
        case "swiglu":
            args = {"a_ptr": x, "b_ptr": rows(rng, 3, 13), "y_ptr": y, "n": 13, "stride": 13}
            return kernels.SWIGLU, 3, args, ("a_ptr", "b_ptr"), ("y_ptr",), {"BLOCK": 16}
        case "softmax":
            args = {"x_ptr": x, "y_ptr": y, "n": 13, "stride": 13}
            return kernels.SOFTMAX, 3, args, ("x_ptr",), ("y_ptr",), {"BLOCK": 16}
        case "dropout":
            args = {"x_ptr": x.ravel(), "y_ptr": y.ravel(), "n": 39, "seed": 5}
            return kernels.DROPOUT, 5, args, ("x_ptr",), ("y_ptr",), {"BLOCK": 8}
        case "rope":
            args = {"x_ptr": rows(rng, 6, 8), "y_ptr": np.zeros((6, 8)), "heads": 3}
            args["angle_ptr"] = rows(rng, 2, 4)
            return kernels.ROPE, 6, args, ("x_ptr", "angle_ptr"), ("y_ptr",), {"HALF": 4}
        case "boxes":
            args = {"a_ptr": rows(rng, 13, 4), "y_ptr": np.zeros(13), "n": 13}
            return kernels.BOXES, 2, args, ("a_ptr",), ("y_ptr",), {"BLOCK": 8}
        case "row sums":
            args = {"x_ptr": x, "y_ptr": np.zeros(3), "n": 13, "stride": 13}
            args["w_ptr"] = rng.uniform(0.5, 1.0, 13)
            return kernels.ROW_SUMS, 3, args, ("x_ptr", "w_ptr"), ("y_ptr",), {"BLOCK": 4}
        case "early return":
            args = {"x_ptr": x.ravel(), "y_ptr": y.ravel(), "n": 39, "stop": 3}
            return kernels.EARLY_RETURN, 5, args, ("x_ptr",), ("y_ptr",), {"BLOCK": 8}
        case _ if "product" in name and "row" not in name:
            return _product(name, rng)
        case _:
            return _norm(name, rng) if "norm" in name else _with_maximum(name, rng)


def _product(name: str, rng: np.random.Generator) -> Case:
    m, n, k = 14, 18, 11
    if "persistent" in name:
        args = {"a_ptr": rows(rng, m, k), "b_ptr": rows(rng, k, n), "c_ptr": np.zeros((m, n))}
        args |= {"m": m, "n": n, "k": k}
        constexprs = {"GELU": int("gelu" in name), "M": 4, "N": 8, "K": 4}
        return kernels.PERSISTENT_MATMUL, 5, args, ("a_ptr", "b_ptr"), ("c_ptr",), constexprs
    args = {"a_ptr": rows(rng, m, k), "b_ptr": rows(rng, k, n), "bias_ptr": rows(rng, 1, n)}
    args |= {"c_ptr": np.zeros((m, n)), "m": m, "n": n, "k": k}
    constexprs = {"GROUP": 0, "GELU": 0, "M": 4, "N": 8, "K": 4}
    grid: Any = (4, 3)
    if "grouped" in name:
        constexprs["GROUP"], grid = 3, 12
    constexprs["GELU"] = int("gelu" in name)
    return kernels.MATMUL, grid, args, ("a_ptr", "b_ptr", "bias_ptr"), ("c_ptr",), constexprs


def _norm(name: str, rng: np.random.Generator) -> Case:
    x, y = rows(rng, 3, 13), np.zeros((3, 13))
    match name:
        case "layer norm":
            args = {"x_ptr": x, "y_ptr": y, "n": 13, "stride": 13}
            args |= {"w_ptr": rng.uniform(0.5, 1.0, 13), "b_ptr": rng.uniform(0.5, 1.0, 13)}
            wrt = ("x_ptr", "w_ptr", "b_ptr")
            return kernels.LAYER_NORM, 3, args, wrt, ("y_ptr",), {"BLOCK": 16}
        case "looped layer norm":
            args = {"x_ptr": x, "y_ptr": y, "n": 13, "stride": 13}
            args |= {"w_ptr": rng.uniform(0.5, 1.0, 13), "b_ptr": rng.uniform(0.5, 1.0, 13)}
            wrt = ("x_ptr", "w_ptr", "b_ptr")
            return kernels.LOOPED_LAYER_NORM, 3, args, wrt, ("y_ptr",), {"BLOCK": 4}
        case "rms norm":
            args = {"x_ptr": x, "y_ptr": y, "n": 13, "stride": 13}
            args["w_ptr"] = rng.uniform(0.5, 1.0, 13)
            return kernels.RMS_NORM, 3, args, ("x_ptr", "w_ptr"), ("y_ptr",), {"BLOCK": 16}
        case _:
            x = rng.uniform(-1, 1, (2, 12, 5))
            args = {"x_ptr": x, "y_ptr": np.zeros((2, 12, 5)), "size": 5}
            args |= {"w_ptr": rng.uniform(0.5, 1.0, 12), "b_ptr": rng.uniform(0.5, 1.0, 12)}
            wrt = ("x_ptr", "w_ptr", "b_ptr")
            return kernels.GROUP_NORM, (3, 2), args, wrt, ("y_ptr",), {"C": 4, "BLOCK": 8}


def _with_maximum(name: str, rng: np.random.Generator) -> Case:
    """The kernels that carry a maximum through a loop."""
    x, y = rows(rng, 3, 13), np.zeros((3, 13))
    match name:
        case "online softmax":
            args = {"x_ptr": x, "y_ptr": y, "n": 13, "stride": 13}
            return kernels.ONLINE_SOFTMAX, 3, args, ("x_ptr",), ("y_ptr",), {"BLOCK": 4}
        case "cumsum":
            args = {"x_ptr": x, "y_ptr": y, "n": 13, "stride": 13}
            return kernels.CUMSUM, 3, args, ("x_ptr",), ("y_ptr",), {"BLOCK": 16}
        case "gated scan":
            args = {"a_ptr": rows(rng, 3, 13), "x_ptr": x, "y_ptr": y, "n": 13, "stride": 13}
            return kernels.GATED_SCAN, 3, args, ("a_ptr", "x_ptr"), ("y_ptr",), {"BLOCK": 16}
        case "product of a row":
            args = {"x_ptr": rows(rng, 3, 13) + 1.5, "y_ptr": np.zeros(3), "n": 13, "stride": 13}
            return kernels.PRODUCT_OF_ROWS, 3, args, ("x_ptr",), ("y_ptr",), {"BLOCK": 16}
        case "convolution":
            args = {"x_ptr": rows(rng, 3, 15), "w_ptr": rows(rng, 4, 9), "y_ptr": np.zeros((4, 13))}
            args |= {"n": 13, "channels": 3, "taps": 3}
            constexprs = {"BLOCK": 8, "C": 2}
            return kernels.CONVOLUTION, (2, 2), args, ("x_ptr", "w_ptr"), ("y_ptr",), constexprs
        case "log of a sum":
            args = {"x_ptr": x, "y_ptr": np.zeros(3), "n": 13, "stride": 13}
            return kernels.LOG_SUM_EXP, 3, args, ("x_ptr",), ("y_ptr",), {"BLOCK": 4}
        case "variable lengths" | "causal variable lengths":
            starts = np.array([0, 13, 13, 22, 30], np.int32)
            args = {k: rng.standard_normal((30, 8)) for k in ("q_ptr", "k_ptr", "v_ptr")}
            args |= {"starts_ptr": starts, "o_ptr": np.zeros((30, 8))}
            constexprs = {"M": 8, "N": 4, "D": 8, "CAUSAL": int("causal" in name)}
            wrt = ("q_ptr", "k_ptr", "v_ptr")
            return kernels.VARIABLE_LENGTHS, (2, 4), args, wrt, ("o_ptr",), constexprs
        case _:
            heads = 8 if name == "grouped heads" else 2
            args = {k: rng.standard_normal((heads, 22, 8)) for k in ("q_ptr", "k_ptr", "v_ptr")}
            args |= {"o_ptr": np.zeros((heads, 22, 8)), "lse_ptr": np.zeros((heads, 22)), "n": 22}
            text = {
                "full attention": kernels.FULL_ATTENTION,
                "causal attention": kernels.CAUSAL_ATTENTION,
                "windowed attention": kernels.WINDOWED_ATTENTION,
                "grouped queries": kernels.GROUPED_QUERIES,
                "grouped heads": kernels.GROUPED_HEADS,
                "attention in a branch": kernels.ATTENTION_IN_A_BRANCH,
            }[name]
            wrt = ("q_ptr", "k_ptr", "v_ptr")
            tiles = 5 if "branch" in name else 3
            return text, (tiles, heads), args, wrt, ("o_ptr", "lse_ptr"), {"M": 8, "N": 4, "D": 8}


OVERLAPPING = "convolution"
"""The kernel with tiles that overlap."""
NORMS = ("layer norm", "rms norm", "group norm")
NAMES = (
    "gelu", "swiglu", "softmax", "dropout", "rope", "boxes", "row sums", "early return", *NORMS,
    "looped layer norm", "online softmax", "log of a sum", "full attention", "causal attention",
    "windowed attention", "cumsum", "persistent product", "persistent product with gelu",
    "grouped queries", "grouped heads", "attention in a branch", "gated scan", "product of a row",
    "variable lengths", "causal variable lengths",
    "product", "product with gelu", "grouped product", "grouped product with gelu",
)  # fmt: skip
SHARED = {
    "rope": {"angle_ptr"},
    "row sums": {"w_ptr"},
    "looped layer norm": {"w_ptr", "b_ptr"},
    **{name: {"w_ptr", "b_ptr"} for name in NORMS},
    **{
        name: {"a_ptr", "b_ptr", "bias_ptr"}
        for name in ("product", "product with gelu", "grouped product", "grouped product with gelu")
    },
    "full attention": {"k_ptr", "v_ptr"},
    "windowed attention": {"k_ptr", "v_ptr"},
    "grouped queries": {"k_ptr", "v_ptr"},
    "grouped heads": {"k_ptr", "v_ptr"},
    "attention in a branch": {"k_ptr", "v_ptr"},
    "variable lengths": {"k_ptr", "v_ptr"},
    "causal variable lengths": {"k_ptr", "v_ptr"},
    "persistent product": {"a_ptr", "b_ptr"},
    "persistent product with gelu": {"a_ptr", "b_ptr"},
    "causal attention": {"k_ptr", "v_ptr"},
}
"""The inputs that programs share."""
SEVERAL_TIMES = {"looped layer norm": {"x_ptr"}, "online softmax": {"x_ptr"}}
"""The inputs whose elements a program loads several times."""
