"""Features of processors are names by which code tests for them, so none may be in a table only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright as tw
from tests.targets.nvidia.test_features import ALL
from tilewright.targets.amd.features import PROCESSORS
from tilewright.targets.nvidia.features import processor

PACKAGE = Path(tw.__file__).parent
NAMES = {
    "nvidia": {name for arch in ALL for name in processor(arch).features},
    "amd": {name for chip in PROCESSORS.values() for name in chip.features},
}


def is_tested(name: str, text: str, *, declares: bool) -> bool:
    """Whether code tests for a feature; a file that declares it mentions it elsewhere, too."""
    return re.search(rf'"{name}" (not )?in\b' if declares else rf'"{name}"', text) is not None


@pytest.mark.parametrize("target", NAMES)
def test_each_feature_is_tested_for(target: str) -> None:
    own = PACKAGE / "targets" / target / "features.py"
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    unused = {
        name
        for name in NAMES[target]
        if not any(is_tested(name, text, declares=path == own) for path, text in texts.items())
    }
    assert not unused
