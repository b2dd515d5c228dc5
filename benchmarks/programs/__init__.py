"""Any program's Triton kernels, timed under tilewright and under Triton.

Run it by ``python -m benchmarks.programs``. A worker process each, in which the module `triton` is
tilewright's or Triton's, runs the program's calls unchanged; the main process alternates between
them.
"""
