"""Gradients of kernels that fuse several layers agree with torch's in fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.autodiff import fused_forms as forms
from tests.autodiff.torch_cases import Case, Tensors, assert_gradients_agree, normal

torch = pytest.importorskip("torch")
F = torch.nn.functional


def fused_linear_cross_entropy(capped: bool = False) -> Case:
    t, v, d = 19, 45, 20
    target = torch.randint(v, (t,))
    target[3] = -100
    args = {"x_ptr": normal(t, d), "w_ptr": normal(v, d), "b_ptr": normal(v), "target_ptr": target}
    args |= {"loss_ptr": torch.empty(t), "lse_ptr": torch.empty(t), "T": t, "V": v}
    args |= {"stride_x": d, "stride_w": d, "softcap": 5.0, "ignore_index": -100}

    def function(a: Tensors) -> Tensors:
        x = a["x_ptr"] @ a["w_ptr"].T + a["b_ptr"]
        x = 5 * torch.tanh(x / 5) if capped else x
        return {"loss_ptr": F.cross_entropy(x, target, reduction="none")}

    return Case(
        forms.fused_linear_cross_entropy, (2,), args,
        {"D": d, "HAS_CAP": capped, "BT": 16, "BV": 16, "BD": 16}, function,
        ("x_ptr", "w_ptr", "b_ptr"), ("loss_ptr",), ("lse_ptr",),
    )  # fmt: skip


def fused_linear_cross_entropy_with_a_cap() -> Case:
    return fused_linear_cross_entropy(True)


def distillation() -> Case:
    rows, v = 5, 23
    labels = torch.randint(v, (rows,))
    args = {"s_ptr": normal(rows, v), "t_ptr": normal(rows, v), "label_ptr": labels}
    args |= {"loss_ptr": torch.empty(rows), "s_stride": v, "t_stride": v, "V": v}
    args |= {"temperature": 2.0, "alpha": 0.3}

    def function(a: Tensors) -> Tensors:
        log_s = (a["s_ptr"] / 2).log_softmax(-1)
        log_t = (a["t_ptr"] / 2).log_softmax(-1)
        kl = (log_t.exp() * (log_t - log_s)).sum(-1)
        ce = F.cross_entropy(a["s_ptr"], labels, reduction="none")
        return {"loss_ptr": 0.3 * 4 * kl + 0.7 * ce}

    return Case(
        forms.distillation, (rows,), args, {"BLOCK": 16}, function, ("s_ptr", "t_ptr"),
        ("loss_ptr",), (), ("s_ptr",),
    )  # fmt: skip


def rotary_attention() -> Case:
    batch, heads, group, n, d = 2, 4, 2, 37, 16
    args = {"q_ptr": normal(batch, heads, n, d), "k_ptr": normal(batch, heads // group, n, d)}
    args |= {"v_ptr": normal(batch, heads // group, n, d), "wq_ptr": normal(d)}
    args |= {"wk_ptr": normal(d), "cos_ptr": normal(n, d // 2), "sin_ptr": normal(n, d // 2)}
    args |= {"o_ptr": torch.empty(batch, heads, n, d), "lse_ptr": torch.empty(batch, heads, n)}
    args |= {"N": n, "scale": 0.25, "eps": 1e-5}

    def turned(x: Any, w: Any, cos: Any, sin: Any) -> Any:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def function(a: Tensors) -> Tensors:
        q = turned(a["q_ptr"], a["wq_ptr"], a["cos_ptr"].double(), a["sin_ptr"].double())
        k = turned(a["k_ptr"], a["wk_ptr"], a["cos_ptr"].double(), a["sin_ptr"].double())
        k, v = (x.repeat_interleave(group, 1) for x in (k, a["v_ptr"]))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.25)
        return {"o_ptr": o}

    return Case(
        forms.rotary_attention, (3, batch * heads), args,
        {"H": heads, "GROUP": group, "D": d, "BM": 16, "BN": 16}, function,
        ("q_ptr", "k_ptr", "v_ptr", "wq_ptr", "wk_ptr"), ("o_ptr",), ("lse_ptr",),
    )  # fmt: skip


def lstm() -> Case:
    batch, t, h = 5, 7, 16
    args = {"x_ptr": normal(batch, t, 4, h), "w_ptr": normal(4, h, h) / 4}
    args |= {"h0_ptr": normal(batch, h), "c0_ptr": normal(batch, h)}
    args |= {"h_ptr": torch.empty(batch, t, h), "c_ptr": torch.empty(batch, h), "B": batch, "T": t}

    def function(a: Tensors) -> Tensors:
        state, c, found = a["h0_ptr"], a["c0_ptr"], list[Any]()
        for step in range(t):
            i, f, g, o = (a["x_ptr"][:, step, k] + state @ a["w_ptr"][k] for k in range(4))
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            state = o.sigmoid() * c.tanh()
            found.append(state)
        return {"h_ptr": torch.stack(found, 1), "c_ptr": c}

    return Case(
        forms.lstm, (1,), args, {"H": h, "BB": 16}, function,
        ("x_ptr", "w_ptr", "h0_ptr", "c0_ptr"), ("h_ptr", "c_ptr"),
    )  # fmt: skip


def window_attention() -> Case:
    windows, heads, side, d = 3, 2, 3, 16
    n = side * side
    args = {name: normal(windows, heads, n, d) for name in ("q_ptr", "k_ptr", "v_ptr")}
    args |= {"table_ptr": normal((2 * side - 1) ** 2, heads)}
    args |= {"o_ptr": torch.empty(windows, heads, n, d), "heads": heads, "side": side}
    args |= {"scale": 0.25}
    y, x = torch.arange(n) // side, torch.arange(n) % side
    place = (y[:, None] - y + side - 1) * (2 * side - 1) + x[:, None] - x + side - 1

    def function(a: Tensors) -> Tensors:
        s = a["q_ptr"] @ a["k_ptr"].mT * 0.25 + a["table_ptr"][place].permute(2, 0, 1)
        return {"o_ptr": s.softmax(-1) @ a["v_ptr"]}

    return Case(
        forms.window_attention, (windows, heads), args, {"D": d, "BLOCK": 16}, function,
        ("q_ptr", "k_ptr", "v_ptr", "table_ptr"), ("o_ptr",),
    )  # fmt: skip


def gated_delta_rule() -> Case:
    batch, t, heads, k, v = 2, 9, 2, 8, 12
    args = {"q_ptr": normal(batch, t, heads, k), "k_ptr": normal(batch, t, heads, k)}
    args |= {"v_ptr": normal(batch, t, heads, v), "g_ptr": -torch.rand(batch, t, heads)}
    args |= {"beta_ptr": torch.rand(batch, t, heads), "h0_ptr": normal(batch, heads, k, v)}
    args |= {"o_ptr": torch.empty(batch, t, heads, v), "ht_ptr": torch.empty(batch, heads, k, v)}
    args |= {"T": t, "H": heads, "scale": k**-0.5}

    def function(a: Tensors) -> Tensors:
        q, key = a["q_ptr"] * k**-0.5, a["k_ptr"]
        q = q / (q.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        key = key / (key.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        state, found = a["h0_ptr"], list[Any]()
        for i in range(t):
            state = state * a["g_ptr"][:, i].exp()[..., None, None]
            x = a["v_ptr"][:, i] - (state * key[:, i][..., None]).sum(2)
            x = x * a["beta_ptr"][:, i][..., None]
            state = state + key[:, i][..., None] * x[:, :, None]
            found.append((state * q[:, i][..., None]).sum(2))
        return {"o_ptr": torch.stack(found, 1), "ht_ptr": state}

    return Case(
        forms.gated_delta_rule, (2, batch * heads), args, {"K": k, "V": v, "BV": 8}, function,
        ("q_ptr", "k_ptr", "v_ptr", "g_ptr", "beta_ptr", "h0_ptr"), ("o_ptr", "ht_ptr"),
    )  # fmt: skip


def depthwise_conv2d() -> Case:
    images, h, w, c, stride, pad, k = 2, 7, 6, 5, 2, 1, 3
    oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
    args = {"x_ptr": normal(images, h, w, c), "w_ptr": normal(k, k, c), "b_ptr": normal(c)}
    args |= {"y_ptr": torch.empty(images, oh, ow, c), "H": h, "W": w, "C": c, "OH": oh, "OW": ow}

    def function(a: Tensors) -> Tensors:
        x, weight = a["x_ptr"].permute(0, 3, 1, 2), a["w_ptr"].permute(2, 0, 1)[:, None]
        y = F.conv2d(x, weight, a["b_ptr"], stride=stride, padding=pad, groups=c)
        return {"y_ptr": F.silu(y).permute(0, 2, 3, 1)}

    return Case(
        forms.depthwise_conv2d, (1, 2, images), args,
        {"STRIDE": stride, "PAD": pad, "K": k, "BLOCK": 16, "BC": 4}, function,
        ("x_ptr", "w_ptr", "b_ptr"), ("y_ptr",),
    )  # fmt: skip


def shifted_windows() -> Case:
    height, width, side, d = 8, 12, 4, 16
    args = {name: normal(height * width, d) for name in ("q_ptr", "k_ptr", "v_ptr")}
    args |= {"o_ptr": torch.empty(height * width, d), "height": height, "width": width}
    args |= {"shift": 2, "scale": 0.25}

    def in_windows(x: Any) -> Any:
        x = x.reshape(height, width, d).roll((-2, -2), (0, 1)).reshape(2, side, 3, side, d)
        return x.transpose(1, 2).reshape(6, side * side, d)

    def function(a: Tensors) -> Tensors:
        q, k, v = (in_windows(a[name]) for name in ("q_ptr", "k_ptr", "v_ptr"))
        o = (q @ k.mT * 0.25).softmax(-1) @ v
        o = o.reshape(2, 3, side, side, d).transpose(1, 2).reshape(height, width, d)
        return {"o_ptr": o.roll((2, 2), (0, 1)).reshape(height * width, d)}

    return Case(
        forms.shifted_windows, (6,), args, {"SIDE": side, "D": d}, function,
        ("q_ptr", "k_ptr", "v_ptr"), ("o_ptr",),
    )  # fmt: skip


def grouped_experts() -> Case:
    tokens, n, d, experts, top, block = 6, 18, 20, 3, 2, 16
    chosen = torch.stack([torch.randperm(experts)[:top] for _ in range(tokens)]).flatten()
    order, owners = list[int](), list[int]()
    for expert in range(experts):
        own: list[int] = (chosen == expert).nonzero().flatten().tolist()
        order += own + [tokens * top] * (-len(own) % block)
        owners += [expert] * -(-len(own) // block)
    args = {"x_ptr": normal(tokens, d), "w_ptr": normal(experts, n, d)}
    args |= {"gate_ptr": torch.rand(tokens * top), "y_ptr": torch.empty(tokens * top, n)}
    args |= {"token_ptr": torch.tensor(order), "expert_ptr": torch.tensor(owners)}
    args |= {"count": tokens * top, "n": n, "d": d, "top": top}

    def function(a: Tensors) -> Tensors:
        x = a["x_ptr"].repeat_interleave(top, 0)
        y = torch.einsum("td,tnd->tn", x, a["w_ptr"][chosen])
        return {"y_ptr": y * a["gate_ptr"][:, None]}

    return Case(
        forms.grouped_experts, (len(owners), 2), args, {"BM": block, "BN": 16, "BD": 16}, function,
        ("x_ptr", "w_ptr", "gate_ptr"), ("y_ptr",), (), (),
        ("token_ptr", "expert_ptr"),
    )  # fmt: skip


CASES = (
    fused_linear_cross_entropy, fused_linear_cross_entropy_with_a_cap, distillation,
    rotary_attention, lstm, window_attention, gated_delta_rule, depthwise_conv2d, shifted_windows,
    grouped_experts,
)  # fmt: skip


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_gradients_agree_with_torch(make: Callable[[], Case]) -> None:
    assert_gradients_agree(make)
