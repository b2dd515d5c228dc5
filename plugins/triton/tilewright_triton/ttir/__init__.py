"""Tile IR as TTIR: the text of an MLIR module in the dialects arith, math, scf and tt, which the
parser of Triton reads. `print_ttir.py` is the entry; a file for each family of ops."""
