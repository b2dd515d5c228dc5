"""Every error has a golden text: each `raise` of the package is covered by a case in this folder or
is listed in `uncovered.py` with a reason.
"""

import pytest

from tests.errors.sites import Reached, Site, matches, sites
from tests.errors.uncovered import UNCOVERED


@pytest.fixture(scope="module")
def without_a_case() -> list[Site]:
    reached = Reached()
    reached.run()
    return [site for site in sites() if site not in reached]


def test_every_error_has_a_case_or_a_reason(without_a_case: list[Site]) -> None:
    missing = [s for s in without_a_case if not any(matches(u, s) for u in UNCOVERED)]
    lines = "\n".join(map(str, missing))
    assert not missing, f"write a case in tests/errors, or a reason in uncovered.py:\n{lines}"


def test_every_reason_is_needed(without_a_case: list[Site]) -> None:
    stale = [u for u in UNCOVERED if not any(matches(u, s) for s in without_a_case)]
    assert not stale


def test_site_without_a_case_is_reported() -> None:
    reached = Reached()
    assert all(site not in reached for site in sites())
    site = next(iter(sites()))
    reached.lines.add((site.file, site.last))
    assert site in reached
