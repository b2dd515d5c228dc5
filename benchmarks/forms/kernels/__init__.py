"""Kernels in the forms in which libraries publish them, loaded for either compiler by `dialect`."""
