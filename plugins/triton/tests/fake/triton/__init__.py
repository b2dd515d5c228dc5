"""A stand-in for Triton with one back end, `toy`, whose code is the text that it is given."""

import os

__version__ = os.environ.get("FAKE_TRITON_VERSION", "3.6.0")
