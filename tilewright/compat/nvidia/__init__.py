"""The package `triton.backends.nvidia`."""
