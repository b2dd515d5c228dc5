"""Launching in native code, made by LLVM at run time, with neither a C compiler nor Python.h.

The `.ll` files are the code, one routine for all kernels, driven by tables: `launch` is the way of
a call, `stages` what wrappers add to it; `arguments`, `tensors` and `parts` read it, `start` runs
it, `bound` runs what has been read before.
`layout.py` has the structures that it shares with Python, and `structure.py` fills them in.
`expand.py` makes LLVM IR of them, and `code.py` loads the code that LLVM makes, once for a machine.
`runtime.py` is what one process has of everything, `launcher.py` what each kernel has.

A kernel that takes this way is launched by builtin functions: ``kernel[grid]`` gives one, which may
be kept for repeated launches. `JITFunction.run` is the same in Python; whatever is unusual goes
there, and so does the first launch of each variant.
"""
