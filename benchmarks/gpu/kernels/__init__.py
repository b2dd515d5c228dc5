"""Kernels as users write them; `benchmarks.gpu.dialect` loads a file for one module or another."""
