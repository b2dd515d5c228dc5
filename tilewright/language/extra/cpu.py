"""The extras as this target names them; `libdevice` is the same for all."""

from tilewright.language.extra import libdevice

__all__ = ["libdevice"]
