"""The claims of a target, and the options that the suite compiles with."""

from __future__ import annotations

from typing import Any, cast

from tilewright.conformance.case import Failed
from tilewright.targets.protocol import LEVELS, Claims, HasClaims, Target, UnknownOptionError


def claims_of(target: Target) -> Claims:
    """The claims of a target: everything, unless it has a method `claims`.

    Raises:
        Failed: the result is not valid.
    """
    if not isinstance(target, HasClaims):
        return Claims()
    found = cast(object, target.claims())
    if not isinstance(found, Claims):
        raise Failed(f"claims() of {target.name} returns {found!r}, not a Claims")
    unknown = [level for level in found.levels if level not in LEVELS]
    if unknown:
        raise Failed(
            f"{target.name} claims the level {unknown[0]!r}; there are {', '.join(LEVELS)}"
        )
    return found


def exact_options(target: Target) -> Any:
    """The target's default options, without fused products and sums, where there is a choice."""
    try:
        return target.parse_options({"enable_fp_fusion": False})
    except UnknownOptionError:
        return target.parse_options({})
