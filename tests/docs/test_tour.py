"""docs/tour.md shows what the compiler does today."""

from __future__ import annotations

import difflib

import numpy as np
import pytest

from tests.docs import tour, tour_kernel

HOW = "python -m tests.docs.tour regenerates the dumps; read the differences"


def _page() -> dict[str, str]:
    return tour.dumps_of(tour.PAGE.read_text("utf-8"))


def test_page_has_every_dump() -> None:
    assert list(_page()) == list(tour.DUMPS)


@pytest.mark.parametrize("name", tour.DUMPS)
def test_dump_equals_the_output_of_the_compiler(name: str) -> None:
    page = _page()
    if name in tour.LLVM_DUMPS and page["version"] != tour.DUMPS["version"]():
        pytest.skip(f"the page has LLVM {page['version'].strip()}")
    made = tour.DUMPS[name]()
    difference = difflib.unified_diff(
        page[name].splitlines(), made.splitlines(), "docs/tour.md", "now", lineterm=""
    )
    assert page[name] == made, "\n".join([HOW, *difference])


def test_a_stale_dump_is_replaced_and_the_rest_is_kept() -> None:
    page = "text\n<!-- dump: version -->\n```text\nold\n```\nmore\n```\n<!-- dump: none -->\n```\n"
    version = tour.DUMPS["version"]()
    expected = page.replace("old\n", version)
    assert tour.renewed(page) == expected


def test_kernel_of_the_tour_is_right() -> None:
    x = np.random.default_rng(0).standard_normal((50, 300), dtype=np.float32)
    out = np.empty_like(x)
    tour_kernel.rms_norm[(50,)](x, out, 300, 300, BLOCK=512)
    expected = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(out, expected, rtol=1e-5)
