"""Random tensors for operators and for what they are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

Tensor = torch.Tensor


@dataclass
class Make:
    """Makes random tensors, the same at each run and for both sides of a comparison.

        make = Make("cuda", torch.bfloat16)
        x, w = make(4, 300), make(300)

    Attributes:
        device: where the tensors are.
        dtype: what their numbers are rounded to.
        exact: the rounded numbers as fp32, for arithmetic to compare with.
        on_device: draw them there: other numbers than the CPU's, but at once.
    """

    device: str
    dtype: torch.dtype = torch.float32
    exact: bool = False
    on_device: bool = False
    _state: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._state = torch.Generator(self.device if self.on_device else "cpu").manual_seed(7)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """fp32, normally distributed, whatever the operator's own type is; not a leaf."""
        drawn = torch.randn(shape, generator=self._state, device=self._state.device)
        return drawn.to(self.device) * scale

    def rounded(self, x: Tensor) -> Tensor:
        """fp32 numbers as the operator takes them; not a leaf."""
        rounded = x.to(self.dtype)
        return rounded.float() if self.exact else rounded

    def __call__(self, *shape: int, scale: float = 1.0) -> Tensor:
        """A leaf that wants its gradient, normally distributed."""
        return self.rounded(self.normal(*shape, scale=scale)).requires_grad_()

    def fp32(self, *shape: int) -> Tensor:
        """Such a leaf in fp32 whatever the operator's own type is."""
        return self.normal(*shape).requires_grad_()

    def positive(self, *shape: int) -> Tensor:
        """Leaf rows that are distributions: positive, of sum 1."""
        return self.rounded(self.normal(*shape).softmax(-1)).requires_grad_()

    def logs(self, *shape: int) -> Tensor:
        """Leaf rows that are logarithms of distributions."""
        return self.rounded(self.normal(*shape).log_softmax(-1)).requires_grad_()

    def below(self, n: int, *shape: int) -> Tensor:
        """Integers from 0 to n - 1."""
        drawn = torch.randint(n, shape, generator=self._state, device=self._state.device)
        return drawn.to(self.device)

    def angles(self, *shape: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of angles, each angle twice in a row."""
        half = self.normal(*shape)
        angles = torch.cat((half, half), -1)
        return self.rounded(angles.cos()), self.rounded(angles.sin())
