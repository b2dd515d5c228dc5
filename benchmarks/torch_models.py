"""Models whose functions for torch.compile are measured: `benchmarks/torch_compile.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

HEADS = 4


@dataclass(frozen=True)
class Model:
    """A model and its input.

    Attributes:
        trains: whether a training step is measured, too.
    """

    name: str
    make: Callable[[], nn.Module]
    input: Callable[[], Tensor]
    trains: bool = True


class OneKernel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * 2 + 1)


class NormChain(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            x = x + functional.gelu(norm(x))
        return functional.softmax(x, -1)


class Mlp(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.LayerNorm(4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Attention(nn.Module):
    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.inputs(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.output(found.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """A transformer's layer, with the norms before attention and MLP."""

    def __init__(self, width: int = 128, causal: bool = False) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, causal)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    def __init__(self, words: int = 1000, width: int = 128, length: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(Layer(width, causal=True), Layer(width, causal=True))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(self.norm(self.layers(x)))
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def _convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            _convolution(3, 16), nn.ReLU(), nn.MaxPool2d(2), _convolution(16, 32), nn.ReLU(),
            nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            _convolution(inputs, outputs, 3, stride),
            _convolution(outputs, outputs),
        )
        plain = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if plain else _convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (64, 64, 128, 256, 512)
        blocks: list[nn.Module] = []
        for i, (inputs, outputs) in enumerate(pairwise(widths)):
            blocks += [
                ResidualBlock(inputs, outputs, 2 if i else 1),
                ResidualBlock(outputs, outputs, 1),
            ]
        self.layers = nn.Sequential(
            _convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


MODELS = (
    Model("one small kernel", OneKernel, lambda: torch.randn(1024), trains=False),
    Model("norm chain", NormChain, lambda: torch.randn(512, 512)),
    Model("MLP", Mlp, lambda: torch.randn(256, 256)),
    Model("encoder layer", Layer, lambda: torch.randn(8, 64, 128)),
    Model("conv net", ConvNet, lambda: torch.randn(8, 3, 32, 32)),
    Model("small GPT", Gpt, lambda: torch.randint(0, 1000, (4, 64))),
    Model("ResNet-18", ResNet18, lambda: torch.randn(2, 3, 96, 96)),
)
