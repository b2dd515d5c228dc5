"""Random inputs for operators and their references."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

Tensor = torch.Tensor


@dataclass
class Make:
    """Creates random tensors, the same in each run and for both sides of a comparison.

        make = Make("cuda", torch.bfloat16)
        x, w = make(4, 300), make(300)

    Attributes:
        device: the tensors' device.
        dtype: the type that numbers are rounded to.
        exact: return the rounded numbers as fp32, for references.
        on_device: generate them on the device, which is faster, with other numbers.
    """

    device: str
    dtype: torch.dtype = torch.float32
    exact: bool = False
    on_device: bool = False
    _state: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._state = torch.Generator(self.device if self.on_device else "cpu").manual_seed(7)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normally distributed fp32 numbers, regardless of `dtype`; without gradient."""
        drawn = torch.randn(shape, generator=self._state, device=self._state.device)
        return drawn.to(self.device) * scale

    def rounded(self, x: Tensor) -> Tensor:
        """fp32 numbers rounded to `dtype`; without gradient."""
        rounded = x.to(self.dtype)
        return rounded.float() if self.exact else rounded

    def __call__(self, *shape: int, scale: float = 1.0) -> Tensor:
        """A normally distributed tensor that requires a gradient."""
        return self.rounded(self.normal(*shape, scale=scale)).requires_grad_()

    def fp32(self, *shape: int) -> Tensor:
        """The same in fp32, regardless of `dtype`."""
        return self.normal(*shape).requires_grad_()

    def positive(self, *shape: int) -> Tensor:
        """Rows that are probability distributions; requires a gradient."""
        return self.rounded(self.normal(*shape).softmax(-1)).requires_grad_()

    def logs(self, *shape: int) -> Tensor:
        """Rows that are log probabilities; requires a gradient."""
        return self.rounded(self.normal(*shape).log_softmax(-1)).requires_grad_()

    def below(self, n: int, *shape: int) -> Tensor:
        """Integers from 0 to n - 1."""
        drawn = torch.randint(n, shape, generator=self._state, device=self._state.device)
        return drawn.to(self.device)

    def angles(self, *shape: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of angles; each row has every angle twice."""
        half = self.normal(*shape)
        angles = torch.cat((half, half), -1)
        return self.rounded(angles.cos()), self.rounded(angles.sin())
