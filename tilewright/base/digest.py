"""SHA-256, whose module loads with the first digest: loading OpenSSL for it takes 2 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tilewright.base.lazy_import import lazy_import

if TYPE_CHECKING:
    import hashlib
else:
    hashlib = lazy_import("hashlib")


class Digest(Protocol):
    """The state of a digest."""

    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


def sha256(data: bytes = b"") -> Digest:
    """The SHA-256 digest of some bytes."""
    return hashlib.sha256(data)
