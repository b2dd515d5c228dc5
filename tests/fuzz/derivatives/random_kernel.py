"""What the generators of random kernels have in common: choices, and a kernel with its launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, Any]


@dataclass
class Choices:
    """Random choices.

    Attributes:
        rng: what they are drawn from.
        used: the kinds of statement that were chosen.
    """

    rng: np.random.Generator
    used: set[str] = field(default_factory=set[str], kw_only=True)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def use(self, kind: str, share: float = 1.0) -> bool:
        """Whether to have this kind of statement."""
        taken = self.chance(share)
        if taken:
            self.used.add(kind)
        return taken


@dataclass
class RandomKernel(Choices):
    """A random kernel with its launch.

    Attributes:
        text: the kernel.
        grid: of its launch.
        args: its arguments.
        outputs: the arrays whose derivatives are given.
        aux: arrays that are stored, and count as constants.
        body: the lines of the kernel.
        indent: of the next line, within the body.
        slopes: whether differences of its results approach the derivatives.
    """

    text: str = ""
    grid: tuple[int, ...] = (1,)
    args: Arrays = field(default_factory=dict[str, Any])
    outputs: tuple[str, ...] = ()
    aux: tuple[str, ...] = ()
    body: list[str] = field(default_factory=list[str])
    indent: str = ""
    slopes: bool = True

    @property
    def wrt(self) -> tuple[str, ...]:
        """The arrays whose derivatives are computed: all other arrays of floats."""
        return tuple(
            name
            for name, value in self.args.items()
            if isinstance(value, np.ndarray) and name not in (*self.outputs, *self.aux)
            and value.dtype == np.float64
        )  # fmt: skip

    def add(self, *lines: str) -> None:
        self.body += [self.indent + line for line in lines]


@dataclass
class NumberedKernel(RandomKernel):
    """A random kernel whose values and arrays are named by a letter and a number.

    Attributes:
        names: how many values it has named.
    """

    names: int = 0

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def array(self, *shape: int) -> str:
        """A further argument of random floats."""
        found = f"{self.name('a')}_ptr"
        self.args[found] = self.rng.uniform(-1, 1, shape)
        return found
