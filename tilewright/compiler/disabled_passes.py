"""The passes, and parts of passes, that `knobs.compilation.disabled_passes` turns off."""

from __future__ import annotations

from tilewright.base import knobs
from tilewright.base.diagnostics import TritonError
from tilewright.compiler.pipeline import pipeline
from tilewright.ir.passes import OPTIONAL_PARTS
from tilewright.targets import registry
from tilewright.targets.protocol import Target


class DisabledPassError(TritonError):
    """The setting names no pass, or one that can't be disabled."""


def disabled_passes(target: Target) -> frozenset[str]:
    """The names of the setting, which may be of other targets' passes.

    Raises:
        DisabledPassError: one is no name of a pass, or of a pass that every compilation needs.
    """
    text = knobs.compilation.disabled_passes or ""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names:
        return names
    others = [registry.target(name) for name in registry.names() if registry.is_built_in(name)]
    steps = [step for found in (target, *others) for step in pipeline(found)]
    required = {step.name for step in steps if step.pass_.required}
    optional = ({step.name for step in steps} | OPTIONAL_PARTS) - required
    for name in sorted(names - optional):
        needed = name in required
        why = f"every compilation needs the pass {name}" if needed else f"there is no pass {name!r}"
        raise DisabledPassError(
            f"the setting compilation.disabled_passes: {why}; {', '.join(sorted(optional))} can be "
            "disabled"
        )
    return names
