"""What programs ask of every target's compiler, which answers from its key."""

from __future__ import annotations

from typing import Any

from tilewright.base.late import late
from tilewright.targets.protocol import GPUTarget

sha256 = late("hashlib:sha256")  # OpenSSL behind it takes 2 ms to load


class BaseBackend:
    """Base of the built-in targets. Libraries know it as `triton.backends.compiler.BaseBackend`.

    Attributes:
        name: the target's.
    """

    name: str

    def key(self) -> str:
        """Everything of the target that changes the code."""
        raise NotImplementedError

    @classmethod
    def supports_target(cls, target: GPUTarget) -> bool:
        """Whether this compiles for a device."""
        return target.backend == cls.name

    def hash(self) -> str:
        """`key` in hexadecimal digits, for file names and keys of caches."""
        return sha256(self.key().encode()).hexdigest()

    @staticmethod
    def parse_attr(desc: str) -> list[list[Any]]:
        """Attributes of an argument from the key that it is specialised by: "D" is divisible by 16.

        >>> BaseBackend.parse_attr("D")
        [['tt.divisibility', 16]]
        """
        return [["tt.divisibility", 16]] if "D" in desc else []
