"""Running code that imports `triton` on tilewright, in this process and in child processes."""

from tilewright.compat.install import VERSION, install_as_triton, search_path

__all__ = ["VERSION", "install_as_triton", "search_path"]
