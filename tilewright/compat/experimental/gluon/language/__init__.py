"""The module `triton.experimental.gluon.language`: types are tilewright's, the rest is missing."""

from __future__ import annotations

from typing import Any

from tilewright import language
from tilewright.compat.missing import Missing
from tilewright.language.types import dtype

NAME = "triton.experimental.gluon.language"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {NAME!r} has no attribute {name!r}", name=name)
    shared = getattr(language, name, None)
    if isinstance(shared, dtype | type):
        return shared
    return Missing(f"{NAME}.{name}", "kernels in Gluon cannot be compiled")
