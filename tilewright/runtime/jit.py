"""`jit`: turns a Python function into a kernel, compiled for the arguments of each launch.

    @tilewright.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        ...

    add[(tilewright.cdiv(n, 128),)](x, y, out, n, BLOCK=128)

A call binds its arguments (`runtime/specialize.py`), which yields the key of the variant; looks the
variant up in memory, then in the disk cache, and otherwise compiles it (`compiler/driver.py`); and
runs it on the grid (`runtime/launch.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Self, overload

from tilewright.base import knobs
from tilewright.base.diagnostics import CompilationError
from tilewright.base.lazy import cached_property
from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import cache_key
from tilewright.compiler.driver import compile as compile_kernel
from tilewright.compiler.source import ArgPath, ASTSource
from tilewright.frontend.constant_key import constant_key
from tilewright.frontend.source import ConstexprFunction, SourceFunction
from tilewright.frontend.source import JITCallable as JITCallable  # re-exported for compatibility
from tilewright.frontend.source import KernelParam as KernelParam
from tilewright.language.values import constexpr
from tilewright.runtime import driver
from tilewright.runtime.async_compile import FutureKernel, active_mode
from tilewright.runtime.device_caches import DeviceCache, DeviceCaches
from tilewright.runtime.grid import computed, extents_of
from tilewright.runtime.interface import Chain, NativeInterface
from tilewright.runtime.interface import KernelInterface as KernelInterface
from tilewright.runtime.kinds import (
    HALF_DIVISIBLE,
    TWICE_DIVISIBLE,
)
from tilewright.runtime.launch import start_with_hooks
from tilewright.runtime.observed_dict import ObservedDict
from tilewright.runtime.placement import device_of
from tilewright.runtime.specialization_data import Variant, hook_arguments
from tilewright.runtime.specialization_data import load as load_recorded
from tilewright.runtime.specialize import Binder, Key, make_binder
from tilewright.runtime.tensors import CPU
from tilewright.runtime.variants import (
    irrelevant_facts,
    is_tensor_type,
    known_of,
    types_of,
    without_facts,
)
from tilewright.runtime.wrappers import MockTensor as MockTensor  # re-exported for compatibility
from tilewright.runtime.wrappers import TensorWrapper as TensorWrapper
from tilewright.runtime.wrappers import reinterpret as reinterpret
from tilewright.targets.protocol import (
    GPUTarget,
    Target,
    UnknownOptionError,
    options_dict,
)
from tilewright.targets.registry import parsed_options
from tilewright.targets.registry import target as find_target

if TYPE_CHECKING:
    from tilewright.compiler import alignment
    from tilewright.frontend import build
    from tilewright.runtime import argument_errors, launch_steps
    from tilewright.runtime.launch_steps import Specialization
    from tilewright.runtime.native.launcher import Launcher
else:
    alignment = lazy_import("tilewright.compiler.alignment")
    build = lazy_import("tilewright.frontend.build")
    argument_errors = lazy_import("tilewright.runtime.argument_errors")
    launch_steps = lazy_import("tilewright.runtime.launch_steps")


Watcher = Callable[["JITFunction", tuple[Any, ...], dict[str, Any], Any], None]
_watchers: list[Watcher] = []
_variant_numbers = count()

DEPRECATED_OPTIONS = ("device", "device_type", "stream")
OF_THIS_PROCESS = (
    "_bind", "_compiling", "_launcher", "_preloaded", "binder", "device_caches", "launchers",
)  # fmt: skip
"""Attributes of a `JITFunction` that are not pickled."""


@contextmanager
def watching_launches(watcher: Watcher) -> Generator[None]:
    """Call a function before each launch of a variant that is not compiled yet, with the kernel,
    the arguments in order and by name, and the grid. It may raise to abort the launch."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


class JITFunction(SourceFunction, NativeInterface):
    """A kernel, or a function called by kernels. Created by `jit`.

    Args:
        fn: the Python function.
        version: stored as an attribute, for tools.
        repr, launch_metadata, do_not_specialize, do_not_specialize_on_alignment, debug, noinline:
            as for `jit`.

    Attributes:
        device_caches: the state for each device, by name; see `DeviceCache`.
        launchers: native launchers, of this function alone and of its wrappers.
        ASTSource, compile: what `launch_steps` compiles with.
    """

    ASTSource = ASTSource
    compile = staticmethod(compile_kernel)

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        version: Any = None,
        repr: Callable[[Any], str] | None = None,
        launch_metadata: Callable[..., Any] | None = None,
        do_not_specialize: Any = None,
        do_not_specialize_on_alignment: Any = None,
        debug: bool | None = None,
        noinline: bool | None = None,
    ) -> None:
        super().__init__(
            fn,
            repr=repr,
            do_not_specialize=do_not_specialize,
            do_not_specialize_on_alignment=do_not_specialize_on_alignment,
            noinline=noinline,
            debug=debug,
        )
        self.version = version
        self.launch_metadata = launch_metadata
        self.module = fn.__module__
        self._hooks: list[Callable[..., Any]] = []
        self._start_empty()

    def _start_empty(self) -> None:
        """Initialise the state of a function that was never called in this process."""
        self.launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()
        self.device_caches = DeviceCaches(self._new_cache, self._forget)
        self._compiling: dict[Any, Lock] = {}
        self._preloaded: dict[str, CompiledKernel] = {}

    def _plain_state(self) -> dict[str, Any]:
        state = super()._plain_state()
        return {name: value for name, value in state.items() if name not in OF_THIS_PROCESS}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._start_empty()

    # -- properties -----------------------------------------------------------------------------

    def is_gluon(self) -> bool:
        """Whether this is a Gluon function: never."""
        return False

    def device_of(self, devices: str, values: tuple[Any, ...], more: Sequence[str] = ()) -> str:
        """The device on which a launch runs, the key in `device_caches`.

        Args:
            devices: the devices of its tensors, as in `Key`.
            values: the values of all parameters.
            more: the names of further arguments, as those of a derivative.
        """
        return device_of(devices, values, [*self.arg_names, *more])

    def target_of(self, device: str) -> GPUTarget:
        """The target of a device, given its name."""
        return driver.target_of(device)

    def _new_cache(self, device: str) -> DeviceCache:
        target = self.target_of(device)
        bind = partial(self._bind_for, device)
        return DeviceCache(ObservedDict(self._forget), {}, target, find_target(target), bind)

    @cached_property
    def binder(self) -> Binder:
        """The binder of the arguments; see `runtime/specialize.py`."""
        return make_binder(self.__name__, self.signature, self.params)

    @property
    def pre_run_hooks(self) -> list[Callable[..., Any]]:
        """Functions called with the arguments before each run; the list object never changes."""
        return self._hooks

    @pre_run_hooks.setter
    def pre_run_hooks(self, hooks: Iterable[Callable[..., Any]]) -> None:
        self._hooks[:] = hooks

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call `hook(*args, **kwargs)` before each run with the arguments of the call."""
        self.pre_run_hooks.append(hook)

    # -- a call ---------------------------------------------------------------------------------

    def native_chain(self) -> Chain | None:
        return Chain(self, []) if type(self).run is JITFunction.run else None

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch on a grid. Returns the compiled kernel, or None if a hook cancelled the launch.

        Args:
            args, kwargs: the kernel's arguments, and compile options such as `num_warps`.
            grid: one to three extents, or a function of the arguments by name that returns them.
                If an extent is 0, nothing runs.
            warmup: compile without launching.

        Raises:
            TypeError: an argument is missing or has an unsupported type.
            OverflowError: an int does not fit into 64 bits.
            ValueError: the tensors are not on one device that runs kernels; an invalid grid.
            KeyError: a keyword is neither a parameter nor a compile option.
            CompilationError: the kernel is invalid.
            OutOfResources: it needs more of a resource than the device has.
            DeviceError: the device or its driver is missing or failed.
            RuntimeError: a global variable has changed since the kernel was compiled.
        """
        if _watchers or self._hooks:
            self._announce(args, kwargs, grid)
        try:
            values, slots, key, options = self.binder(*args, **kwargs)
        except (TypeError, OverflowError) as error:
            raise argument_errors.with_argument_name(
                error, self.__name__, self.signature, args, kwargs
            ) from None
        self.check_globals()
        if warmup and not key[0]:  # mock tensors: as on the device of a launch, which finds it
            key = Key(*key)._replace(devices=device_of("", values, self.arg_names))
        variant = key, knobs.runtime.debug, _options_key(options) if options else None
        # Usually all tensors are on one device, whose name is the key.
        cache = self.device_caches.get(key[0])
        if cache is None:
            cache = self.device_caches[self.device_of(key[0], values)]
        kernel = cache.kernel_cache.get(cache.key_cache.get(variant, ""))
        if kernel is None:
            kernel = self._make(cache, variant, values, options, warmup)
        if warmup or kernel is None:
            return kernel
        if type(kernel) is FutureKernel:
            kernel = kernel.result()
        if callable(grid):
            grid = computed(grid, dict(zip(self.arg_names, values, strict=True)))
        extents = extents_of(grid)
        if 0 not in extents:
            if knobs.launch_hooks:
                start_with_hooks(kernel, extents, values, slots)
            else:
                (kernel.loaded or kernel.load()).start(extents, values, slots)
        return kernel

    def _announce(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> None:
        for watcher in _watchers:
            watcher(self, args, kwargs, grid)
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)

    def bound(self, *args: Any, **kwargs: Any) -> tuple[ASTSource, dict[str, Any], dict[str, Any]]:
        """The source that a call with these arguments would compile, without compiling it.

        Returns the source, the values of all parameters by name, and the compile options given in
        the call. Raises the errors of `run`.
        """
        values, _, key, options = self.binder(*args, **kwargs)
        key = Key(*key)
        device = self.device_of(key.devices, values) if key.devices else ""
        target = self.device_caches[device].backend if device else None
        key = without_facts(self.params, irrelevant_facts(target), key)
        source = self._source_of(key, values)
        return source, dict(zip(self.arg_names, values, strict=True)), dict(options)

    def _source_of(self, key: Key, values: tuple[Any, ...]) -> ASTSource:
        """The kernel with the types, facts and compile-time values of a variant."""
        return self.ASTSource(self, *types_of(self.params, key, values))

    def with_source(self, source: Callable[..., ASTSource]) -> Self:
        """This function with another source and separate variants.

        Args:
            source: takes the arguments of `ASTSource`.
        """
        result = type(self).__new__(type(self))
        result.restore(self._plain_state())
        result.ASTSource = source
        return result

    def _bind_for(
        self, device: str, *args: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], Specialization, dict[str, Any]]:
        """The first step of a launch on a device; see `launch_steps`."""
        values, _, key, given = self.binder(*args, **kwargs)
        (kept,) = self._worthwhile(self.device_caches[device], (key,), values, given)
        source = self._source_of(Key(*kept), values)
        specs = known_of(self.params, Key(*kept), values)
        arguments = dict(zip(self.arg_names, values, strict=True))
        return arguments, launch_steps.Specialization(specs, source), given

    def _pack_args(
        self,
        backend: Target,
        kwargs: Mapping[str, Any],
        arguments: Mapping[str, Any],
        specialization: Specialization,
        options: Mapping[str, Any],
    ) -> tuple[Any, dict[str, Any], dict[ArgPath, Any], dict[ArgPath, list[Any]]]:
        """Options, signature, compile-time values and attributes; see `launch_steps`."""
        source = specialization.source
        parsed = self.options_of(backend, source, options)
        return parsed, source.signature, source.constants, source.attrs

    def _make(
        self,
        cache: DeviceCache,
        variant: Any,
        values: tuple[Any, ...],
        given: Mapping[str, Any],
        warmup: bool,
    ) -> Any:
        """The variant for these arguments, compiled by one thread while others wait: a
        `CompiledKernel`; a `FutureKernel` in an `AsyncCompileMode`; None if a hook cancelled it."""
        kept = self._worthwhile(cache, variant, values, given)
        name = cache.key_cache.setdefault(kept, self._name_of(kept, values, given))
        cache.key_cache[variant] = name
        with self._compiling.setdefault(name, Lock()):
            kernel: Any = cache.kernel_cache.get(name)
            if kernel is None:
                try:
                    kernel = self._compile(cache, name, Key(*kept[0]), values, given, warmup)
                except CompilationError as error:
                    build.hide_compiler(error)
                    raise
        self._compiling.pop(name, None)
        return kernel

    def _worthwhile(
        self, cache: DeviceCache, variant: Any, values: tuple[Any, ...], given: Mapping[str, Any]
    ) -> Any:
        """The key of the variant to compile: it has facts about arguments only where code may be
        better for them."""
        key = without_facts(self.params, irrelevant_facts(cache.backend), Key(*variant[0]))
        plain = without_facts(self.params, (HALF_DIVISIBLE, TWICE_DIVISIBLE), key)
        if plain != key:
            source = self._source_of(key, values)
            options = self.options_of(cache.backend, source, given)
            kept = alignment.parameters_that_widen(source, cache.target, cache.backend, options)
            pairs = zip(key.specs, plain.specs, strict=True)
            specs = [known if i in kept else less for i, (known, less) in enumerate(pairs)]
            key = key._replace(specs=tuple(specs))
        return (tuple(key), *variant[1:])

    def _name_of(self, variant: Any, values: tuple[Any, ...], given: Mapping[str, Any]) -> str:
        """A name for a variant, unique in this process. It begins with the types, facts and values
        of the arguments in the form of Triton's keys, which programs search for values."""
        known = known_of(self.params, Key(*variant[0]), values)
        return f"{known}{dict(given)} #{next(_variant_numbers)}"

    def _compile(
        self,
        cache: DeviceCache,
        variant: str,
        key: Key,
        values: tuple[Any, ...],
        given: Mapping[str, Any],
        warmup: bool,
    ) -> Any:
        source = self._source_of(key, values)
        options = self.options_of(cache.backend, source, given)
        kernel = self._do_compile(
            variant,
            source.signature,
            self.device_of(key.devices, values),
            source.constants,
            options,
            source.attrs,
            warmup,
        )
        if key.read_only and kernel is not None:
            try:
                self._require_writable(key, kernel)
            except ValueError:
                cache.kernel_cache.pop(variant, None)
                raise
        return kernel

    def _do_compile(
        self,
        key: str,
        signature: dict[str, Any],
        device: Any,
        constexprs: dict[ArgPath, Any],
        options: Any,
        attrs: dict[ArgPath, list[Any]],
        warmup: bool,
    ) -> Any:
        """Compile a variant and add it to the kernels of a device, calling the hooks. All variants
        are compiled by this method, so that programs may wrap it, as they wrap Triton's.

        Args:
            key: the variant's key in `DeviceCache.kernel_cache`.
            signature, constexprs, attrs: as for `ASTSource`.
            device: a key of `device_caches`.
            options: options parsed by the target.
            warmup: whether this is a compilation without a launch.

        Returns a `CompiledKernel`; a `FutureKernel` in an `AsyncCompileMode`; None if a hook
        cancelled the compilation.
        """
        cache = self.device_caches[device]
        variant = key, signature, cache.target, device, constexprs, options, [attrs], warmup
        if self._call_hook(knobs.runtime.jit_cache_hook, *variant):
            return None
        source = self.ASTSource(self, signature, constexprs, attrs)
        name = cache_key(source, cache.target, options)

        def compile() -> CompiledKernel:
            return self._preloaded.pop(name, None) or self.compile(
                source, target=cache.target, options=options_dict(options)
            )

        def finish(kernel: CompiledKernel) -> None:
            kernel.device = self.device_caches.name_of(device)
            cache.kernel_cache[key] = kernel
            self._call_hook(knobs.runtime.jit_post_compile_hook, *variant)

        mode = active_mode()
        if mode is not None:
            kernel: Any = mode.submit(name, compile, finish)
            cache.kernel_cache[key] = kernel
            return kernel
        kernel = compile()
        finish(kernel)
        return kernel

    def _call_hook(
        self,
        hook: Callable[..., Any] | None,
        key: str,
        signature: dict[str, Any],
        target: GPUTarget,
        device: Any,
        constants: dict[ArgPath, Any],
        options: Any,
        configs: list[dict[ArgPath, list[Any]]],
        is_warmup: bool,
    ) -> Any:
        """The result of a compilation hook for a variant, whose attributes are `configs[0]`."""
        if hook is None:
            return None
        source = self.ASTSource(self, signature, constants, configs[0])
        name = self.device_caches.name_of(device)
        return hook(**hook_arguments(Variant(source, target, options, key, name, is_warmup)))

    def preload(self, specialization_data: str) -> CompiledKernel:
        """Compile a variant from the data that a hook received (`compile["specialization_data"]`)
        for the active driver's device, so that the first launch finds it compiled.

        Raises:
            RuntimeError: the data is for another kernel or target.
        """
        kernel = load_recorded(self, specialization_data, self.target_of(self.device_of("", ())))
        self._preloaded[kernel.hash] = kernel
        return kernel

    def options_of(self, target: Target, source: ASTSource, given: Mapping[str, Any]) -> Any:
        """The target's options, from keywords of the call and from parameters of the same names."""
        for name in DEPRECATED_OPTIONS:
            assert name not in given, f"{name} option is deprecated; the current one is used"
        options = dict(given)
        if options.get("debug", self.debug) or knobs.runtime.debug:
            options["debug"] = True
        known = options_dict(target.parse_options({}))
        for i, param in enumerate(self.params):
            if param.name in known and (i,) in source.constants:
                options[param.name] = _plain(source.constants[i,])
        try:
            return parsed_options(target, options)
        except UnknownOptionError as error:
            raise UnknownOptionError(error.name, error.known, self.arg_names) from None

    # -- rejecting invalid launches -------------------------------------------------------------

    def _require_writable(self, key: Key, kernel: CompiledKernel) -> None:
        """Raise ValueError if the kernel stores to a read-only tensor."""
        arguments = kernel.metadata.arguments
        tensors = [i for i, (_, kind) in enumerate(arguments) if is_tensor_type(kind)]
        for number in key.read_only:
            index = tensors[number]
            if index in kernel.metadata.written:
                raise ValueError(
                    f"argument `{kernel.metadata.arg_names[index]}` of {self.__name__} is a "
                    "read-only array, and the kernel stores to it. Pass a writable copy."
                )


class InterpretedFunction(JITFunction):
    """A kernel decorated under TILEWRIGHT_INTERPRET=1: it always runs in the interpreter."""

    def native_chain(self) -> Chain | None:
        """None: native code launches compiled kernels only."""
        return None

    def device_of(self, devices: str, values: tuple[Any, ...], more: Sequence[str] = ()) -> str:
        if devices not in ("", CPU):
            super().device_of(devices, values, more)  # raises the same errors
        return "interpreter"

    def target_of(self, device: str) -> GPUTarget:
        return GPUTarget("interpreter")


# -- compile-time values --------------------------------------------------------------------------


def _options_key(options: Mapping[str, Any]) -> object:
    return tuple((name, constant_key(value)) for name, value in options.items())


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


# -- decorators -----------------------------------------------------------------------------------


JIT_OPTIONS = (
    "version", "repr", "launch_metadata", "do_not_specialize", "do_not_specialize_on_alignment",
    "debug", "noinline",
)  # fmt: skip


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...
@overload
def jit(
    *,
    version: Any = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    do_not_specialize: Any = None,
    do_not_specialize_on_alignment: Any = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> Callable[[Callable[..., Any]], JITFunction]: ...
def jit(
    fn: Callable[..., Any] | None = None, **options: Any
) -> JITFunction | Callable[[Callable[..., Any]], JITFunction]:
    """Turn a function into a kernel, compiled at launch: ``kernel[grid](*args)``.

    Under TILEWRIGHT_INTERPRET=1 the kernel runs in the interpreter instead.

    Args:
        fn: the function; it must not have a ``**kwargs`` parameter.
        version: stored as an attribute.
        repr: returns the symbol name of the kernel, given an object with `constants` and
            `signature`.
        launch_metadata: returns additional data for launch hooks, a dict, given the grid, the
            kernel's metadata and the arguments by name.
        do_not_specialize: names or positions of integer parameters that are not specialised for
            the value 1 or for divisibility by 16.
        do_not_specialize_on_alignment: the same for divisibility by 16 only.
        debug: enable assertions in the kernel.
        noinline: do not inline the function into kernels.

    Raises:
        ValueError: the source of the function is not available, as in an interactive session.
        TypeError: it has a ``**`` parameter, or an option is unknown.
    """
    for name in options:
        if name not in JIT_OPTIONS:
            raise TypeError(
                f"jit() got an unexpected keyword argument {name!r}; it takes "
                f"{', '.join(JIT_OPTIONS)}. Compile options such as num_warps are passed at launch"
            )

    def decorate(function: Callable[..., Any]) -> JITFunction:
        kind = InterpretedFunction if knobs.runtime.interpret else JITFunction
        return kind(function, **options)

    return decorate if fn is None else decorate(fn)


def constexpr_function(fn: Callable[..., Any]) -> ConstexprFunction:
    """Make a plain function callable in kernels on compile-time values.

    In a kernel its result is a constexpr; on the host it is called as it is.
    """
    return ConstexprFunction(fn)


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """Integer division, rounded up.

    >>> cdiv(10, 4)
    3
    """
    return (x + (y - 1)) // y


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n`; 0 for 0.

    >>> next_power_of_2(33)
    64
    """
    n -= 1
    n |= n >> 1
    n |= n >> 2
    n |= n >> 4
    n |= n >> 8
    n |= n >> 16
    n |= n >> 32
    return n + 1
