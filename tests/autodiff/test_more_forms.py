"""Gradients of kernels in further published forms agree with torch's in fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.autodiff import more_forms as forms
from tests.autodiff.torch_cases import Case, Tensors, assert_gradients_agree

torch = pytest.importorskip("torch")
F = torch.nn.functional


def normal(*shape: int) -> Any:
    return torch.randn(*shape)


def pairwise_distance() -> Case:
    m, n, d = 19, 21, 35
    args = {"x_ptr": normal(m, d), "y_ptr": normal(n, d), "out_ptr": torch.empty(m, n)}
    args |= {"m": m, "n": n, "d": d}
    blocks = {"BM": 16, "BN": 16, "BD": 16}

    def function(a: Tensors) -> Tensors:
        pairs = a["x_ptr"][:, None] - a["y_ptr"][None]
        return {"out_ptr": pairs.square().sum(-1).sqrt()}

    return Case(
        forms.pairwise_distance, (2, 2), args, blocks, function, ("x_ptr", "y_ptr"), ("out_ptr",)
    )


def cosine_embedding_loss() -> Case:
    n, d = 9, 45
    args = {"a_ptr": normal(n, d), "b_ptr": normal(n, d), "loss_ptr": torch.empty(n)}
    args |= {"t_ptr": torch.randint(2, (n,)) * 2 - 1, "d": d, "margin": -0.1}

    def function(a: Tensors) -> Tensors:
        loss = F.cosine_embedding_loss(
            a["a_ptr"], a["b_ptr"], a["t_ptr"], margin=-0.1, reduction="none"
        )
        return {"loss_ptr": loss}

    return Case(
        forms.cosine_embedding_loss, (n,), args, {"BLOCK": 16}, function, ("a_ptr", "b_ptr"),
        ("loss_ptr",),
    )  # fmt: skip


def weight_norm() -> Case:
    rows, n = 7, 45
    args = {"v_ptr": normal(rows, n), "g_ptr": normal(rows), "w_ptr": torch.empty(rows, n), "n": n}

    def function(a: Tensors) -> Tensors:
        v = a["v_ptr"]
        return {"w_ptr": a["g_ptr"][:, None] * v / v.norm(dim=1, keepdim=True)}

    return Case(
        forms.weight_norm, (rows,), args, {"BLOCK": 16}, function, ("v_ptr", "g_ptr"), ("w_ptr",)
    )


def huber_mean() -> Case:
    n = 100
    args = {"x_ptr": normal(n), "t_ptr": normal(n), "loss_ptr": torch.zeros(1)}
    args |= {"n": n, "beta": 0.7}

    def function(a: Tensors) -> Tensors:
        return {"loss_ptr": F.smooth_l1_loss(a["x_ptr"], a["t_ptr"].double(), beta=0.7)[None]}

    return Case(
        forms.huber_mean, (4,), args, {"BLOCK": 32}, function, ("x_ptr",), ("loss_ptr",)
    )  # fmt: skip


def group_norm_swish() -> Case:
    images, hw, c, groups = 3, 21, 12, 4
    args = {"x_ptr": normal(images, hw, c), "w_ptr": normal(c), "b_ptr": normal(c)}
    args |= {"y_ptr": torch.empty(images, hw, c), "hw": hw, "c": c}

    def function(a: Tensors) -> Tensors:
        x = a["x_ptr"].transpose(1, 2)
        y = F.silu(F.group_norm(x, groups, a["w_ptr"], a["b_ptr"]))
        return {"y_ptr": y.transpose(1, 2)}

    blocks = {"GROUP": 3, "BG": 4, "BHW": 32}
    inputs = "x_ptr", "w_ptr", "b_ptr"
    return Case(
        forms.group_norm_swish, (images, groups), args, blocks, function, inputs, ("y_ptr",)
    )


def capped_attention() -> Case:
    heads, groups, n, d, cap = 4, 2, 37, 16, 3.0
    args = {"q_ptr": normal(heads, n, d)}
    args |= {f"{name}_ptr": normal(heads // groups, n, d) for name in "kv"}
    args |= {"o_ptr": torch.empty(heads, n, d), "lse_ptr": torch.empty(heads, n)}
    args |= {"n": n, "scale": 0.5, "cap": cap}

    def function(a: Tensors) -> Tensors:
        q, k, v = (a[f"{name}_ptr"] for name in "qkv")
        k, v = (t.repeat_interleave(groups, 0) for t in (k, v))
        s = cap * torch.tanh(q @ k.transpose(1, 2) * 0.5 / cap)
        s = s.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -torch.inf)
        return {"o_ptr": s.softmax(-1) @ v}

    blocks = {"GROUPS": groups, "D": d, "BM": 16, "BN": 16}
    inputs = "q_ptr", "k_ptr", "v_ptr"
    return Case(
        forms.capped_attention, (3, heads), args, blocks, function, inputs, ("o_ptr",),
        aux=("lse_ptr",),
    )  # fmt: skip


def retention() -> Case:
    heads, n, d, chunk = 3, 48, 16, 16
    args = {f"{name}_ptr": normal(heads, n, d) * 0.3 for name in "qkv"}
    args |= {"o_ptr": torch.empty(heads, n, d), "decay_ptr": -torch.rand(heads) * 0.2, "n": n}

    def function(a: Tensors) -> Tensors:
        q, k, v = (a[f"{name}_ptr"] for name in "qkv")
        away = (torch.arange(n)[:, None] - torch.arange(n)[None]).double()
        kept = torch.exp(a["decay_ptr"][:, None, None] * away) * (away >= 0)
        return {"o_ptr": (q @ k.transpose(1, 2) * kept) @ v}

    inputs = "q_ptr", "k_ptr", "v_ptr", "decay_ptr"
    return Case(
        forms.retention, (heads,), args, {"D": d, "C": chunk}, function, inputs, ("o_ptr",)
    )  # fmt: skip


def depthwise_conv() -> Case:
    images, h, w, c = 2, 5, 7, 6
    args = {"x_ptr": normal(images, h, w, c), "w_ptr": normal(3, 3, c), "b_ptr": normal(c)}
    args |= {"y_ptr": torch.empty(images, h, w, c), "height": h, "width": w, "channels": c}

    def function(a: Tensors) -> Tensors:
        taps = a["w_ptr"].permute(2, 0, 1)[:, None]
        y = F.conv2d(a["x_ptr"].permute(0, 3, 1, 2), taps, a["b_ptr"], padding=1, groups=c)
        return {"y_ptr": F.silu(y).permute(0, 2, 3, 1)}

    inputs = "x_ptr", "w_ptr", "b_ptr"
    return Case(
        forms.depthwise_conv, (images * h, 2), args, {"BW": 8, "BC": 4}, function, inputs,
        ("y_ptr",),
    )  # fmt: skip


def min_gru() -> Case:
    batch, length, c = 2, 21, 6
    args = {"z_ptr": normal(batch, length, c), "x_ptr": normal(batch, length, c)}
    args |= {"h_ptr": torch.empty(batch, length, c), "length": length, "channels": c}

    def function(a: Tensors) -> Tensors:
        z, x = a["z_ptr"].sigmoid(), a["x_ptr"]
        g = torch.where(x >= 0, x + 0.5, x.sigmoid())
        h, found = torch.zeros(batch, c, dtype=torch.float64), []
        for t in range(length):
            h = (1 - z[:, t]) * h + z[:, t] * g[:, t]
            found.append(h)
        return {"h_ptr": torch.stack(found, 1)}

    return Case(
        forms.min_gru, (batch, 2), args, {"BT": 8, "BC": 4}, function, ("z_ptr", "x_ptr"),
        ("h_ptr",),
    )  # fmt: skip


def contrastive_loss() -> Case:
    n, keys, d = 21, 37, 16
    args = {"q_ptr": normal(n, d), "k_ptr": normal(keys, d), "loss_ptr": torch.empty(n)}
    args |= {"lse_ptr": torch.empty(n), "positive_ptr": torch.randint(keys, (n,))}
    args |= {"n": n, "keys": keys, "temperature": 2.0}

    def function(a: Tensors) -> Tensors:
        logits = a["q_ptr"] @ a["k_ptr"].T / 2.0
        return {"loss_ptr": F.cross_entropy(logits, a["positive_ptr"], reduction="none")}

    return Case(
        forms.contrastive_loss, (2,), args, {"D": d, "BM": 16, "BN": 16}, function,
        ("q_ptr", "k_ptr"), ("loss_ptr",), aux=("lse_ptr",),
    )  # fmt: skip


def upsample_bilinear() -> Case:
    images, h, w = 2, 5, 7
    args = {"x_ptr": normal(images, h, w), "y_ptr": torch.empty(images, 2 * h, 2 * w)}
    args |= {"rows": h, "columns": w}

    def function(a: Tensors) -> Tensors:
        y = F.interpolate(a["x_ptr"][:, None], scale_factor=2, mode="bilinear")
        return {"y_ptr": y[:, 0]}

    return Case(
        forms.upsample_bilinear, (images, 2 * h), args, {"BLOCK": 16}, function, ("x_ptr",),
        ("y_ptr",), atomic=("x_ptr",),
    )  # fmt: skip


def persistent_moving_average() -> Case:
    sequences, steps, channels = 3, 5, 19
    args = {"x_ptr": normal(sequences, steps, channels), "decay_ptr": normal(channels)}
    args |= {"y_ptr": torch.empty(sequences, steps, channels)}
    args |= {"sequences": sequences, "steps": steps, "channels": channels}

    def function(a: Tensors) -> Tensors:
        decay, found = torch.sigmoid(a["decay_ptr"]), [torch.zeros(sequences, channels)]
        for x in a["x_ptr"].unbind(1):
            found.append(decay * found[-1] + (1 - decay) * x)
        return {"y_ptr": torch.stack(found[1:], 1).square()}

    return Case(
        forms.persistent_moving_average, (4,), args, {"BLOCK": 8}, function,
        ("x_ptr", "decay_ptr"), ("y_ptr",),
    )  # fmt: skip


def rotary_of_both() -> Case:
    steps, heads, kv_heads, half = 3, 4, 2, 8
    shapes = {"q": (steps, heads, 2 * half), "k": (steps, kv_heads, 2 * half)}
    args = {f"{name}_ptr": normal(*shape) for name, shape in shapes.items()}
    args |= {"angle_ptr": normal(steps, half)}
    args |= {f"{name}_out_ptr": torch.empty(shape) for name, shape in shapes.items()}
    args |= {"steps": steps, "heads": heads, "kv_heads": kv_heads}

    def turned(x: Any, angle: Any) -> Any:
        (a, b), angle = x.chunk(2, -1), angle[:, None]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def function(a: Tensors) -> Tensors:
        return {f"{name}_out_ptr": turned(a[f"{name}_ptr"], a["angle_ptr"]) for name in shapes}

    return Case(
        forms.rotary_of_both, (steps, heads + kv_heads), args, {"HALF": half}, function,
        ("q_ptr", "k_ptr", "angle_ptr"), ("q_out_ptr", "k_out_ptr"),
    )  # fmt: skip


CASES: tuple[Callable[[], Case], ...] = (
    pairwise_distance, cosine_embedding_loss, weight_norm, huber_mean, group_norm_swish,
    capped_attention, retention, depthwise_conv, min_gru, contrastive_loss, upsample_bilinear,
    persistent_moving_average, rotary_of_both,
)  # fmt: skip


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_gradients_are_those_of_torch(make: Callable[[], Case]) -> None:
    assert_gradients_agree(make)
