"""Layouts: the location of each element of a tile, as linear maps over GF(2). See `linear.py`."""
