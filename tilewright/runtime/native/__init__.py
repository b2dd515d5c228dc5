"""Launching in native code, made by LLVM at run time, with neither a C compiler nor Python.h.

`launch.ll`, `arguments.ll` and `start.ll` are the code; `layout.py` has the structures that it and
Python share; `code.py` turns the text into machine code, once for a machine, and loads it;
`runtime.py` fills in what one process has of everything; `launcher.py` what each kernel has.
"""
