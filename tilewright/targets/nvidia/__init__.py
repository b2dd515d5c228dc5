"""The NVIDIA target: tile IR → LLVM IR → PTX → cubin.

target.py       the target's compiler: options, stages, metadata
features.py     features of each architecture; the only file with compute capabilities
codegen.py      this target's part of the shared generation of LLVM IR
compilation.py  LLVM IR → PTX → cubin
notes.py        facts about a kernel that emitters record
emit.py         LLVM IR → PTX
assemble.py     PTX → cubin, with ptxas or nvJitLink
cubin.py        reads resource usage from a cubin
disassemble.py  cubin → SASS, for inspection and tests
toolkit.py      finds and runs NVIDIA's programs and libraries
"""
