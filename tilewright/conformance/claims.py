"""The claims of a target, and the options that the suite compiles with."""

from __future__ import annotations

from typing import Any, cast

from tilewright.base.plug_ins import faults_of
from tilewright.conformance.case import Failed
from tilewright.targets.protocol import LEVELS, Claims, HasClaims, Target, UnknownOptionError
from tilewright.targets.registry import provider_of


def claims_of(target: Target) -> Claims:
    """The claims of a target: everything, unless it has a method `claims`.

    Raises:
        Failed: the result is not valid.
        PlugInError: the target is of a plug-in that cannot be used.
    """
    if not isinstance(target, HasClaims):
        return Claims()
    with faults_of(provider_of(target.name)):
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
