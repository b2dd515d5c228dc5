"""Launching in native code, made by LLVM at run time, with neither a C compiler nor Python.h.

The code is one set of routines for all kernels, driven by tables, and written in Python with the
typed `Builder` (`routine.py` says how). `call.py` is the way of a launch: `match` says which
argument is which, `usual` what else a launch depends on, `stages` what wrappers add; `read`,
`read_tensors` and `read_parts` read arguments, by the table of their kinds in `runtime/kinds.py`;
`grid`, `pack` and `start` run the variant on its device; `fallback` is the way through Python, and
`bound` launches what has been read before.

`layout.py` has the structures that the code shares with Python, and `structure.py` fills them in.
`generate.py` gives the LLVM IR, and `code.py` loads the code that LLVM makes, once for a machine;
the modules that write the code are loaded for that alone. `runtime.py` is what one process has of
everything, `launcher.py` what each kernel has.

A kernel that takes this way is launched by builtin functions: ``kernel[grid]`` gives one, which may
be kept for repeated launches. `JITFunction.run` is the same in Python; whatever is unusual goes
there, and so does the first launch of each variant.
"""
