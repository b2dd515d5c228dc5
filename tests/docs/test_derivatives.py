"""The code blocks of docs/derivatives.md run, as one program, and print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.forked import TORCH, output

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "derivatives.md").read_text("utf-8")
CHECKS = """
leaf = torch.randn(1000, requires_grad=True)
torch.testing.assert_close(
    torch.autograd.grad(swish(leaf, 1000, BLOCK=128).sum(), leaf),
    torch.autograd.grad(torch.nn.functional.silu(leaf).sum(), leaf),
)
torch.testing.assert_close(dw, (args[0] * dy).sum(0), rtol=1e-4, atol=1e-4)
torch.testing.assert_close(ty, args[1].expand(300, 60))
leaf = x.clone().requires_grad_()
(once,) = torch.autograd.grad(torch.nn.functional.silu(leaf).sum(), leaf, create_graph=True)
torch.testing.assert_close(gdy, once.detach())
torch.testing.assert_close(gx, torch.autograd.grad(once.sum(), leaf)[0])
"""


def test_the_code_of_the_page_runs() -> None:
    pytest.importorskip("torch")
    code = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    shown = re.search(r"^```text\n(scale_kernel, .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert shown is not None
    assert output("\n".join([*code, CHECKS]), TORCH, strict=True) == shown[1].strip()
