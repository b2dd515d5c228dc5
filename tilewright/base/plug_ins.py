"""Plug-ins: extensions by other distributions, found by entry points.

| group | an entry point is |
|---|---|
| ``tilewright.targets`` | a factory of a target, by its name |
| ``tilewright.drivers`` | a class of drivers, by the type of its devices |
| ``tilewright.launchers`` | a class of loaded kernels, by the name of the target |
| ``tilewright.language.extra`` | a module of functions for kernels, by its name in ``tl.extra`` |

Reading the installed distributions takes longer than importing this whole package (28 ms measured),
so it is done only for names that are not built in, and once.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.base.diagnostics import TritonError
from tilewright.base.lazy_import import lazy_import

if TYPE_CHECKING:
    from importlib import metadata
else:
    metadata = lazy_import("importlib.metadata")

TARGETS, DRIVERS, LAUNCHERS, EXTRAS = GROUPS = (
    "tilewright.targets",
    "tilewright.drivers",
    "tilewright.launchers",
    "tilewright.language.extra",
)


class PlugInError(RuntimeError):
    """A plug-in cannot be loaded or used. The message names it, its distribution and the cause."""


_rejected: dict[Any, str] = {}


@cache
def plug_ins(group: str) -> dict[str, Any]:
    """The entry points of a group by name; none is loaded."""
    return {point.name: point for point in metadata.entry_points(group=group)}


def reject(point: Any, cause: str) -> None:
    """Have this process not load an entry point, which would end it; the cause is its error."""
    _rejected[point] = cause


def load_plug_in(group: str, name: str) -> Any:
    """The object of an entry point, which must exist.

    Raises:
        PlugInError: importing it fails, or it was rejected.
    """
    point = plug_ins(group)[name]
    provider = provider_of(group, name)
    if point in _rejected:
        raise PlugInError(f"{provider} cannot be loaded: {_rejected[point]}")
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise PlugInError(
            f"{provider} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def provider_of(group: str, name: str) -> str:
    """The plug-in with an entry point, in words; "" if there is none."""
    point = plug_ins(group).get(name)
    return "" if point is None else f"the plug-in {describe(point)}"


@contextmanager
def faults_of(provider: str, *passed: type[Exception]) -> Generator[None]:
    """Within, where code of a plug-in runs, its errors become a `PlugInError` that names it.

    Args:
        provider: the plug-in in words; "" if the code is not of one, whose errors pass.
        passed: errors that are not the plug-in's fault. Those of kernels and devices never are.
    """
    try:
        yield
    except (TritonError, PlugInError, *passed):
        raise
    except Exception as error:
        if not provider:
            raise
        raise PlugInError(f"{provider} cannot be used: {type(error).__name__}: {error}") from error


def describe(point: Any) -> str:
    """An entry point in words: ``tilewright.targets: npu = npu.compiler:Target, of npu 1.0``."""
    dist = point.dist
    of = f", of {dist.name} {dist.version}" if dist is not None else ""
    return f"{point.group}: {point.name} = {point.value}{of}"
