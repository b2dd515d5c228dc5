"""Lowering of tile IR to LLVM: what all targets share."""
