"""The forms that `benchmarks.forms` times run on the CPU, and write all of their results."""

import pytest
import torch

from benchmarks.forms.run import measure
from benchmarks.forms.work import ALL
from benchmarks.gpu.case import Setting


@pytest.mark.parametrize("name", sorted(ALL))
def test_form_runs(name: str) -> None:
    torch.manual_seed(0)
    outcome = measure(ALL[name], Setting("cpu", "check"), ["tilewright"], None)
    assert not outcome.failure
