"""The CPU target: a program is one task, a tile is a space that loops run over.

Read in this order: `plan` decides which tiles are kept in memory and which ops share a loop;
`lanes` is the arithmetic of values along a vector; `evaluate` computes any tile at a point;
`loops` makes the loops, and `prefetch` says what they ask memory for meanwhile; `kernel` walks the
program; `target` ties it to LLVM.
"""
