"""No error without a golden text: each place of the package that raises one is reached by a case
of this folder, or is on the list of those that need none, with the reason.
"""

import pytest

from tests.errors.sites import Reached, Site, excuses, sites
from tests.errors.untold import UNTOLD


@pytest.fixture(scope="module")
def without_a_case() -> list[Site]:
    reached = Reached()
    reached.run()
    return [site for site in sites() if site not in reached]


def test_every_error_has_a_case_or_a_reason(without_a_case: list[Site]) -> None:
    untold = [s for s in without_a_case if not any(excuses(u, s) for u in UNTOLD)]
    lines = "\n".join(map(str, untold))
    assert not untold, f"write a case in tests/errors, or a reason in untold.py:\n{lines}"


def test_every_reason_is_needed(without_a_case: list[Site]) -> None:
    stale = [u for u in UNTOLD if not any(excuses(u, s) for s in without_a_case)]
    assert not stale


def test_a_place_without_a_case_is_found() -> None:
    reached = Reached()
    assert all(site not in reached for site in sites())
    site = next(iter(sites()))
    reached.lines.add((site.file, site.last))
    assert site in reached
