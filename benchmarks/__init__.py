"""How fast tilewright is beside torch, measured in one run: ``python -m benchmarks.cpu``.

The kernels of the examples are measured as they stand, so their folder is on the path here.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

sys.path.insert(0, str(ROOT / "examples"))
