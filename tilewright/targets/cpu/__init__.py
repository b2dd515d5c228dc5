"""The CPU target: a program is a function executed by one thread, a tile an iteration space.

Tile ops are fused: most tiles exist only element by element, within the loop nests that consume
them. Reading order, in which the files import one another:

plan        decisions before code generation: loop fusion (`group_roots`), and the tiles that are
            materialised in memory, or *kept* (`keep_values`)
lanes       the arithmetic of values along the lanes of a vector
level       a loop body, or straight code, under construction
evaluate    computes the element of any tile at a point of the iteration space
nest        the loop nest of a group, from its `sinks`
steps       emits the steps of a plan; `program`, the functions of a kernel
target      the interface to the compiler; `emit`, that to LLVM
"""
