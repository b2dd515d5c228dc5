"""Calls of public libraries' kernels, for `python -m benchmarks.programs`.

    python -m benchmarks.programs benchmarks/programs/libraries/fla_core.py --path SITE

A file for each library, whose functions create inputs and call the library, unmodified. SITE is a
folder of unpacked packages, as of ``pip install --no-deps --target SITE PACKAGE``.
"""
