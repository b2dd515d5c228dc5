"""Lowering of tile IR to LLVM IR: the parts shared by all targets."""
