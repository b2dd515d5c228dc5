"""Tiles with layouts as code of one thread, for GPUs of any make.

A tile is a list of LLVM values, one for each register of its layout; equal registers share one
value, so that what is uniform along an axis is computed once. `kernel.py` holds the state of a
kernel and walks its ops; the other files, named as in `ops/`, say what each op becomes. What a GPU
has of its own stands behind `Hardware`.
"""
