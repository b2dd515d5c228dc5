"""Derived gradient kernels against hand-written ones, compiled by the same compiler."""
