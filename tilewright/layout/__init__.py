"""Layouts: which element of a tile lies where, as linear maps over GF(2). See `linear.py`."""
