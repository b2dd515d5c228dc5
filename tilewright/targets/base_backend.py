"""Base class of the built-in targets: the methods that programs call on a target's compiler."""

from __future__ import annotations

from typing import Any

from tilewright.base.digest import sha256
from tilewright.targets.protocol import GPUTarget


class BaseBackend:
    """Base of the built-in targets, also available as `triton.backends.compiler.BaseBackend`.

    Attributes:
        name: the target's name.
        without_effect: options that are accepted, but do not affect the code.
    """

    name: str
    without_effect: frozenset[str] = frozenset()

    def key(self) -> str:
        """The target's part of the cache key: everything of it that affects the generated code."""
        raise NotImplementedError

    @classmethod
    def supports_target(cls, target: GPUTarget) -> bool:
        """Whether this target compiles for a device."""
        return target.backend == cls.name

    def hash(self) -> str:
        """The SHA-256 digest of `key` in hexadecimal digits, for file names and cache keys."""
        return sha256(self.key().encode()).hexdigest()

    @staticmethod
    def parse_attr(desc: str) -> list[list[Any]]:
        """The attributes of an argument, from its specialisation key: "D" is divisible by 16.

        >>> BaseBackend.parse_attr("D")
        [['tt.divisibility', 16]]
        """
        return [["tt.divisibility", 16]] if "D" in desc else []

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        """Functions that Triton's front end takes from a backend: none here."""
        return {}

    def get_module_map(self) -> dict[str, Any]:
        """Modules that Triton's front end takes from a backend: none here."""
        return {}

    def load_dialects(self, context: Any) -> None:
        """Does nothing: in Triton, it registers the ops of the backend's IR."""
