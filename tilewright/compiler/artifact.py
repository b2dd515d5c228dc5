"""The compiled kernel: the stages of its code and its metadata.

It consists of plain data, so that it can be cached, sent and pickled. Loading and launching are
implemented by the runtime, which registers itself with `install_launcher`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tilewright.base import knobs
from tilewright.base.locks import Lock
from tilewright.targets.protocol import GPUTarget, Stage
from tilewright.targets.registry import derived
from tilewright.targets.registry import target as find_target

METADATA_FILE = "metadata.json"
STAGE_ALIASES = {"tile": "ttir"}


class Launch(Protocol):
    """A loaded kernel, ready to run."""

    def start(
        self, grid: tuple[int, int, int], values: Sequence[Any], slots: Sequence[Any]
    ) -> None:
        """Run the programs of a grid.

        Args:
            grid: the extents of the grid.
            values: the values of all parameters, including compile-time ones.
            slots: the same, with each tensor replaced by its address.
        """
        ...

    @property
    def handle(self) -> Any:
        """The device's handle of the function; on the CPU, its address."""
        ...


Run: TypeAlias = Callable[..., None]
"""A launch with the calling convention of `Runner`."""


class Launcher(Protocol):
    """The runtime's interface for loading and launching compiled kernels."""

    def load(self, kernel: CompiledKernel) -> Launch:
        """Load a kernel."""
        ...

    def launch(
        self,
        kernel: CompiledKernel,
        grid: Any,
        args: Sequence[Any],
        stream: int | None,
        hooks: bool = True,
    ) -> None:
        """Launch a kernel with all of its arguments in order.

        Args:
            stream: None or the current stream.
            hooks: whether to call the launch hooks of the settings.
        """
        ...

    def runner(self, kernel: CompiledKernel, python: Run) -> Run:
        """`CompiledKernel.run` of a loaded kernel.

        Args:
            python: an equivalent, for what native code does not support.
        """
        ...

    def launch_metadata(
        self, kernel: CompiledKernel, grid: Any, stream: Any, args: Sequence[Any]
    ) -> Any:
        """The argument of launch hooks for this launch; None if there are no hooks."""
        ...


_launcher: Launcher | None = None


def install_launcher(launcher: Launcher) -> None:
    """Set the launcher. The runtime calls this once at import."""
    global _launcher
    _launcher = launcher


def _installed() -> Launcher:
    assert _launcher is not None, "import tilewright.runtime.launch before launching"
    return _launcher


class Metadata(Mapping[str, Any]):
    """An immutable record with access by attribute or by key, and with those methods of a named
    tuple, which Triton's metadata is, that programs call."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", dict(values))

    @property
    def _fields(self) -> tuple[str, ...]:
        return tuple(self)

    def _asdict(self) -> dict[str, Any]:
        return dict(self)

    def _replace(self, **changed: Any) -> Metadata:
        return Metadata({**self._values, **changed})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"the kernel's metadata has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("metadata can't be changed")

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Metadata({self._values!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Metadata, (self._values,)


class Stages(Mapping[str, Any]):
    """The stages of a kernel's code by name. Some are computed on first access."""

    def __init__(self, stages: Mapping[str, Stage], metadata: Metadata) -> None:
        self._stages = dict(stages)
        self._metadata = metadata

    def __getitem__(self, name: str) -> Any:
        name = STAGE_ALIASES.get(name, name)
        if name not in self._stages:
            target = find_target(self._metadata.target)
            self._stages[name] = derived(target, name, self._stages, self._metadata)
        return self._stages[name]

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __repr__(self) -> str:
        return f"<stages {', '.join(self._stages)}>"


@dataclass
class Times:
    """Compile times in microseconds.

    Attributes:
        ir_initialization: the front end.
        lowering_stages: (name, time) of each following stage.
        store_results: the remaining time, including storing the result.
    """

    ir_initialization: int = 0
    lowering_stages: list[tuple[str, int]] = field(default_factory=list)
    store_results: int = 0

    @classmethod
    def of_cache_hit(cls, seconds: float) -> Times:
        """The times of a cache hit that took `seconds`."""
        return cls(store_results=int(1e6 * seconds))

    @property
    def total_lowering(self) -> int:
        return sum(time for _, time in self.lowering_stages)

    @property
    def total(self) -> int:
        return self.ir_initialization + self.total_lowering + self.store_results


class Runner:
    """Launches a kernel with Triton's calling convention, which libraries use.

    run = compiled.run
    run(4, 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, x, y, n)
    """

    __slots__ = ("_kernel",)

    def __init__(self, kernel: CompiledKernel) -> None:
        self._kernel = kernel

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int | None,
        function: Any,
        packed_metadata: Any,
        launch_metadata: Any,
        launch_enter_hook: Callable[[Any], Any] | None,
        launch_exit_hook: Callable[[Any], Any] | None,
        *args: Any,
    ) -> None:
        """Call the enter hook, launch, and call the exit hook; hooks receive `launch_metadata`.

        Args:
            stream: the current stream, or None.
            function, packed_metadata: ignored; the kernel's own are used.
            args: the arguments, as for ``kernel[grid](...)``.
        """
        kernel, grid = self._kernel, (grid_x, grid_y, grid_z)
        if launch_enter_hook is not None:
            launch_enter_hook(launch_metadata)
        _installed().launch(kernel, grid, kernel.all_arguments(args), stream, hooks=False)
        if launch_exit_hook is not None:
            launch_exit_hook(launch_metadata)


class CompiledKernel:
    """A compiled kernel.

        compiled = tilewright.compile(ASTSource(...))
        print(compiled.asm["llir"], compiled.metadata.name)
        compiled[(4, 1, 1)](x, y, n, BLOCK)

    Attributes:
        asm: the stages of the code: ``source``, ``ttir`` (tile IR after the tile passes), then
            those of the target, such as ``llir``, ``asm`` and ``obj`` on the CPU.
        metadata: `name`, `hash`, `target`, the options, the argument types, and metadata of the
            target.
        device: the device on which it is loaded at the first launch, such as ``"cuda:0"``; "" for
            the current device of its target.
        hash: its key in the disk cache.
        src: its source; None after unpickling.
        times: compile times; absent for a cache hit.
        loaded: the loaded kernel; None before the first use, see `load`.
        stored_at: its file in the disk cache; None if it is not cached.
    """

    def __init__(
        self, stages: Mapping[str, Stage], metadata: Mapping[str, Any], src: Any = None
    ) -> None:
        values = dict(metadata)
        if not isinstance(values["target"], GPUTarget):
            values["target"] = GPUTarget(*values["target"])
        self.metadata = Metadata(values)
        self.asm = Stages(stages, self.metadata)
        self.src = src
        self.device = ""
        self._binary = list(stages)[-1]
        self.times: Times | None = None
        self.loaded: Launch | None = None
        self.stored_at: str | None = None
        self._failure: Exception | None = None
        self._run: Run | None = None

    # -- properties -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The symbol name of the kernel."""
        return self.metadata.name

    @property
    def hash(self) -> str:
        return self.metadata.hash

    @property
    def kernel(self) -> Any:
        """The binary: the last stage of the target."""
        return self.asm[self._binary]

    @property
    def metadata_group(self) -> dict[str, str]:
        """Names and paths of its files in the disk cache: one file with all stages, or none. Read
        it with `python -m tilewright cache`."""
        path = self.stored_at
        return {os.path.basename(path): path} if path is not None and os.path.exists(path) else {}

    @property
    def n_regs(self) -> int:
        """Registers per thread, as reported by the assembler or, once loaded, by the device; 0 if
        not applicable."""
        return self._resource("n_regs")

    @property
    def n_spills(self) -> int:
        """Spilled registers per thread; see `n_regs`."""
        return self._resource("n_spills")

    @property
    def n_max_threads(self) -> int:
        """The maximum number of threads per block; see `n_regs`."""
        return self._resource("n_max_threads")

    def _resource(self, name: str) -> int:
        if name in self.metadata or self.loaded is None:
            return getattr(self.metadata, name)
        return getattr(self.loaded, name, 0)

    @property
    def packed_metadata(self) -> tuple[int, int, int]:
        """(num_warps, num_ctas, shared memory in bytes), for programs that pass it on."""
        known = self.metadata
        return known.get("num_warps", 0), known.get("num_ctas", 0), known.get("shared", 0)

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {self.metadata.target.backend}: {self.asm!r}>"

    # -- running --------------------------------------------------------------------------------

    def load(self) -> Launch:
        """The loaded kernel. A failure to load is raised by each call."""
        if self.loaded is None:
            self._init_handles()
            assert self.loaded is not None
        return self.loaded

    @property
    def run(self) -> Run:
        """Launches the kernel, as a `Runner` does: by native code where possible."""
        if self._run is None:
            self.load()
            self._run = _installed().runner(self, Runner(self))
        return self._run

    @property
    def function(self) -> Any:
        """The device's handle of the loaded kernel."""
        return self.load().handle

    @property
    def module(self) -> Any:
        """The device's handle of the loaded module; None before loading, and on devices without
        modules, such as the CPU."""
        return getattr(self.loaded, "module", None)

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> Any:
        """The argument of launch hooks: an object whose `get()` returns a dict of name, function,
        stream and the results of the kernel's own `launch_metadata`. None if there are no
        hooks."""
        if not knobs.launch_hooks:
            return None
        return _installed().launch_metadata(self, grid, stream, self.all_arguments(args))

    def _init_handles(self) -> None:
        """Load the kernel, once, without launching it. Thread-safe."""
        with self._lock():
            if self._failure is not None:
                raise self._failure
            if self.loaded is not None:
                return
            try:
                self.loaded = _installed().load(self)
            except Exception as error:
                self._failure = error
                raise

    def _lock(self) -> Lock:
        return vars(self).setdefault("_loading", Lock())

    def settle(self, device: str) -> str:
        """Set the device to load it on, unless it is already set; returns the device."""
        if not self.device:
            with self._lock():
                self.device = self.device or device
        return self.device

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """A function that launches on `grid` with the kernel's arguments in order.

        Compile-time arguments are ignored; either all or none of them are passed.
        """

        def launch(*args: Any, stream: int | None = None) -> None:
            _installed().launch(self, grid, self.all_arguments(args), stream)

        return launch

    def all_arguments(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments, with the compile-time ones added if they were omitted.

        Raises:
            TypeError: the number of arguments is wrong.
        """
        signature: Mapping[str, Any] = self.metadata.signature
        if len(args) == len(signature):
            return args
        constants: Mapping[Any, Any] = getattr(self.src, "constants", {})
        declared = getattr(getattr(self.src, "fn", None), "constexprs", None)
        found = [i for i, type in enumerate(signature.values()) if type == "constexpr"]
        # An int that was specialised because it equals 1 may be passed or left out.
        for left_out in (declared, found):
            if left_out is not None and len(args) == len(signature) - len(left_out):
                rest = iter(args)
                return [
                    constants.get((i,)) if i in left_out else next(rest)
                    for i in range(len(signature))
                ]
        raise TypeError(f"{self.name} takes {len(signature)} arguments, not {len(args)}")

    # -- serialisation --------------------------------------------------------------------------

    def files(self, *, binary_only: bool = False) -> dict[str, bytes]:
        """The kernel as named byte strings, the inverse of `from_files`.

        Args:
            binary_only: omit all stages but the binary.
        """
        names = [self._binary] if binary_only else list(self.asm)
        stages = {name: self.asm[name] for name in names}
        header = {
            "metadata": {k: _plain(v) for k, v in self.metadata.items()},
            "stages": [[name, isinstance(stage, str)] for name, stage in stages.items()],
        }
        files = {
            name: stage.encode() if isinstance(stage, str) else stage
            for name, stage in stages.items()
        }
        return {METADATA_FILE: json.dumps(header).encode(), **files}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], src: Any = None) -> CompiledKernel:
        """Restore a kernel from the result of `files`.

        Raises:
            ValueError, KeyError, TypeError: the data is invalid.
        """
        header = json.loads(files[METADATA_FILE])
        stages: dict[str, Stage] = {
            name: files[name].decode() if is_text else files[name]
            for name, is_text in header["stages"]
        }
        return cls(stages, header["metadata"], src)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledKernel.from_files, (self.files(),)


def _plain(value: Any) -> Any:
    """The value in terms of JSON types."""
    if isinstance(value, GPUTarget):
        return [value.backend, value.arch, value.warp_size]
    return value
