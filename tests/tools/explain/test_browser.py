"""The page in a real browser: the four main examples, whether panes exist and lines light up.

Debian's `chromium` is what is meant; without one these tests skip. A script is added to a copy of
the page, which uses it as a person would and writes down what it saw.
"""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from tilewright.tools import cli

ROOT = Path(__file__).parents[3]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium")

ATTENTION = {
    "q_ptr": "*fp16:16", "k_ptr": "*fp16:16", "v_ptr": "*fp16:16", "o_ptr": "*fp16:16",
    "lse_ptr": "*fp32:16", "positions": "i32:16", "scale": "fp32",
}  # fmt: skip
PAGES = {
    "softmax": ["examples/fused_softmax.py", "-t", "sm_90"],
    "layer norm": ["examples/layer_norm.py::forward_kernel"],
    "matmul": ["examples/matmul.py", "-c", "BLOCK_M=64", "-c", "BLOCK_N=64", "-c", "BLOCK_K=32"],
    "attention": [
        "benchmarks/gpu/kernels/attention.py::forward_kernel", "-t", "sm_90",
        "-s", ",".join(f"{name}={type}" for name, type in ATTENTION.items()),
        *("-c", "D=64", "-c", "BLOCK_M=64", "-c", "BLOCK_N=64", "-c", "CAUSAL=True"),
        *("--grid", "16,64", "--arg", "positions=1024", "--arg", "scale=0.18"),
    ],
}  # fmt: skip

VISIT = Path(__file__).with_name("visit.js")


def visit(page: Path, profile: Path) -> dict[str, object]:
    """What `visit.js` saw in the browser. Nothing may have gone wrong on its console."""
    script = f"<script>{VISIT.read_text('utf-8')}</script></body>"
    page.write_text(page.read_text("utf-8").replace("</body>", script), "utf-8")
    assert BROWSER is not None
    ended = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom",
            "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--window-size=1500,1000",
            "--enable-logging=stderr", page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert not [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    found = re.search(r'<pre id="seen">(.*?)</pre>', ended.stdout)
    assert found, "the page's script did not come to its end"
    return json.loads(unescape(found[1]))


@pytest.mark.parametrize("name", PAGES)
def test_page_in_a_browser(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.html"
    assert cli.main(["explain", *PAGES[name], "-O", str(page)]) == 0, capsys.readouterr().err
    assert page.stat().st_size < 3_000_000
    seen = visit(page, tmp_path / "profile")
    assert seen["panes"] == 3
    assert all(count > 5 for count in _numbers(seen["lines"]))
    assert any(
        _numbers(seen["first"])
    )  # the lines of the first remark are highlighted from the start
    assert seen["none"] == [0, 0]
    for what in ("hovered", "clicked"):
        assert all(count > 0 for count in _numbers(seen[what])), what
    assert "Lines: " in str(seen["inspected"])
    assert sum(count > 0 for count in _numbers(seen["counts"])) >= 6
    moved = seen["moved"]
    assert isinstance(moved, list)
    assert moved[0] != moved[1]
    forms = seen["forms"]
    assert isinstance(forms, list)
    assert len(forms) >= 4
    assert all(count > 5 and chosen == "true" for _, count, chosen in forms)
    assert seen["back"] == [True, 1]
    assert (int(str(seen["pictures"])) > 100) == ("-t" in PAGES[name])
    assert str(seen["fill"]) != "rgb(0, 0, 0)" or "-t" not in PAGES[name]
    assert seen["wide"] == 0  # nothing makes the whole page scroll sideways


def _numbers(value: object) -> list[int]:
    assert isinstance(value, list)
    return [int(item) for item in value]
