"""Random sets of disabled passes: results must not depend on which optimisations run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir.passes import OPTIONAL_PARTS, Step


def random_disabled(seed: int, steps: Sequence[Step]) -> frozenset[str]:
    """Of a pipeline: for half of the seeds none, for an eighth all that are optional, else some."""
    rng = np.random.default_rng((seed, 0xD15A))
    optional = sorted({s.name for s in steps if not s.pass_.required} | OPTIONAL_PARTS)
    kind = rng.integers(8)
    if kind < 4:
        return frozenset()
    share = 1.0 if kind == 4 else rng.choice([0.2, 0.5])
    return frozenset(name for name in optional if rng.random() < share)
