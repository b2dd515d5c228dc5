"""The AMD target: tile IR → LLVM IR → object file → code object (hsaco).

target.py       the target's compiler: options, stages, metadata
features.py     features of each processor; the only file with their names
choose_mma.py   the matrix instruction for each product; mma_table.py: the instructions; mma.py:
                their emission
codegen.py      this target's part of the shared generation of LLVM IR: hardware.py with shuffle.py
                and atomic.py, arith.py, debug.py
compilation.py  LLVM IR → code object
emit.py         LLVM IR → object file, assembly
code_object.py  object file → code object; elf.py reads the former
resources.py    resource usage and occupancy
kernel_note.py  reads resources of a kernel from its object file
"""
