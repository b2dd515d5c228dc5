"""`tile.dot`: operands are packed for an instruction, then a micro-kernel walks over them.

Read in this order: `schemes` is the table of instructions that multiply and how each wants its
operands; `pack` evaluates an operand into that form, turning it in registers (`shuffles`) where it
comes the other way round; `product` is the micro-kernel on vectors and `tiles` the one on AMX
tiles; `step` puts them together.
"""
