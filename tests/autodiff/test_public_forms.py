"""Gradients of kernels in public forms agree with torch's of the same function in fp64."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilewright as tw
from tests.autodiff import public_forms as forms
from tests.autodiff.torch_cases import Case, Tensors, assert_gradients_agree, normal

torch = pytest.importorskip("torch")
F = torch.nn.functional


ROWS, COLUMNS = 5, 37


def fused_add_rms_norm() -> Case:
    n, c = ROWS, COLUMNS
    args = {"y_ptr": torch.empty(n, c), "s_ptr": torch.empty(n, c), "x_ptr": normal(n, c)}
    args |= {"r_ptr": normal(n, c), "w_ptr": normal(c), "rstd_ptr": torch.empty(n)}
    args |= {f"{name}_row_stride": c for name in "ysxr"}
    args |= {"n_cols": c, "eps": 1e-6, "offset": 1.0}

    def function(a: Tensors) -> Tensors:
        s = a["x_ptr"] + a["r_ptr"]
        scale = torch.rsqrt((s * s).mean(-1, keepdim=True) + 1e-6)
        return {"s_ptr": s, "y_ptr": s * scale * (1 + a["w_ptr"])}

    inputs = ("x_ptr", "r_ptr", "w_ptr")
    return Case(
        forms.fused_add_rms_norm, (n,), args, {"BLOCK_SIZE": 64}, function, inputs,
        ("y_ptr", "s_ptr"), ("rstd_ptr",),
    )  # fmt: skip


def geglu_tanh() -> Case:
    n, c = ROWS, COLUMNS
    args = {"a": normal(n, c), "b": normal(n, c), "c": torch.empty(n, c), "stride": c}
    return Case(
        forms.geglu_tanh, (n,), args, {"n_cols": c, "BLOCK_SIZE": 64},
        lambda a: {"c": F.gelu(a["a"], approximate="tanh") * a["b"]}, ("a", "b"), ("c",),
    )  # fmt: skip


def kl_divergence(log_target: bool = False) -> Case:
    n, c = ROWS, COLUMNS
    target = normal(n, c).log_softmax(-1) if log_target else normal(n, c).softmax(-1)
    args = {"pred_ptr": normal(n, c).log_softmax(-1), "target_ptr": target}
    args |= {"pred_stride": c, "target_stride": c, "loss_ptr": torch.empty(n)}
    args |= {"n_cols": c, "eps": 1e-10}

    def function(a: Tensors) -> Tensors:
        p, t = a["pred_ptr"], a["target_ptr"]
        terms = t.exp() * (t - p) if log_target else t * (t.log() - p)
        return {"loss_ptr": terms.sum(-1)}

    return Case(
        forms.kl_divergence, (n,), args, {"LOG_TARGET": log_target, "BLOCK_SIZE": 16}, function,
        ("pred_ptr", "target_ptr"), ("loss_ptr",),
    )  # fmt: skip


def kl_divergence_of_logarithms() -> Case:
    return kl_divergence(True)


def smoothed_cross_entropy(capped: bool = False) -> Case:
    n, c = ROWS, COLUMNS
    labels = torch.tensor([3, -100, 36, 0, 7])
    args = {"x_ptr": normal(n, c), "x_stride": c, "labels_ptr": labels, "n_cols": c}
    args |= {"loss_ptr": torch.zeros(n), "lse_ptr": torch.zeros(n), "ignore_index": -100}
    args |= {"label_smoothing": 0.1, "softcap": 3.0}

    def function(a: Tensors) -> Tensors:
        x = 3 * torch.tanh(a["x_ptr"] / 3) if capped else a["x_ptr"]
        loss = F.cross_entropy(x, labels, ignore_index=-100, label_smoothing=0.1, reduction="none")
        return {"loss_ptr": loss}

    return Case(
        forms.smoothed_cross_entropy, (n,), args, {"BLOCK_SIZE": 16, "HAS_SOFTCAP": capped},
        function, ("x_ptr",), ("loss_ptr",), ("lse_ptr",), ("x_ptr",),
    )  # fmt: skip


def capped_cross_entropy() -> Case:
    return smoothed_cross_entropy(True)


def rope_of_heads() -> Case:
    batch, length, heads, dim = 2, 3, 5, 12
    rows = batch * length
    args = {"q_ptr": normal(rows, heads * dim), "out_ptr": torch.empty(rows, heads * dim)}
    args |= {"cos_ptr": normal(length, dim // 2), "sin_ptr": normal(length, dim // 2)}
    args |= {"q_row_stride": heads * dim, "seq_len": length}
    args |= {"cos_row_stride": dim // 2, "sin_row_stride": dim // 2}

    def function(a: Tensors) -> Tensors:
        first, second = a["q_ptr"].view(rows, heads, dim).chunk(2, -1)
        position = torch.arange(rows) % length
        cos, sin = a["cos_ptr"][position][:, None], a["sin_ptr"][position][:, None]
        out = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        return {"out_ptr": out.view(rows, heads * dim)}

    return Case(
        forms.rope_of_heads, (rows, 2), args,
        {"head_dim": dim, "n_heads": heads, "HALF": 8, "GROUP": 4}, function,
        ("q_ptr", "cos_ptr", "sin_ptr"), ("out_ptr",),
    )  # fmt: skip


def l2_norm_of_blocks() -> Case:
    t, c = 19, COLUMNS
    args = {"x": normal(t, c), "y": torch.empty(t, c), "rstd": torch.empty(t), "eps": 1e-6, "T": t}

    def function(a: Tensors) -> Tensors:
        return {"y": a["x"] / torch.sqrt((a["x"] ** 2).sum(-1, keepdim=True) + 1e-6)}

    constexprs = {"D": c, "BD": 64, "BT": 8}
    return Case(
        forms.l2_norm_of_blocks, (3,), args, constexprs, function, ("x",), ("y",), ("rstd",)
    )


def gated_layer_norm() -> Case:
    t, c = 19, COLUMNS
    args = {"x": normal(t, c), "g": normal(t, c), "y": torch.empty(t, c), "w": normal(c)}
    args |= {"b": normal(c), "mean": torch.empty(t), "rstd": torch.empty(t), "T": t, "eps": 1e-5}

    def function(a: Tensors) -> Tensors:
        return {"y": F.layer_norm(a["x"], (c,), a["w"], a["b"]) * F.silu(a["g"])}

    return Case(
        forms.gated_layer_norm, (3,), args, {"D": c, "BD": 64, "BT": 8}, function,
        ("x", "g", "w", "b"), ("y",), ("mean", "rstd"),
    )  # fmt: skip


def chunked_linear_attention() -> Case:
    b, t, h, k, v = 2, 37, 2, 16, 32
    args = {"q": normal(b, t, h, k), "k": normal(b, t, h, k), "v": normal(b, t, h, v)}
    args |= {"o": torch.empty(b, t, h, v), "scale": 0.25, "T": t}

    def function(a: Tensors) -> Tensors:
        q, k, v = (a[name].transpose(1, 2) for name in "qkv")
        scores = (q * 0.25 @ k.transpose(-1, -2)).tril()
        return {"o": (scores @ v).transpose(1, 2).contiguous()}

    return Case(
        forms.chunked_linear_attention, (v // 16, b * h), args,
        {"H": h, "K": k, "V": v, "BT": 16, "BV": 16}, function, ("q", "k", "v"), ("o",),
    )  # fmt: skip


def grouped_matmul(m: int = 64, n: int = 48, k: int = 40) -> Case:
    args = {"a_ptr": normal(m, k), "b_ptr": normal(k, n), "c_ptr": torch.empty(m, n)}
    args |= {"M": m, "N": n, "K": k, "stride_am": k, "stride_ak": 1, "stride_bk": n}
    args |= {"stride_bn": 1, "stride_cm": n, "stride_cn": 1}
    constexprs = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 3}
    return Case(
        forms.grouped_matmul, (tw.cdiv(m, 16) * tw.cdiv(n, 16),), args, constexprs,
        lambda a: {"c_ptr": F.leaky_relu(a["a_ptr"] @ a["b_ptr"], 0.01)},
        ("a_ptr", "b_ptr"), ("c_ptr",),
    )  # fmt: skip


def grouped_matmul_beyond_the_edge() -> Case:
    return grouped_matmul(50, 37)


def attention_with_slopes() -> Case:
    z, h, kv, n, d = 2, 4, 2, 45, 16
    args = {"Q": normal(z, h, n, d), "K": normal(z, kv, n, d), "V": normal(z, kv, n, d)}
    args |= {"slopes": torch.rand(h), "Out": torch.empty(z, h, n, d), "L": torch.empty(z, h, n)}
    args |= {"sm_scale": 0.3, "stride_z": h * n * d, "stride_h": n * d, "stride_m": d}
    args |= {"stride_d": 1, "H": h, "H_KV": kv, "N_CTX": n}

    def function(a: Tensors) -> Tensors:
        k, v = (a[name].repeat_interleave(h // kv, 1) for name in "KV")
        at = torch.arange(n)
        scores = a["Q"] @ k.transpose(-1, -2) * 0.3
        scores = scores + a["slopes"][:, None, None] * (at[None, :] - at[:, None])
        scores = scores.masked_fill(at[None, :] > at[:, None], -torch.inf)
        return {"Out": scores.softmax(-1) @ v}

    return Case(
        forms.attention_with_slopes, (3, z * h), args,
        {"BLOCK_M": 16, "BLOCK_N": 16, "HEAD_DIM": d}, function, ("Q", "K", "V", "slopes"),
        ("Out",), ("L",),
    )  # fmt: skip


CASES = (
    fused_add_rms_norm, geglu_tanh, kl_divergence, kl_divergence_of_logarithms,
    smoothed_cross_entropy, capped_cross_entropy, rope_of_heads, l2_norm_of_blocks,
    gated_layer_norm, chunked_linear_attention, grouped_matmul, grouped_matmul_beyond_the_edge,
    attention_with_slopes,
)  # fmt: skip


@pytest.mark.parametrize("make", CASES)
def test_gradients_agree_with_torch(make: Callable[[], Case]) -> None:
    assert_gradients_agree(make)
