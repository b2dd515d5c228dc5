"""The conformance suite: what a target supports, determined by running kernels on it.

`python -m tilewright conformance --target X` runs it (docs/conformance.md). The levels are in the
modules named after their contents; `suite.py` lists the cases, `execution.py` runs one, `pool.py`
runs all in child processes, and `report.py` formats the outcome.
"""
