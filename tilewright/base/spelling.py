"""Suggestions for misspelt names: ``did you mean num_warps?``"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilewright.base.lazy_import import lazy_import

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy_import("difflib")


def similar(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names that are spelt most like a name, the most similar first.

    Args:
        most: how many to return at most.
    """
    return difflib.get_close_matches(name, sorted(set(known)), most)
