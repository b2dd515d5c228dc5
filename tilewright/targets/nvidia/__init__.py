"""The NVIDIA target: tile IR → LLVM IR → PTX → cubin.

target.py       the target's compiler: options, stages, metadata
features.py     what each architecture has; capability numbers stand only there
codegen.py      tile IR → LLVM IR
emit.py         LLVM IR → PTX
assemble.py     PTX → cubin, with ptxas or nvJitLink
cubin.py        reads registers and memory out of a cubin
disassemble.py  cubin → SASS, for readers and tests
toolkit.py      finds NVIDIA's programs and libraries, and runs them
"""
