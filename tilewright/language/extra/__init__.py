"""Functions beyond the core of the language, by library and by target."""

from tilewright.language.extra import cpu, cuda, hip, libdevice

__all__ = ["cpu", "cuda", "hip", "libdevice"]
