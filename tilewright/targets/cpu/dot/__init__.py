"""`tile.dot`: operands are packed for an instruction, and multiplied by a micro-kernel.

Reading order: `schemes`, the table of multiplying instructions and the operand format of each;
`pack`, which evaluates an operand into that format, transposing it in registers (`shuffles`) if
necessary; `product`, the micro-kernel on vectors; `tiles`, that on AMX tiles; `step`, the emitter.
"""
