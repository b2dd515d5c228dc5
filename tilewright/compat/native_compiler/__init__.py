"""The package `triton._C`, which in Triton holds its compiler in C++."""

from tilewright.compat.native_compiler import libtriton as libtriton
