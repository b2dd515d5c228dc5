"""The parts of a GPU compiler that do not depend on the vendor.

target.py           base class of GPU targets
steps.py            the passes on tile IR, with insertion points for a vendor's own
check.py            rejects kernels that no GPU target can compile
operands.py         operands of matrix instructions in shared memory
thread_products.py  matrix products without matrix instructions
compilation.py      the order after the passes: the code of one thread, then the vendor's part
codegen.py          tile IR with layouts → LLVM IR of one thread

A vendor's folder adds a `Hardware` (`lowering/simt/hardware.py`), a `GpuMachine` (`ir/machine.py`),
features, matrix instructions, and the way from LLVM IR to machine code (`machine_code`).
"""
