"""The CPU target: a program is one task, a tile is a space that loops run over.

Read in this order, in which the files import one another. `plan` is what is decided before any
code: `group_roots` says which ops share a loop nest, `keep_values` which tiles are kept in memory.
`lanes` is the arithmetic of values along a vector, `level` a loop that is emitted; `evaluate`
computes any tile at a point. `nest` makes the loop nest of a group from its `sinks`; `steps` emits
a plan, and `program` the functions; `target` ties it to LLVM.
"""
