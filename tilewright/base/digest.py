"""SHA-256 by Python's built-in module, unless `hashlib`, which loads OpenSSL, is loaded already.

Loading OpenSSL takes 2 of the 20 ms for the launch of a cached kernel. The built-in module takes
4 ms for a megabyte, the size of about 30 kernels.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING or "hashlib" in sys.modules:
    from hashlib import sha256 as _sha256
else:
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256 as _sha256
        else:
            from _sha256 import sha256 as _sha256
    except ImportError:  # another implementation of Python
        from hashlib import sha256 as _sha256


class Digest(Protocol):
    """The state of a digest."""

    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


def sha256(data: bytes = b"") -> Digest:
    """The SHA-256 digest of some bytes."""
    return _sha256(data)
