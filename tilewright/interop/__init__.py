"""Kernels as operators of other libraries."""
