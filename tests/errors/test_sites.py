"""Every error has a golden text: each `raise` of the package is covered by a case in this folder or
is listed in `uncovered.py` with a reason.
"""

from tests.errors.sites import Reached, matches, sites, without_a_case
from tests.errors.uncovered import UNCOVERED


def test_every_error_has_either_a_case_or_a_reason() -> None:
    found = without_a_case()
    missing = [s for s in found if not any(matches(u, s) for u in UNCOVERED)]
    lines = "\n".join(map(str, missing))
    assert not missing, f"write a case in tests/errors, or a reason in uncovered.py:\n{lines}"
    stale = [u for u in UNCOVERED if not any(matches(u, s) for s in found)]
    assert not stale, f"remove from uncovered.py: {stale}"


def test_site_without_a_case_is_reported() -> None:
    reached = Reached()
    assert all(site not in reached for site in sites())
    site = next(iter(sites()))
    reached.lines.add((site.file, site.last))
    assert site in reached
