"""The package `triton.experimental`."""

from typing import TYPE_CHECKING

from tilewright.base.lazy_import import lazy_names

if TYPE_CHECKING:
    from tilewright.compat.experimental import gluon as gluon
else:
    __getattr__ = lazy_names(__name__, {__name__: ("gluon",)})
