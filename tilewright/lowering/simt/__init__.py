"""Lowering of tiles with layouts to the code of one thread (SIMT), shared by all GPU targets.

Input: a function in which every tile has a layout (`passes/assign_layouts`). Output: LLVM IR of
the code that each thread executes. A tile becomes a list of LLVM values, one for each register of
its layout. Registers that hold the same element share one `V` object, so a computation that is
uniform along an axis is emitted once; emitters memoise by object identity for this reason.

`kernel.py` holds the state of a kernel and walks its ops; the other files hold the emitters of the
op families in `ops/`. The `Hardware` interface abstracts instructions that differ between GPUs.
"""
