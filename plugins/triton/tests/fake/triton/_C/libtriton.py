"""What the bridge calls of Triton's library."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace


class Module:
    """A module, which is its text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.context = None

    def verify(self) -> bool:
        return True

    def __str__(self) -> str:
        return self.text


def parse_mlir_module(path: str, context: object) -> Module:
    text = Path(path).read_text("utf-8")
    if "tt.histogram" in text:  # an error as the library reports it, at the op's location
        line = next(line for line in text.splitlines() if "tt.histogram" in line)
        place = line.rpartition("loc(")[2].rstrip(")").replace('"', "")
        sys.stderr.write(f"{place}: error: 'tt.histogram' is not for toys\n")
        raise RuntimeError("Parse MLIR file failed.")
    if "tt.scan" in text:
        os.abort()
    return Module(text)


ir = SimpleNamespace(
    context=lambda: object(),
    load_dialects=lambda context: None,
    parse_mlir_module=parse_mlir_module,
)
