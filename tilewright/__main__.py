"""``python -m tilewright VERB …``: see `tilewright/tools/cli.py`."""

import sys

from tilewright.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
