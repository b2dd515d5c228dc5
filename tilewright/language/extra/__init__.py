"""Functions beyond the core of the language, by library and by target.

Those for a target of another package are an entry point of the group ``tilewright.language.extra``:

    [project.entry-points."tilewright.language.extra"]
    mychip = "mychip.language"                # tl.extra.mychip
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_names
from tilewright.base.plug_ins import EXTRAS, load_plug_in, plug_ins
from tilewright.language.extra import cpu, cuda, hip

__all__ = ["cpu", "cuda", "hip", "libdevice"]


def _module_of_plug_in(name: str) -> Any:
    """A module of a plug-in.

    Raises:
        AttributeError: no package provides it.
        PlugInError: importing it fails.
    """
    # Special names are looked up by `import` and `inspect`: they do not read what is installed.
    if name.startswith("__") or name not in plug_ins(EXTRAS):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load_plug_in(EXTRAS, name)


if TYPE_CHECKING:
    from tilewright.language.extra import libdevice as libdevice

    def __getattr__(name: str) -> Any: ...
else:
    __getattr__ = lazy_names(__name__, {__name__: ("libdevice",)}, _module_of_plug_in)
