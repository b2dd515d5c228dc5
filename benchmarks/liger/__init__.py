"""The operators of liger-kernel, unchanged, on tilewright beside Triton.

``python -m benchmarks.liger`` runs it.

Two processes do the work, one in which `triton` is tilewright and one in which it is Triton; a
third has them compute the same in turn.
"""
