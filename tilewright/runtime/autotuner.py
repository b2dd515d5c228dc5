"""`autotune`: selects the fastest of several configurations of a kernel by measurement.

    @tilewright.autotune([Config({"BLOCK": 128}), Config({"BLOCK": 1024}, num_warps=8)], key=["n"])
    @tilewright.jit
    def kernel(x, n, BLOCK: tl.constexpr):
        ...

    kernel[lambda meta: (tilewright.cdiv(n, meta["BLOCK"]),)](x, n)

The first launch for a tuning key measures the configurations (`tuning/search.py`). Later launches
and later processes use the result. Memory that trial runs write is restored.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.base import knobs
from tilewright.base.diagnostics import AutotunerError, OutOfResources, PTXASError
from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.runtime import driver
from tilewright.runtime.bench import do_bench_cudagraph
from tilewright.runtime.cache import disk_cache
from tilewright.runtime.config import Config
from tilewright.runtime.heuristics import Heuristics, heuristics
from tilewright.runtime.interface import Chain, NativeInterface, parameters_of
from tilewright.runtime.observed_dict import ObservedDict
from tilewright.runtime.tuning import results
from tilewright.runtime.tuning.call import Call
from tilewright.runtime.tuning.devices import Device, device_of_call
from tilewright.runtime.tuning.hooks import ResetAndRestore
from tilewright.runtime.tuning.keys import HasParts, general_key
from tilewright.runtime.tuning.prune import cheapest, number_kept
from tilewright.runtime.tuning.results import import_tuning
from tilewright.runtime.tuning.search import FULL, ONCE, Effort, fastest
from tilewright.runtime.tuning.timings import measured, measured_once
from tilewright.runtime.tuning.wrapped import is_interpreted, kernel_of, python_function

if TYPE_CHECKING:
    from pathlib import Path

    from tilewright.runtime.native import launcher
else:
    launcher = lazy_import("tilewright.runtime.native.launcher")

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "OutOfResources",
    "PTXASError",
    "autotune",
    "export_tuning",
    "heuristics",
    "import_tuning",
]

_tuners: weakref.WeakSet[Autotuner] = weakref.WeakSet()


class Autotuner(NativeInterface):
    """A kernel with several configurations, created by `autotune`, which documents the arguments.

    Attributes:
        fn: the wrapped kernel, or another wrapper of it.
        base_fn: the Python function.
        arg_names: the kernel's parameters.
        configs, keys: as given to `autotune`.
        cache: the best configuration by tuning key: the values of `keys` in the call, the element
            types of its tensors and, for a device other than that of the first call, its name.
        best_config: the configuration of the last launch.
        configs_timings: the times of the last tuning, milliseconds at the quantiles 0.5, 0.2, 0.8.
        bench_time: the duration of the last tuning in seconds.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config] | None,
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None,
        restore_value: Sequence[str] | None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        self.fn = fn
        self._with_parts = fn if isinstance(fn, HasParts) else None
        self.arg_names = list(arg_names)
        self._known_names = frozenset(arg_names)
        self.configs = list(configs or [Config({}, num_warps=4, num_stages=3, num_ctas=1)])
        self.keys = self._arguments("key", key)
        self.reset_to_zero = self._arguments("reset_to_zero", reset_to_zero)
        self.restore_value = self._arguments("restore_value", restore_value)
        self.cache: dict[tuple[Any, ...], Config] = ObservedDict(self._forget)
        self.configs_timings: dict[Config, Any] = {}
        self.bench_time = 0.0
        self.best_config: Config = self.configs[0]
        self._launch = threading.local()
        self._hooks = ResetAndRestore(self.reset_to_zero, self.restore_value)
        self.pre_hook: Callable[..., Any] = pre_hook or self._hooks.before
        self.post_hook: Callable[..., Any] = post_hook or self._hooks.after
        self.user_defined_pre_hook = pre_hook is not None
        self.user_defined_post_hook = post_hook is not None
        pruning = dict(prune_configs_by or {})
        self.perf_model: Callable[..., float] | None = pruning.get("perf_model")
        self.configs_top_k: float | int = pruning.get("top_k", 1.0)
        self.early_config_prune: Callable[..., Any] | None = pruning.get("early_config_prune")
        self.base_fn = python_function(fn)
        self.__name__ = self.base_fn.__name__
        self.num_warmups, self.num_reps = warmup, rep
        self.use_cuda_graph = use_cuda_graph
        self._do_bench = do_bench or self._deprecated_bench()
        self.cache_results = cache_results
        self._home: list[Any] = []
        self._tuned: dict[tuple[Any, ...], tuple[tuple[Any, ...], str]] = {}
        self._best_times: dict[tuple[Any, ...], float] = {}  # by tuning key, where they are known
        self._divided: dict[tuple[Any, ...], tuple[tuple[str, ...], ...]] = {}  # by tuning key
        self._tuning = Lock()
        _tuners.add(self)

    def around(self, fn: Any) -> Autotuner:
        """Another wrapper of the kernel, tuned over the same configurations."""
        pruning: dict[str, Any] = {}
        if self.early_config_prune is not None:
            pruning["early_config_prune"] = self.early_config_prune
        return Autotuner(
            fn, self.arg_names, self.configs, self.keys, None, None,
            prune_configs_by=pruning, do_bench=self._do_bench, cache_results=self.cache_results,
        )  # fmt: skip

    def _arguments(self, what: str, names: Sequence[str] | None) -> list[str]:
        """The names that are arguments of the kernel; others, which Triton ignores, are reported
        by a warning."""
        unknown = [name for name in names or () if name not in self._known_names]
        if unknown:
            warnings.warn(
                f"{what} of autotune contains names that are not kernel arguments, and are "
                f"ignored: {', '.join(unknown)}. Valid argument names are: "
                f"{', '.join(self.arg_names)}",
                stacklevel=4,
            )
        return [name for name in names or () if name in self._known_names]

    def _deprecated_bench(self) -> Callable[..., Any] | None:
        if self.num_warmups is None and self.num_reps is None and not self.use_cuda_graph:
            return None
        warnings.warn(
            "warmup, rep and use_cuda_graph of autotune are deprecated. Pass do_bench, such as "
            "functools.partial(tilewright.testing.do_bench, rep=50).",
            DeprecationWarning,
            stacklevel=4,
        )
        if not self.use_cuda_graph:
            return None
        return partial(do_bench_cudagraph, rep=self.num_reps or FULL.rep)

    @property
    def nargs(self) -> dict[str, Any] | None:
        """The positional arguments of the current launch of this thread, by name."""
        return getattr(self._launch, "nargs", None)

    @nargs.setter
    def nargs(self, named: dict[str, Any] | None) -> None:
        self._launch.nargs = named

    @property
    def restore_copies(self) -> dict[str, Any]:
        """The contents of the tensors of `restore_value`, by parameter, during a trial run."""
        return self._hooks.copies

    @property
    def do_bench(self) -> Callable[..., Any]:
        """The benchmark function: the one that was passed, or that of the active driver."""
        return self._do_bench or driver.active.get_benchmarker()

    @do_bench.setter
    def do_bench(self, bench: Callable[..., Any] | None) -> None:
        self._do_bench = bench

    # -- a launch -------------------------------------------------------------------------------

    def native_chain(self) -> Chain | None:
        inner = self.fn.native_chain() if isinstance(self.fn, NativeInterface) else None
        if inner is None or type(self).run is not Autotuner.run or type(self.configs) is not list:
            return None
        own = vars(self)
        stage = launcher.Chosen(
            self, [(own, name) for name in ("run", "fn", "configs", "cache", "keys")]
        )
        return Chain(inner.kernel, [stage, *inner.stages])

    def known_config(self, named: dict[str, Any]) -> Config | None:
        """The configuration for arguments by name, if it is known already; else None."""
        if len(self.configs) == 1:
            return self.configs[0]
        return self.cache.get(self._tuning_key(named))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the best configuration, tuning first if it is not known. What consists of
        parts, as a gradient that several kernels compute, is launched part by part, each with the
        best configuration for it, if that is faster.

        Raises:
            ValueError: a keyword is also set by the configurations.
            AutotunerError: pruning leaves no configuration, or every configuration fails.
        """
        result: Any = None
        for part, key in self._parts(args, kwargs):
            result = self._run_whole(args, {**kwargs, **part}, key)
        return result

    def _run_whole(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], key: tuple[Any, ...] | None
    ) -> Any:
        self.nargs = nargs = dict(zip(self.arg_names, args, strict=False))
        config = self._config_for(nargs, args, kwargs, key)
        self.best_config = config
        chosen = self.merged(kwargs, config)
        if config.pre_hook is not None:
            config.pre_hook({**nargs, **chosen})
        warmup, grid = chosen.pop("warmup", False), chosen.pop("grid")
        if warmup:
            result = self.fn.run(*args, grid=grid, warmup=True, **chosen)
        else:
            result = self.fn[grid](*args, **chosen)
        self.nargs = None
        return result

    def _parts(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sequence[tuple[Mapping[str, Any], tuple[Any, ...] | None]]:
        """The launches of a call: the keywords in which each differs from it, and its tuning key
        if that has been computed."""
        fn = self._with_parts
        if fn is None or len(self.configs) == 1 or kwargs.get("warmup"):
            return (({}, None),)
        nargs = dict(zip(self.arg_names, args, strict=False))
        key = self._tuning_key({**nargs, **kwargs})
        names = self._divided.get(key)
        if names is None:
            self.nargs = nargs
            config = self._config_for(nargs, args, kwargs, key)
            names = fn.parts(*args, **self.merged(kwargs, config))
            parts = [fn.keywords_of_part(part, kwargs) for part in names]
            if not self._are_faster(parts, key, nargs, args, kwargs):
                names = ()
            self._divided[key] = names
        return [(fn.keywords_of_part(part, kwargs), None) for part in names] or [({}, key)]

    def _are_faster(
        self, parts: Sequence[Mapping[str, Any]], key: tuple[Any, ...], nargs: dict[str, Any],
        args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> bool:  # fmt: skip
        """Whether the parts of a call, each with the best configuration for it, take less time than
        the call with the best one for all.

        Args:
            key: the tuning key of the call.
        """
        whole = self._best_times.get(key)
        if whole is None or len(parts) < 2:
            return False
        total = 0.0
        for part in parts:
            named = {**kwargs, **part}
            try:
                self._config_for(nargs, args, named)
            except AutotunerError:
                return False
            total += self._best_times.get(self._tuning_key({**nargs, **named}), whole)
        return total < whole

    def _config_for(
        self,
        nargs: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: tuple[Any, ...] | None = None,
    ) -> Config:
        """The configuration for a call, tuning first if it is not known.

        Args:
            key: the tuning key of the call if it has been computed.
        """
        if len(self.configs) == 1:
            return self.configs[0]
        if key is None:
            key = self._tuning_key({**nargs, **kwargs})
        result = self.cache.get(key)
        if result is None:
            with self._tuning:
                result = self.cache.get(key)
                if result is None:
                    result = self.cache[key] = self._find(key, nargs, args, kwargs)
        return result

    def _tuning_key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        key, device = self._general_key(named)
        if device is None:
            return key
        if not self._home:
            with self._tuning:
                if not self._home:
                    self._home.append(device)
        return key if device == self._home[0] else (*key, str(device))

    def _general_key(self, named: Mapping[str, Any]) -> tuple[tuple[Any, ...], Any]:
        """The tuning key without the device, and the device of the tensors."""
        return general_key(self.fn, self.keys, self._known_names, named)

    @staticmethod
    def merged(kwargs: Mapping[str, Any], config: Config) -> dict[str, Any]:
        """The keywords of a launch with a configuration.

        Raises:
            ValueError: a keyword is also set by the configuration.
        """
        chosen = config.all_kwargs()
        if not chosen.keys().isdisjoint(kwargs):
            conflicts = [name for name in kwargs if name in chosen]
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't "
                "re-define auto-tuned symbols."
            )
        return {**kwargs, **chosen}

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Compile every configuration that remains after pruning, without launching."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        compiled = [
            self.fn.warmup(*args, **self.merged(kwargs, config))
            for config in self.prune_configs(kwargs)
        ]
        self.nargs = None
        return compiled

    # -- pruning --------------------------------------------------------------------------------

    def prune_configs(self, kwargs: Mapping[str, Any]) -> list[Config]:
        """The configurations to measure for a call with these keywords.

        Raises:
            AutotunerError: no configuration remains.
            TypeError: `top_k` is neither a fraction nor a number of configurations.
        """
        nargs = self.nargs or {}
        pruned = self.configs
        if self.early_config_prune is not None:
            pruned = list(self.early_config_prune(self.configs, nargs, **kwargs))
            if not pruned:
                raise AutotunerError(
                    "No valid autotuner configs after pruning. `early_config_prune` should return "
                    "at least one config."
                )
        model = self.perf_model
        if model is None:
            return pruned
        top_k = number_kept(self.configs_top_k, len(self.configs))
        return cheapest(pruned, top_k, lambda **chosen: model(**nargs, **kwargs, **chosen))

    # -- tuning ---------------------------------------------------------------------------------

    def _find(
        self,
        key: tuple[Any, ...],
        nargs: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Config:
        """The best configuration for a call: imported, stored on disk, or measured."""
        configs = self.prune_configs(kwargs)
        if len(configs) == 1:
            return configs[0]
        device = self._device(nargs, kwargs)
        # A result is valid for all devices of a model.
        general, _ = self._general_key({**nargs, **kwargs})
        self._tuned[key] = general, device.kind
        shipped = results.shipped(self._full_name(), device.kind, general, configs)
        if shipped is not None:
            self._notify(key, shipped, cache_hit=True)
            return shipped
        stored = self._store_key(general, device, configs)
        call = Call(self, device.name, device.idle, args, kwargs)
        # If another process is tuning the same kernel, wait for its result.
        with disk_cache().compiling(stored) if stored else nullcontext():
            found = results.load(stored, configs) if stored else None
            self.configs_timings = found or self._measured(key, call, configs, stored)
        best = fastest(self.configs_timings)
        time = _median(self.configs_timings[best])
        if time > 0:  # it was measured
            self._best_times[key] = time
        if not found:
            self.pre_hook({**nargs, **kwargs, **best.all_kwargs()}, reset_only=True)
        self._notify(key, best, cache_hit=bool(found))
        return best

    def _measured(
        self, key: tuple[Any, ...], call: Call, configs: Sequence[Config], stored: str | None
    ) -> dict[Config, Any]:
        """Measure the configurations, and store their times on disk under the key `stored`.

        Raises:
            AutotunerError: every configuration fails.
        """
        timings, seconds = measured(call, configs, key, bench=self._do_bench, effort=self._effort())
        if seconds is not None:
            self.bench_time = seconds
            if stored:
                results.save(stored, self._full_name(), timings)
        return timings

    def _effort(self) -> Effort:
        if is_interpreted(self.fn):
            return ONCE
        return Effort(self.num_warmups or FULL.warmup, self.num_reps or FULL.rep)

    def _notify(self, key: tuple[Any, ...], best: Config, *, cache_hit: bool) -> None:
        listener = knobs.autotuning.listener
        if listener is not None:
            listener(
                fn=self.fn,
                key=key,
                best_config=best,
                configs_timings=self.configs_timings,
                duration=None if cache_hit else self.bench_time,
                cache_hit=cache_hit,
            )

    def _bench(self, *args: Any, config: Config, **meta: Any) -> Any:
        """Times of one configuration at the quantiles 0.5, 0.2 and 0.8; infinite if it fails.

        Raises:
            ValueError: a keyword is also set by the configuration.
        """
        self.merged(meta, config)
        if self.nargs is None:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
        device = self._device(self.nargs, meta)
        call = Call(self, device.name, device.idle, args, meta)
        return measured_once(call, config, bench=self._do_bench, effort=self._effort())

    # -- arguments ------------------------------------------------------------------------------

    def _device(self, nargs: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Device:
        named = {k: v for k, v in {**nargs, **kwargs}.items() if k in self.arg_names}
        return device_of_call(named, interpreted=is_interpreted(self.fn))

    # -- results --------------------------------------------------------------------------------

    def _store_key(
        self, key: tuple[Any, ...], device: Device, configs: Sequence[Config]
    ) -> str | None:
        """The key of the result in the disk cache; None if it must not be stored."""
        enabled = self.cache_results or (knobs.autotuning.cache and self._do_bench is None)
        hooked = self.user_defined_pre_hook or self.user_defined_post_hook
        kernel = kernel_of(self.fn)
        if not enabled or not key or kernel is None or is_interpreted(self.fn):
            return None
        if any(config.pre_hook for config in self.configs) or (hooked and not self.cache_results):
            return None
        where = f"{device.kind}, {device.target}"
        return results.store_key(kernel.cache_key, where, key, configs)

    def _full_name(self) -> str:
        return f"{self.base_fn.__module__}.{self.base_fn.__qualname__}"

    def results(self) -> list[dict[str, Any]]:
        """The results so far, in their shipped form."""
        return [
            results.entry(self._full_name(), kind, general, self.cache[key])
            for key, (general, kind) in self._tuned.items()
            if key in self.cache
        ]


def _median(times: Any) -> float:
    """The first of a configuration's times, which is the median, or the only one."""
    return times if isinstance(times, int | float) else float(times[0])


def export_tuning(path: str | Path, kernels: Iterable[Autotuner] | None = None) -> int:
    """Write the tuning results of this process to a file for `import_tuning`; returns their number.

    Args:
        path: the file.
        kernels: the kernels to export; by default all that have been tuned.
    """
    entries = [e for tuner in (_tuners if kernels is None else kernels) for e in tuner.results()]
    results.write(path, entries)
    return len(entries)


def autotune(
    configs: Sequence[Config] | None,
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Launch a kernel with the fastest of several configurations, selected by measurement.

        @tilewright.autotune([Config({"BLOCK": 128}), Config({"BLOCK": 1024})], key=["n"])
        @tilewright.jit
        def kernel(x, n, BLOCK: tl.constexpr): ...

    Memory that trial runs write is restored, so that tuning does not modify the arguments. Results
    are stored on disk. A configuration that does not compile, or does not fit on the device, is
    skipped.

    Args:
        configs: the configurations.
        key: parameters on whose values the best configuration depends. The kernel is tuned for each
            combination of their values and of the tensors' element types.
        prune_configs_by: a dict that reduces the configurations to measure. `early_config_prune` is
            called with the configurations, the positional arguments by name and the keywords, and
            returns a list. `perf_model` estimates a time from all arguments by name. `top_k` is the
            number of configurations to keep according to that estimate: an int, or a float for a
            fraction of all.
        reset_to_zero: parameters whose tensors are zeroed before each trial run, and once before
            the first actual run.
        restore_value: parameters whose tensors are restored before each trial run.
        pre_hook, post_hook: replace the behaviour of the last two before and after each trial run;
            called with the arguments by name: ``pre_hook(args, reset_only=False)``,
            ``post_hook(args, exception=None)``.
        warmup, rep, use_cuda_graph: deprecated: the durations of warm-up and measurement in
            milliseconds; whether to measure launches in a CUDA graph.
        do_bench: replaces the default measurement: ``do_bench(fn, quantiles=(0.5, 0.2, 0.8))``
            returns milliseconds. Results are then stored only with `cache_results`.
        cache_results: store results on disk even with a custom `do_bench` or hooks.

    Raises:
        TypeError: a configuration is not a `Config`, or what is decorated is not a kernel.
    """

    if hasattr(configs, "all_kwargs"):
        raise TypeError(f"configs of autotune is a list of triton.Config objects: [{configs!r}]")
    for config in configs or ():
        if not callable(getattr(config, "all_kwargs", None)):
            raise TypeError(
                f"configs of autotune are triton.Config objects, not {type(config).__name__} "
                f"{config!r}; write triton.Config({{…}}, num_warps=4)"
            )

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(
            fn,
            parameters_of(fn, "autotune"),
            configs,
            key,
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=cache_results,
        )

    return decorate
