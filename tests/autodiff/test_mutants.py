"""Each of these conditions, dropped from the source, is noticed by a kernel that needs it.

`test_mutations.py` replaces whole functions; here single guards are dropped. All that there are,
and which kernel notices, prints `python -m tests.autodiff.mutants`.
"""

from __future__ import annotations

import pytest

from tests.autodiff.mutants import mutants, mutated, notices
from tests.autodiff.single_conditions import WITNESSES


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", WITNESSES)
def test_the_witness_of_a_condition_notices_its_loss(name: str) -> None:
    witness = WITNESSES[name]
    witness()
    (mutant,) = [m for m in mutants(name.partition(".")[0]) if m.name == name]
    with mutated(mutant):
        assert notices(witness)
    witness()
