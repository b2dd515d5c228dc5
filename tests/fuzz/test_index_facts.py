"""What analyses claim of random index expressions holds for the integers that these compute."""

from __future__ import annotations

import pytest

from tests.fuzz.index_facts import expressions, faults
from tilewright.analysis import axis_info


@pytest.mark.parametrize("trust_divisors", [False, True])
def test_claims_hold(fuzz_seed: int, trust_divisors: bool) -> None:
    found = expressions(fuzz_seed)
    assert not list(faults(found, trust_divisors=trust_divisors))


def test_wrong_claims_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expressions have dividends of either sign."""
    monkeypatch.setattr(axis_info, "not_negative", lambda *_, **__: True)
    found = (f for seed in range(100) for f in faults(expressions(seed), trust_divisors=True))
    assert next(found, "")
