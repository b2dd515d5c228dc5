"""The tile IR: typed SSA with regions.

`core.py` holds the data structures and `define.py` the declaration of ops; read these two first.
"""
