"""What the compilers for GPUs of all makers share.

target.py           base of their targets
steps.py            the passes on tile IR, with places for a maker's own
check.py            refuses what no GPU computes
thread_products.py  products without a matrix instruction
codegen.py          tile IR with layouts → LLVM IR

A maker's folder has the rest: a `Hardware` (`lowering/simt/hardware.py`), a `GpuMachine`
(`ir/machine.py`), features, matrix instructions, and what makes code of LLVM IR.
"""
