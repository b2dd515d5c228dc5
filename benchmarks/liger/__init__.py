"""The operators of liger-kernel, unchanged, on tilewright and on Triton.

Run it by ``python -m benchmarks.liger``. There are two worker processes, one in which the module
`triton` is tilewright and one in which it is Triton; the main process alternates between them.
"""
