"""Kernels in forms that people publish, timed under tilewright and Triton with equal launches."""
