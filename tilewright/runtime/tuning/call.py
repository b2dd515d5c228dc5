"""One call of a tuned kernel, and what is done to its tensors between trial runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

from tilewright.runtime.config import Config
from tilewright.runtime.descriptors import is_descriptor
from tilewright.runtime.placement import leaves_of
from tilewright.runtime.tensors import find_reader
from tilewright.runtime.tuning.protect import written_tensors


class Call:
    """A call of a tuned kernel, as a subject of the search.

    Args:
        tuner: the `Autotuner`.
        device: the name of the device that the tensors are on.
        args, kwargs: of the call, the grid among them.
    """

    def __init__(
        self, tuner: Any, device: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._tuner = tuner
        self._args = args
        self._nargs = dict(zip(tuner.arg_names, args, strict=False))
        self._kwargs = {k: v for k, v in kwargs.items() if k not in ("grid", "warmup")}
        self._grid = kwargs["grid"]
        self.name = tuner.__name__
        self.device = device

    def compile(self, config: Config) -> Any:
        chosen = self._tuner.merged(self._kwargs, config)
        args = self._args
        if config.pre_hook is not None:
            args, chosen = self._described(config.pre_hook, chosen)
        return self._tuner.fn.run(*args, grid=self._grid, warmup=True, **chosen)

    def _described(
        self, hook: Callable[[Any], Any], chosen: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with descriptors as a configuration's hook shapes them: copies, since
        others may be compiled at the same time. A hook that has none to shape is not called: it
        works on what tensors hold."""
        own = {id(v): copy(v) for v in (*self._args, *chosen.values()) if is_descriptor(v)}
        args = tuple(own.get(id(v), v) for v in self._args)
        chosen = {name: own.get(id(v), v) for name, v in chosen.items()}
        if own:
            hook({**dict(zip(self._tuner.arg_names, args, strict=False)), **chosen})
        return args, chosen

    def written(self, compiled: Any) -> list[Any]:
        """What the kernel may write; every tensor, where the kernel does not say it."""
        given = [*self._nargs.values(), *self._kwargs.values()]
        metadata = getattr(compiled, "metadata", None)
        names = getattr(metadata, "signature", None)
        if metadata is None or names is None:
            return [v for value in given for v in leaves_of(value) if find_reader(v) is not None]
        named = {**self._nargs, **self._kwargs}
        return written_tensors(metadata, [named.get(name) for name in names])

    def run(self, config: Config) -> Callable[[], Any]:
        tuner = self._tuner
        chosen = tuner.merged(self._kwargs, config)
        full = {**self._nargs, **chosen}
        launch = partial(tuner.fn[self._grid], *self._args, **chosen)
        hooked = tuner.user_defined_pre_hook or tuner.user_defined_post_hook
        if not (hooked or config.pre_hook or tuner.reset_to_zero or tuner.restore_value):
            return launch

        def run() -> None:
            if config.pre_hook is not None:
                config.pre_hook(full)
            tuner.pre_hook(full)
            try:
                launch()
            except Exception as error:
                tuner.post_hook(full, exception=error)
                raise
            tuner.post_hook(full, exception=None)

        return run


def clear(tensor: Any) -> None:
    """Set all elements to zero."""
    if hasattr(tensor, "zero_"):
        tensor.zero_()
    else:
        tensor[...] = 0


def copied(tensor: Any) -> Any:
    """Another tensor of the same values."""
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()


def assign(tensor: Any, values: Any) -> None:
    """Set all elements to those of another tensor."""
    if hasattr(tensor, "copy_"):
        tensor.copy_(values)
    else:
        tensor[...] = values
