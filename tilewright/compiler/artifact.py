"""The compiled kernel: its forms of code and its metadata.

It is made of plain data, so that it can be stored, sent and pickled. How it is loaded and launched
is the runtime's business, which registers itself with `install_launcher`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tilewright.base.locks import Lock
from tilewright.targets.protocol import GPUTarget, Stage
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
            grid: its extents.
            values: of all parameters, compile-time ones too.
            slots: the same with each tensor replaced by its address.
        """
        ...

    @property
    def handle(self) -> Any:
        """What the device calls the function: on the CPU, its address."""
        ...


class Launcher(Protocol):
    """What the runtime does for compiled kernels."""

    def load(self, kernel: CompiledKernel) -> Launch:
        """Make a kernel ready to run."""
        ...

    def launch(
        self,
        kernel: CompiledKernel,
        grid: Any,
        args: Sequence[Any],
        stream: int | None,
        hooks: bool = True,
    ) -> None:
        """Run a kernel on arguments as a caller passes them, all of them in order.

        Args:
            stream: must be the current stream if it is not None.
            hooks: whether those of the setting `runtime` are called.
        """
        ...

    def told(self, kernel: CompiledKernel, grid: Any, stream: Any, args: Sequence[Any]) -> Any:
        """What hooks are told of such a launch; None where there are no hooks."""
        ...


_launcher: Launcher | None = None


def install_launcher(launcher: Launcher) -> None:
    """Say how kernels are loaded and launched; called once, by the runtime."""
    global _launcher
    _launcher = launcher


def _installed() -> Launcher:
    assert _launcher is not None, "import tilewright.runtime.launch before launching"
    return _launcher


class Metadata(Mapping[str, Any]):
    """An unchangeable record, read as attributes or as a mapping."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", dict(values))

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
    """The forms of a kernel's code by name. Some are made when they are first asked for."""

    def __init__(self, stages: Mapping[str, Stage], metadata: Metadata) -> None:
        self._stages = dict(stages)
        self._metadata = metadata

    def __getitem__(self, name: str) -> Any:
        name = STAGE_ALIASES.get(name, name)
        if name not in self._stages:
            target = find_target(self._metadata.target)
            self._stages[name] = target.derive(name, self._stages, self._metadata)
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
    """How long compiling took, in microseconds.

    Attributes:
        ir_initialization: of the front end.
        lowering_stages: (name, time) of what followed.
        store_results: of what was left to do then.
    """

    ir_initialization: int = 0
    lowering_stages: list[tuple[str, int]] = field(default_factory=list)
    store_results: int = 0

    @classmethod
    def of_cache_hit(cls, seconds: float) -> Times:
        """Of a kernel that was found, which takes so many seconds."""
        return cls(store_results=int(1e6 * seconds))

    @property
    def total_lowering(self) -> int:
        return sum(time for _, time in self.lowering_stages)

    @property
    def total(self) -> int:
        return self.ir_initialization + self.total_lowering + self.store_results


class Runner:
    """A loaded kernel as libraries call it; `start` is the shorter way.

        run = compiled.run
        run(4, 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, x, y, n)

    Attributes:
        start, handle: those of the `Launch`.
    """

    __slots__ = ("_kernel", "handle", "start")

    def __init__(self, kernel: CompiledKernel, loaded: Launch) -> None:
        self._kernel = kernel
        self.start, self.handle = loaded.start, loaded.handle

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
        """Launch between two hooks, which get `launch_metadata`.

        Args:
            stream: the current stream, or None.
            function, packed_metadata: the kernel's own; not needed.
            args: as for a launch with a grid in brackets.
        """
        kernel, grid = self._kernel, (grid_x, grid_y, grid_z)
        if launch_enter_hook is not None:
            launch_enter_hook(launch_metadata)
        _installed().launch(kernel, grid, kernel.all_arguments(args), stream, hooks=False)
        if launch_exit_hook is not None:
            launch_exit_hook(launch_metadata)


class CompiledKernel:
    """A kernel in its compiled forms.

        compiled = tilewright.compile(ASTSource(...))
        print(compiled.asm["llir"], compiled.metadata.name)
        compiled[(4, 1, 1)](x, y, n, BLOCK)

    Attributes:
        asm: the forms of the code: ``source``, ``ttir`` (tile IR after the tile passes), then
            those of the target, such as ``llir``, ``asm`` and ``obj`` of the CPU.
        metadata: `name`, `hash`, `target`, the options, the types of the arguments, and what the
            target says.
        device: name of the device that it is loaded on when it first runs, such as ``"cuda:0"``;
            "" for the current one of its target.
        hash: what names the kernel in the disk cache.
        src: what it was compiled from; None when it came by pickle.
        times: how long compiling it took, of one that was not found in the disk cache.
        loaded: the kernel made ready to run; None until that is first needed, see `run`.
        stored_at: the file that the disk cache has for it; None where it is not to be kept.
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
        self.stored_at: Path | None = None
        self._failure: Exception | None = None

    # -- what it is -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The symbol of the kernel."""
        return self.metadata.name

    @property
    def hash(self) -> str:
        return self.metadata.hash

    @property
    def kernel(self) -> Any:
        """The last stage that the target made: what is loaded."""
        return self.asm[self._binary]

    @property
    def metadata_group(self) -> dict[str, str]:
        """Names and paths of the files that the disk cache has for it: one, with all stages in it
        (`python -m tilewright cache` reads it), or none."""
        path = self.stored_at
        # Not path.exists(), which raises where the folder may not be looked into.
        return {path.name: str(path)} if path is not None and os.path.exists(path) else {}

    @property
    def n_regs(self) -> int:
        """Registers a thread uses, where its compiler or, once it is loaded, its device says so; 0
        on a device without such registers."""
        return self._resource("n_regs")

    @property
    def n_spills(self) -> int:
        """Registers of a thread that were spilled, as for `n_regs`."""
        return self._resource("n_spills")

    @property
    def n_max_threads(self) -> int:
        """The most threads a block may have, as for `n_regs`."""
        return self._resource("n_max_threads")

    def _resource(self, name: str) -> int:
        if name in self.metadata or self.loaded is None:
            return getattr(self.metadata, name)
        return getattr(self.loaded, name, 0)

    @property
    def packed_metadata(self) -> tuple[int, int, int]:
        """Warps, blocks in a cluster, and bytes of shared memory: for programs that pass it on."""
        known = self.metadata
        return known.get("num_warps", 0), known.get("num_ctas", 0), known.get("shared", 0)

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {self.metadata.target.backend}: {self.asm!r}>"

    # -- running --------------------------------------------------------------------------------

    @property
    def run(self) -> Runner:
        """The loaded kernel. A failure to load is raised again each time."""
        if self.loaded is None:
            self._init_handles()
            assert self.loaded is not None
        return Runner(self, self.loaded)

    @property
    def function(self) -> Any:
        """The device's handle of the loaded kernel."""
        return self.run.handle

    @property
    def module(self) -> Any:
        """The device's handle of the loaded code that the function is in; None before it is loaded,
        and where it has none, as on the CPU."""
        return getattr(self.loaded, "module", None)

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> Any:
        """What the hooks of launches are told of a launch: an object whose `get()` gives a dict of
        name, function and stream, and what the kernel's own `launch_metadata` adds. None where
        there are no hooks."""
        return _installed().told(self, grid, stream, self.all_arguments(args))

    def _init_handles(self) -> None:
        """Load the kernel without launching it; once, whoever asks at the same time."""
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
        """Have it loaded on a device, by name, if nobody has said where; gives where it is."""
        if not self.device:
            with self._lock():
                self.device = self.device or device
        return self.device

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """A function that launches on `grid` with the kernel's arguments in order.

        Compile-time arguments are ignored: they are passed too, or all of them are left out.
        """

        def launch(*args: Any, stream: int | None = None) -> None:
            _installed().launch(self, grid, self.all_arguments(args), stream)

        return launch

    def all_arguments(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments with what is missing of compile-time ones.

        Raises:
            TypeError: there are too few or too many.
        """
        signature: Mapping[str, Any] = self.metadata.signature
        if len(args) == len(signature):
            return args
        constants: Mapping[Any, Any] = getattr(self.src, "constants", {})
        declared = getattr(getattr(self.src, "fn", None), "constexprs", None)
        found = [i for i, type in enumerate(signature.values()) if type == "constexpr"]
        # An int that became a compile-time value by being 1 is passed all the same, or not.
        for left_out in (declared, found):
            if left_out is not None and len(args) == len(signature) - len(left_out):
                given = iter(args)
                return [
                    constants.get((i,)) if i in left_out else next(given)
                    for i in range(len(signature))
                ]
        raise TypeError(f"{self.name} takes {len(signature)} arguments, not {len(args)}")

    # -- storing --------------------------------------------------------------------------------

    def files(self, *, binary_only: bool = False) -> dict[str, bytes]:
        """The kernel as named bytes, which `from_files` takes back.

        Args:
            binary_only: leave out all stages but the one that is loaded.
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
        """A kernel from what `files` gave.

        Raises:
            ValueError, KeyError, TypeError: the data is something else.
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
    """The value as JSON has it."""
    if isinstance(value, GPUTarget):
        return [value.backend, value.arch, value.warp_size]
    return value
