"""The fast path of a launch: native code that LLVM compiles, without a C compiler or Python.h.

``kernel[grid]`` returns a builtin function of this code; it reads the arguments, finds the compiled
variant by a key, and starts it. `JITFunction.run` does the same in Python. It is the slow path: for
the first launch of each variant, and for every call that the fast path does not support.

One set of routines serves all kernels; it is driven by tables. The routines are written in Python
with the typed `Builder` (see `routine.py`), in the order of a launch:

    call            the entry points, and the lookup of the variant (an inline cache, then a dict)
    match           assigns arguments to parameters
    guards          checks hooks, global variables and settings
    stages          adds the arguments of wrappers: autotuner, heuristics
    read*           reads arguments into words of the key and slots, by the table `runtime/kinds.py`
    grid, pack      evaluates the grid, packs the kernel's arguments
    start*          starts the kernel on its device
    fallback        calls the slow path
    bound           launches with arguments that were read before (`kernel.bind`)
    call_compiled   launches of one compiled kernel (`CompiledKernel.run`)

`layout.py` defines the structures that the code shares with Python; `structure.py` fills them in.
`generate.py` produces the LLVM IR and `code.py` loads its object code, which is cached on disk: the
modules that write the code are imported on a cache miss only. `runtime.py` has the state of the
process, `launcher.py` the state of one kernel (`parameters.py`, `records.py`), `compiled.py` that
of a compiled one.
"""
