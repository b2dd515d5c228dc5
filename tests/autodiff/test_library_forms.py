"""Gradients of further kernels in the forms of libraries agree with torch's in fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tests.autodiff import library_forms as forms
from tests.autodiff.torch_cases import Case, Tensors, assert_gradients_agree, normal

torch = pytest.importorskip("torch")
F = torch.nn.functional


@tw.jit
def _uniform(out_ptr, seed, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.rand(seed, at), mask=at < n)


def uniform(seed: int, *shape: int) -> Any:
    """tl.rand(seed, offset) of the elements of a contiguous array."""
    out = torch.empty(shape)
    _uniform[(tw.cdiv(out.numel(), 128),)](out, seed, out.numel(), BLOCK=128)
    return out.double()


def triplet_margin() -> Case:
    n, c = 6, 37
    args = {f"{name}_ptr": normal(n, c) for name in ("anchor", "positive", "negative")}
    args |= {"loss_ptr": torch.empty(n), "margin": 1.0, "dims": c}

    def function(a: Tensors) -> Tensors:
        x, p, q = (a[f"{name}_ptr"] for name in ("anchor", "positive", "negative"))
        near, far = ((x - y).square().sum(-1).sqrt() for y in (p, q))
        return {"loss_ptr": (near - far + 1.0).clamp(min=0)}

    inputs = "anchor_ptr", "positive_ptr", "negative_ptr"
    return Case(
        forms.triplet_margin, (n,), args, {"BLOCK_SIZE": 16}, function, inputs, ("loss_ptr",)
    )


def focal_loss() -> Case:
    n = 77
    args = {"x_ptr": normal(n), "t_ptr": torch.rand(n), "out_ptr": torch.empty(n), "n": n}

    def function(a: Tensors) -> Tensors:
        x, t = a["x_ptr"], a["t_ptr"]
        p = x.sigmoid()
        loss = F.binary_cross_entropy_with_logits(x, t, reduction="none")
        loss = loss * (1 - p * t - (1 - p) * (1 - t)) ** 2
        return {"out_ptr": (0.3 * t + 0.7 * (1 - t)) * loss}

    return Case(
        forms.focal_loss, (3,), {**args, "alpha": 0.3}, {"GAMMA": 2, "BLOCK": 32}, function,
        ("x_ptr", "t_ptr"), ("out_ptr",),
    )  # fmt: skip


def gated_chunk_output() -> Case:
    heads, t, k, v, bt = 2, 40, 32, 32, 16
    nt = tw.cdiv(t, bt)
    args = {"q": normal(heads, t, k), "v": normal(heads, t, v), "g": -torch.rand(heads, t, k)}
    args |= {"h": normal(heads, nt, k, v), "A": normal(heads, t, bt), "scale": 0.3}
    args |= {"o": torch.empty(heads, t, v)}

    def function(a: Tensors) -> Tensors:
        q = a["q"] * 0.3 * a["g"].exp()
        parts: list[Any] = []
        for i in range(nt):
            at = slice(i * bt, min(t, (i + 1) * bt))
            size = at.stop - at.start
            inner = a["A"][:, at].tril()[:, :, :size] @ a["v"][:, at]
            parts.append(q[:, at] @ a["h"][:, i] + inner)
        return {"o": torch.cat(parts, 1)}

    constexprs = {"T": t, "K": k, "V": v, "BT": bt, "BK": 16, "BV": 16, "NT": nt}
    return Case(
        forms.gated_chunk_output, (v // 16, nt, heads), args, constexprs, function,
        ("q", "v", "g", "h", "A"), ("o",),
    )  # fmt: skip


def chunk_states() -> Case:
    heads, t, k, v, bt = 2, 40, 32, 32, 16
    nt = tw.cdiv(t, bt)
    args = {"k": normal(heads, t, k), "v": normal(heads, t, v), "g": -torch.rand(heads, t)}
    args |= {"h": torch.empty(heads, nt, k, v)}

    def function(a: Tensors) -> Tensors:
        h = torch.zeros(heads, k, v, dtype=torch.float64)
        found: list[Any] = []
        for i in range(nt):
            found.append(h)
            at = slice(i * bt, min(t, (i + 1) * bt))
            g, last = a["g"][:, at], a["g"][:, at.stop - 1]
            values = a["v"][:, at] * (last[:, None] - g).exp()[..., None]
            h = h * last.exp()[:, None, None] + a["k"][:, at].mT @ values
        return {"h": torch.stack(found, 1)}

    constexprs = {"T": t, "K": k, "V": v, "BT": bt, "BK": 16, "BV": 16, "NT": nt}
    return Case(
        forms.chunk_states, (2, 2, heads), args, constexprs, function, ("k", "v", "g"), ("h",)
    )


def embeddings_with_dropout() -> Case:
    batch, length, n, words = 2, 5, 37, 11
    tokens = torch.randint(words, (batch * length,))
    args = {"x_ptr": tokens, "wte_ptr": normal(words, n), "wpe_ptr": normal(length, n)}
    args |= {"z_ptr": torch.empty(batch * length, n), "L": length, "N": n, "p": 0.25, "seed": 5}

    def function(a: Tensors) -> Tensors:
        z = a["wte_ptr"][tokens] + a["wpe_ptr"].repeat(batch, 1)
        keep = uniform(5, batch * length, n) > 0.25
        return {"z_ptr": torch.where(keep, z / 0.75, 0)}

    return Case(
        forms.embeddings_with_dropout, (batch * length,), args, {"BLOCK_SIZE": 16}, function,
        ("wte_ptr", "wpe_ptr"), ("z_ptr",), atomic=("wte_ptr",),
    )  # fmt: skip


def gathered_rows() -> Case:
    b, h, words = 13, 37, 7
    tokens = torch.randint(words, (b,))
    args = {"x_ptr": tokens, "wte_ptr": normal(words, h), "out_ptr": torch.empty(b, h)}
    args |= {"stride_v": h, "stride_h": 1, "stride_ob": h, "stride_oh": 1, "B": b, "H": h}
    return Case(
        forms.gathered_rows, (2, 3), args, {"BLOCK_B": 8, "BLOCK_H": 16},
        lambda a: {"out_ptr": a["wte_ptr"][tokens]}, ("wte_ptr",), ("out_ptr",),
        atomic=("wte_ptr",),
    )  # fmt: skip


def interleaved_rope() -> Case:
    batch, seq, heads, d = 2, 3, 2, 12
    args = {"x_ptr": normal(batch, seq, heads, d), "freqs_ptr": normal(seq, d // 2)}
    args |= {"out_ptr": torch.empty(batch, seq, heads, d), "seq": seq, "heads": heads}

    def function(a: Tensors) -> Tensors:
        even, odd = a["x_ptr"][..., ::2], a["x_ptr"][..., 1::2]
        c, s = (f(a["freqs_ptr"])[:, None] for f in (torch.cos, torch.sin))
        return {"out_ptr": torch.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2)}

    return Case(
        forms.interleaved_rope, (batch * seq * heads,), args, {"D": d, "BLOCK": 16}, function,
        ("x_ptr", "freqs_ptr"), ("out_ptr",),
    )  # fmt: skip


def top_k_router() -> Case:
    rows, experts, k = 5, 11, 4
    args = {"logits_ptr": normal(rows, experts), "weights_ptr": torch.empty(rows, k)}
    args |= {"index_ptr": torch.empty(rows, k, dtype=torch.int32), "experts": experts}
    return Case(
        forms.top_k_router, (rows,), args, {"K": k, "BLOCK": 16},
        lambda a: {"weights_ptr": a["logits_ptr"].topk(k, -1).values.softmax(-1)},
        ("logits_ptr",), ("weights_ptr",),
    )  # fmt: skip


def fake_quantised_linear() -> Case:
    m, n, k = 20, 37, 40
    args = {"x_ptr": normal(m, k), "w_ptr": normal(k, n), "scale_ptr": torch.rand(n) + 0.5}
    args |= {"y_ptr": torch.empty(m, n), "M": m, "N": n, "K": k}

    def function(a: Tensors) -> Tensors:
        w, scale = a["w_ptr"], a["scale_ptr"]
        fixed = scale.detach()
        rounded = w + ((w / fixed + 0.5).floor() * fixed - w).detach()
        return {"y_ptr": a["x_ptr"] @ rounded * scale}

    return Case(
        forms.fake_quantised_linear, (2, 3), args, {"BM": 16, "BN": 16, "BK": 16}, function,
        ("x_ptr", "w_ptr", "scale_ptr"), ("y_ptr",),
    )  # fmt: skip


def int8_linear() -> Case:
    m, n, k, group = 20, 37, 64, 32
    w = torch.randint(-8, 8, (k, n), dtype=torch.int8)
    args = {"x_ptr": normal(m, k), "w_ptr": w, "scale_ptr": normal(k // group, n)}
    args |= {"zero_ptr": normal(k // group, n), "y_ptr": torch.empty(m, n)}
    args |= {"M": m, "N": n, "K": k}

    def function(a: Tensors) -> Tensors:
        zero, scale = (a[f"{s}_ptr"].repeat_interleave(group, 0) for s in ("zero", "scale"))
        return {"y_ptr": a["x_ptr"] @ ((w - zero) * scale)}

    return Case(
        forms.int8_linear, (6,), args, {"GROUP": group, "BM": 16, "BN": 16, "BK": 16}, function,
        ("x_ptr", "scale_ptr", "zero_ptr"), ("y_ptr",),
    )  # fmt: skip


def split_k_matmul() -> Case:
    m, n, k = 20, 37, 70
    args = {"a_ptr": normal(m, k), "b_ptr": normal(k, n), "c_ptr": torch.zeros(m, n)}
    args |= {"M": m, "N": n, "K": k}
    return Case(
        forms.split_k_matmul, (6, 2), args, {"SPLIT": 2, "BM": 16, "BN": 16, "BK": 16},
        lambda a: {"c_ptr": a["a_ptr"] @ a["b_ptr"]}, ("a_ptr", "b_ptr"), ("c_ptr",),
    )  # fmt: skip


def persistent_softmax() -> Case:
    n, c = 7, 37
    args = {"in_ptr": normal(n, c), "out_ptr": torch.empty(n, c), "in_stride": c}
    args |= {"out_stride": c, "rows": n, "cols": c}
    return Case(
        forms.persistent_softmax, (3,), args, {"BLOCK": 64},
        lambda a: {"out_ptr": a["in_ptr"].softmax(-1)}, ("in_ptr",), ("out_ptr",),
    )  # fmt: skip


def jensen_shannon() -> Case:
    n, c = 5, 37
    x, y = normal(n, c).log_softmax(-1), normal(n, c).log_softmax(-1)
    args = {"x_ptr": x, "y_ptr": y, "x_stride": c, "y_stride": c, "beta": 0.3, "cols": c}
    args |= {"loss_ptr": torch.empty(n, c)}

    def function(a: Tensors) -> Tensors:
        x, y = a["x_ptr"], a["y_ptr"]
        m = 0.3 * y.exp() + 0.7 * x.exp()
        return {"loss_ptr": 0.3 * y.exp() * y + 0.7 * x.exp() * x - m * m.log()}

    return Case(
        forms.jensen_shannon, (n,), args, {"BLOCK": 16}, function, ("x_ptr", "y_ptr"),
        ("loss_ptr",),
    )  # fmt: skip


def dropout_add_layer_norm() -> Case:
    n, c = 5, 37
    args = {"x_ptr": normal(n, c), "r_ptr": normal(n, c), "w_ptr": normal(c), "b_ptr": normal(c)}
    args |= {"y_ptr": torch.empty(n, c), "z_ptr": torch.empty(n, c), "stride": c, "cols": c}
    args |= {"eps": 1e-5, "p": 0.2, "seed": 7}

    def function(a: Tensors) -> Tensors:
        z = torch.where(uniform(7, n, c) > 0.2, a["x_ptr"] / 0.8, 0) + a["r_ptr"]
        return {"z_ptr": z, "y_ptr": F.layer_norm(z, (c,), a["w_ptr"], a["b_ptr"])}

    return Case(
        forms.dropout_add_layer_norm, (n,), args, {"BLOCK": 64}, function,
        ("x_ptr", "r_ptr", "w_ptr", "b_ptr"), ("y_ptr", "z_ptr"),
    )  # fmt: skip


def looped_group_norm() -> Case:
    n, groups, per_group, hw = 2, 2, 3, 21
    c = groups * per_group
    args = {"x_ptr": normal(n, c, hw), "y_ptr": torch.empty(n, c, hw), "w_ptr": normal(c)}
    args |= {"b_ptr": normal(c), "mean_ptr": torch.empty(n, groups), "eps": 1e-5}
    args |= {"rstd_ptr": torch.empty(n, groups), "hidden": per_group * hw}
    args |= {"channels_per_group": per_group}

    def function(a: Tensors) -> Tensors:
        return {"y_ptr": F.group_norm(a["x_ptr"], groups, a["w_ptr"], a["b_ptr"])}

    return Case(
        forms.looped_group_norm, (n, groups), args, {"HW": hw, "BLOCK": 16}, function,
        ("x_ptr", "w_ptr", "b_ptr"), ("y_ptr",), ("mean_ptr", "rstd_ptr"),
    )  # fmt: skip


def flat_batch_norm() -> Case:
    n, c, hw = 2, 3, 7
    args = {"x_ptr": normal(n, c, hw), "w_ptr": normal(c), "b_ptr": normal(c)}
    args |= {"y_ptr": torch.empty(n, c, hw), "n": n * c * hw, "C": c, "HW": hw}

    def function(a: Tensors) -> Tensors:
        return {"y_ptr": a["x_ptr"] * a["w_ptr"][:, None] + a["b_ptr"][:, None]}

    return Case(
        forms.flat_batch_norm, (3,), args, {"BLOCK": 16}, function, ("x_ptr", "w_ptr", "b_ptr"),
        ("y_ptr",),
    )  # fmt: skip


def gated_mlp() -> Case:
    m, n, k = 20, 37, 40
    args = {"x_ptr": normal(m, k), "gate_ptr": normal(n, k).t(), "up_ptr": normal(n, k).t()}
    args |= {"y_ptr": torch.empty(m, n), "M": m, "N": n, "K": k, "stride_xm": k, "stride_xk": 1}
    args |= {"stride_wk": 1, "stride_wn": k, "stride_ym": n, "stride_yn": 1}

    def function(a: Tensors) -> Tensors:
        return {"y_ptr": F.silu(a["x_ptr"] @ a["gate_ptr"]) * (a["x_ptr"] @ a["up_ptr"])}

    return Case(
        forms.gated_mlp, (2, 3), args, {"BM": 16, "BN": 16, "BK": 16}, function,
        ("x_ptr", "gate_ptr", "up_ptr"), ("y_ptr",),
    )  # fmt: skip


def two_stage_attention(causal: bool = True) -> Case:
    z, h, n, d = 2, 2, 64, 16
    args = {name: normal(z, h, n, d) for name in "QKV"}
    args |= {"sm_scale": 0.3, "M": torch.empty(z, h, n), "Out": torch.empty(z, h, n, d)}
    args |= {"stride_z": h * n * d, "stride_h": n * d, "stride_m": d, "stride_k": 1}
    args |= {"Z": z, "H": h}

    def function(a: Tensors) -> Tensors:
        # The sum starts with 1, at a maximum of -inf: that is scaled to 0.
        scores = a["Q"] @ a["K"].mT * 0.3
        if causal:
            scores = scores.masked_fill(torch.ones(n, n).triu(1) > 0, -torch.inf)
        return {"Out": scores.softmax(-1) @ a["V"]}

    constexprs = {"N_CTX": n, "HEAD_DIM": d, "BLOCK_M": 32, "BLOCK_N": 16}
    constexprs["STAGE"] = 3 if causal else 1
    return Case(
        forms.two_stage_attention, (2, z * h), args, constexprs, function, ("Q", "K", "V"),
        ("Out",), ("M",),
    )  # fmt: skip


def one_stage_attention() -> Case:
    return two_stage_attention(False)


def chunk_scan() -> Case:
    length, heads, head, state, chunk = 40, 3, 16, 16, 16
    args = {"x_ptr": normal(length, heads, head), "dt_ptr": torch.rand(length, heads)}
    args |= {"dA_ptr": -torch.rand(length, heads), "C_ptr": normal(length, state)}
    args |= {"B_ptr": normal(length, state), "D_ptr": normal(heads), "length": length}
    args |= {"out_ptr": torch.empty(length, heads, head), "heads": heads}

    def function(a: Tensors) -> Tensors:
        parts: list[Any] = []
        for first in range(0, length, chunk):
            at = slice(first, min(length, first + chunk))
            total = a["dA_ptr"][at].cumsum(0).T
            decay = (total[:, :, None] - total[:, None, :]).exp().tril()
            scores = (a["C_ptr"][at] @ a["B_ptr"][at].T) * decay * a["dt_ptr"][at].T[:, None, :]
            x = a["x_ptr"][at].transpose(0, 1)
            parts.append((scores @ x + x * a["D_ptr"][:, None, None]).transpose(0, 1))
        return {"out_ptr": torch.cat(parts)}

    return Case(
        forms.chunk_scan, (3, heads), args, {"HEAD": head, "STATE": state, "CHUNK": chunk},
        function, ("x_ptr", "dt_ptr", "dA_ptr", "C_ptr", "B_ptr", "D_ptr"), ("out_ptr",),
    )  # fmt: skip


def short_convolution() -> Case:
    batch, t, d, w = 2, 19, 21, 4
    args = {"x_ptr": normal(batch, t, d), "w_ptr": normal(d, w), "b_ptr": normal(d)}
    args |= {"y_ptr": torch.empty(batch, t, d), "T": t, "D": d}

    def function(a: Tensors) -> Tensors:
        x = F.pad(a["x_ptr"].mT, (w - 1, 0))
        return {"y_ptr": F.silu(F.conv1d(x, a["w_ptr"][:, None], a["b_ptr"], groups=d)).mT}

    return Case(
        forms.short_convolution, (2, 3, batch), args, {"W": w, "BT": 8, "BD": 16}, function,
        ("x_ptr", "w_ptr", "b_ptr"), ("y_ptr",),
    )  # fmt: skip


def max_pool(stride: int = 2) -> Case:
    planes, h, w, kernel = 3, 9, 11, 3
    oh, ow = (h - kernel) // stride + 1, (w - kernel) // stride + 1
    args = {"x_ptr": normal(planes, h, w), "y_ptr": torch.empty(planes, oh, ow)}
    args |= {"H": h, "W": w, "OH": oh, "OW": ow}
    return Case(
        forms.max_pool, (planes, tw.cdiv(oh * ow, 16)), args,
        {"KERNEL": kernel, "STRIDE": stride, "BLOCK": 16},
        lambda a: {"y_ptr": F.max_pool2d(a["x_ptr"], kernel, stride)}, ("x_ptr",), ("y_ptr",),
    )  # fmt: skip


def dynamic_tanh() -> Case:
    n, c = 5, 37
    args = {"x_ptr": normal(n, c), "alpha_ptr": torch.rand(1), "gamma_ptr": torch.rand(c)}
    args |= {"beta_ptr": normal(c), "y_ptr": torch.empty(n, c), "rows": n, "cols": c}

    def function(a: Tensors) -> Tensors:
        return {"y_ptr": a["gamma_ptr"] * torch.tanh(a["alpha_ptr"] * a["x_ptr"]) + a["beta_ptr"]}

    return Case(
        forms.dynamic_tanh, (3, n), args, {"BLOCK": 16}, function,
        ("x_ptr", "alpha_ptr", "gamma_ptr", "beta_ptr"), ("y_ptr",),
    )  # fmt: skip


def weighted_key_value() -> Case:
    batch, t, c = 2, 6, 21
    args = {"w_ptr": normal(c), "u_ptr": normal(c), "k_ptr": normal(batch, t, c)}
    args |= {"v_ptr": normal(batch, t, c), "out_ptr": torch.empty(batch, t, c), "T": t, "C": c}

    def function(a: Tensors) -> Tensors:
        w, u = -a["w_ptr"].exp(), a["u_ptr"]
        num = den = torch.zeros(batch, c, dtype=torch.float64)
        found: list[Any] = []
        for i in range(t):
            k, v = a["k_ptr"][:, i], a["v_ptr"][:, i]
            now = (u + k).exp()
            found.append((num + now * v) / (den + now))
            num, den = w.exp() * num + k.exp() * v, w.exp() * den + k.exp()
        return {"out_ptr": torch.stack(found, 1)}

    return Case(
        forms.weighted_key_value, (batch, 2), args, {"BLOCK": 16}, function,
        ("w_ptr", "u_ptr", "k_ptr", "v_ptr"), ("out_ptr",),
    )  # fmt: skip


def attention_with_dropout() -> Case:
    batch, heads, n, d = 2, 2, 37, 16
    args = {f"{name}_ptr": normal(batch, heads, n, d) for name in "qkv"}
    keep = (torch.rand(batch, n) > 0.2).to(torch.int8)
    keep[:, 0] = 1
    keep[1, :20] = 0
    args |= {"bias_ptr": normal(n, n), "keep_ptr": keep, "o_ptr": torch.empty(batch, heads, n, d)}
    args |= {"heads": heads, "n": n, "scale": 0.3, "p": 0.2, "seed": 3}

    def function(a: Tensors) -> Tensors:
        scores = a["q_ptr"] @ a["k_ptr"].mT * 0.3 + a["bias_ptr"]
        scores = scores.masked_fill(keep[:, None, None] == 0, -torch.inf)
        kept = uniform(3, batch, heads, n, n) > 0.2
        return {"o_ptr": torch.where(kept, scores.softmax(-1) / 0.8, 0) @ a["v_ptr"]}

    return Case(
        forms.attention_with_dropout, (3, batch * heads), args, {"D": d, "BM": 16, "BN": 16},
        function, ("q_ptr", "k_ptr", "v_ptr", "bias_ptr"), ("o_ptr",),
    )  # fmt: skip


def expert_gather() -> Case:
    tokens, experts, h, f, bm = 20, 3, 32, 32, 16
    token = torch.full((64,), tokens)
    token[:12], token[16:24], token[32:48] = torch.randperm(20)[:12], torch.randperm(20)[:8], 3
    token[32:44] = torch.randperm(20)[:12]
    expert = torch.tensor([0, 2, 1, 1])
    args = {"x_ptr": normal(tokens, h), "w_ptr": normal(experts, h, f), "token_ptr": token}
    args |= {"expert_ptr": expert, "gate_ptr": normal(64), "y_ptr": torch.empty(64, f)}
    args |= {"tokens": tokens, "H": h, "F": f}

    def function(a: Tensors) -> Tensors:
        x = torch.cat([a["x_ptr"], torch.zeros(1, h, dtype=torch.float64)])[token]
        w = a["w_ptr"][expert.repeat_interleave(bm)]
        gate = torch.where(token < tokens, a["gate_ptr"], 0)
        return {"y_ptr": torch.einsum("mk,mkn->mn", x, w) * gate[:, None]}

    return Case(
        forms.expert_gather, (4, 2), args, {"BM": bm, "BN": 16, "BK": 16}, function,
        ("x_ptr", "w_ptr", "gate_ptr"), ("y_ptr",), atomic=("x_ptr", "w_ptr"),
    )  # fmt: skip


CASES = (
    triplet_margin, focal_loss, gated_chunk_output, chunk_states, embeddings_with_dropout,
    gathered_rows, interleaved_rope, top_k_router, fake_quantised_linear, int8_linear,
    split_k_matmul, persistent_softmax, jensen_shannon, dropout_add_layer_norm,
    looped_group_norm, flat_batch_norm, gated_mlp, two_stage_attention, one_stage_attention,
    chunk_scan, short_convolution, max_pool, dynamic_tanh, weighted_key_value,
    attention_with_dropout, expert_gather,
)  # fmt: skip


@pytest.mark.parametrize("make", CASES)
def test_gradients_agree_with_torch(make: Callable[[], Case]) -> None:
    assert_gradients_agree(make)
