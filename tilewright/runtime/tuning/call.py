"""The call of an autotuned kernel, as the subject of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any, NamedTuple

from tilewright.runtime.config import Config
from tilewright.runtime.descriptors import is_descriptor
from tilewright.runtime.placement import leaves_of
from tilewright.runtime.tensors import find_reader
from tilewright.runtime.tuning.protect import written_tensors


class Prepared(NamedTuple):
    """The result of a wrapper that has compiled several kernels instead of one.

    Attributes:
        written: the tensors that they may write.
    """

    written: tuple[Any, ...]


class Call:
    """A call of an autotuned kernel (see `search.Subject`).

    Args:
        tuner: the `Autotuner`.
        device: the name of the tensors' device.
        idle: options that do not affect the code there.
        args, kwargs: the arguments of the call; `kwargs` includes the grid.
    """

    def __init__(
        self,
        tuner: Any,
        device: str,
        idle: frozenset[str],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._tuner = tuner
        self._args = args
        self._nargs = dict(zip(tuner.arg_names, args, strict=False))
        self._kwargs = {k: v for k, v in kwargs.items() if k not in ("grid", "warmup")}
        self._grid = kwargs["grid"]
        self.name = tuner.__name__
        self.device = device
        self._idle = idle.difference(tuner.arg_names)  # a parameter of that name has an effect

    def reduced(self, config: Config) -> Config:
        used = {n: v for n, v in config.all_kwargs().items() if n not in self._idle}
        return Config(used, None, None, None, pre_hook=config.pre_hook)

    def compile(self, config: Config) -> Any:
        chosen = self._tuner.merged(self._kwargs, config)
        args = self._args
        if config.pre_hook is not None:
            args, chosen = self._described(config.pre_hook, chosen)
        return self._tuner.fn.run(*args, grid=self._grid, warmup=True, **chosen)

    def _described(
        self, hook: Callable[[Any], Any], chosen: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for a compilation, with descriptors as the configuration's hook sets them.

        Descriptors are copied, since other configurations may be compiled concurrently. Without
        descriptors the hook is not called, as it would modify the contents of tensors.
        """
        own = {id(v): copy(v) for v in (*self._args, *chosen.values()) if is_descriptor(v)}
        args = tuple(own.get(id(v), v) for v in self._args)
        chosen = {name: own.get(id(v), v) for name, v in chosen.items()}
        if own:
            nargs = dict(zip(self._tuner.arg_names, args, strict=False))
            hook({**nargs, "grid": self._grid, **chosen})
        return args, chosen

    def written(self, compiled: Any) -> list[Any]:
        """The tensors that the kernel may write; all of them if its metadata does not list them."""
        if isinstance(compiled, Prepared):
            return list(compiled.written)
        values = [*self._nargs.values(), *self._kwargs.values()]
        metadata = getattr(compiled, "metadata", None)
        names = getattr(metadata, "signature", None)
        if metadata is None or names is None:
            return [v for value in values for v in leaves_of(value) if find_reader(v) is not None]
        named = {**self._nargs, **self._kwargs}
        return written_tensors(metadata, [named.get(name) for name in names])

    def run(self, config: Config) -> Callable[[], Any]:
        tuner = self._tuner
        chosen = tuner.merged(self._kwargs, config)
        full = {**self._nargs, "grid": self._grid, **chosen}
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
