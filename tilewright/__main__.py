"""``python -m tilewright VERB …``: see `tilewright/tools/cli.py`."""

import faulthandler
import sys

from tilewright.tools.cli import main

if __name__ == "__main__":
    if sys.stderr is not None:
        faulthandler.enable()  # a library of a plug-in may end the process: its files are named
    sys.exit(main())
