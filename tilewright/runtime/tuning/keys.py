"""The tuning key of a call, on which the best configuration of a kernel depends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

# Base classes, not protocols: launches check for them, and checks for protocols take longer than
# the rest of a launch.


class HasTuningKey(ABC):
    """A wrapper of a kernel that launches other kernels instead, depending on the arguments."""

    @abstractmethod
    def tuning_key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """A key that distinguishes these kernels, for these arguments by name."""
        ...


class HasParts(HasTuningKey):
    """A wrapper of a kernel whose launches may be several launches of it instead."""

    @abstractmethod
    def parts(self, *args: Any, grid: Any, **kwargs: Any) -> tuple[tuple[str, ...], ...]:
        """Launches that together are one with these arguments, each by the names of what it
        computes."""
        ...

    @abstractmethod
    def keywords_of_part(
        self, names: tuple[str, ...], kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The keywords of one of these launches, in which it differs from the whole one.

        Args:
            names: see `parts`.
            kwargs: the keywords of the whole launch.
        """
        ...


def general_key(
    fn: Any, keys: Sequence[str], parameters: frozenset[str], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Any]:
    """The tuning key of a call without the device, and the device of its tensors.

    Args:
        fn: the kernel, or a wrapper of it.
        keys: the parameters that `autotune` names.
        parameters: all parameters of the kernel.
        named: the arguments of the call by name.
    """
    key = [named[name] for name in keys if name in named]
    key += _further_key(fn, named)
    device = None
    for name, value in named.items():
        dtype = getattr(value, "dtype", None)
        if dtype is not None and name in parameters:
            key.append(_name_of(dtype))
            device = getattr(value, "device", "cpu") if device is None else device
    _require_hashes(keys, named)
    return tuple(key), device


def _require_hashes(keys: Sequence[str], named: Mapping[str, Any]) -> None:
    for name in keys:
        value = named.get(name)
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"`key` of autotune contains `{name}`, but a value of type "
                f"{type(value).__qualname__} is not hashable. Use scalar arguments that "
                "determine the best configuration, such as extents; element types of arrays are "
                "part of every key."
            ) from None


def _further_key(fn: Any, named: Mapping[str, Any]) -> tuple[Any, ...]:
    """The dependencies of the best configuration besides the arguments in `key`: for a derivative,
    its mode and arrays."""
    while hasattr(fn, "fn"):
        if isinstance(fn, HasTuningKey):
            return fn.tuning_key(named)
        fn = fn.fn
    return ()


_dtype_names: dict[Any, str] = {}


def _name_of(dtype: Any) -> str:
    """``str(dtype)``, cached, as it takes longer than the rest of a launch."""
    try:
        return _dtype_names[dtype]
    except KeyError:
        return _dtype_names.setdefault(dtype, str(dtype))
    except TypeError:  # not hashable
        return str(dtype)
