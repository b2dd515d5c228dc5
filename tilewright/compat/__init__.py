"""Code that imports `triton` runs on tilewright: in this process, and in those that it starts."""

from tilewright.compat.install import VERSION, install_as_triton, search_path

__all__ = ["VERSION", "install_as_triton", "search_path"]
