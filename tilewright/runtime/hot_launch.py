"""Repeated launches of a derivative, in native code.

A derivative has a native launcher (`runtime/native/`) for each grid and each choice of arrays. Its
key has everything on which a plan depends: the types, alignments and aliases of all arguments, the
kernel's integers by value, and the layouts of the primal arrays and their derivatives. The launcher
gets a key only after a launch in Python has checked its arrays and determined its plan. From then
on, one native call launches all kernels of the plan, on memory that one call of the arrays' library
has allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.base.lazy_import import lazy_import
from tilewright.frontend.dependencies import Recorded
from tilewright.frontend.source import KernelParam
from tilewright.language.values import constexpr
from tilewright.runtime.derived_buffers import BufferSizes, Workspace
from tilewright.runtime.derived_launch import Arrays, Checked, Made, Part, Path, start_part, zero
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.slots import slot_of

if TYPE_CHECKING:
    from tilewright.runtime.native import launcher, layout, parameters, records, structure
    from tilewright.runtime.native.records import Start
    from tilewright.runtime.native.runtime import Runtime
    from tilewright.runtime.native.structure import Structure
else:
    layout = lazy_import("tilewright.runtime.native.layout")
    launcher = lazy_import("tilewright.runtime.native.launcher")
    parameters = lazy_import("tilewright.runtime.native.parameters")
    records = lazy_import("tilewright.runtime.native.records")
    structure = lazy_import("tilewright.runtime.native.structure")

ACCUMULATE = "accumulate"


class Names(NamedTuple):
    """The arrays of a launch besides the kernel's own, and their keywords.

    Attributes:
        wrt, outputs: names of the kernel's arrays.
        keywords: those of the dicts with their derivatives.
    """

    wrt: tuple[str, ...]
    outputs: tuple[str, ...]
    keywords: tuple[str, str]

    def items(self) -> dict[str, dict[str, str]]:
        """By keyword, and by array, the parameter of a native launcher."""
        return {
            keyword: {name: f"_tw_{keyword}_{name}" for name in names}
            for keyword, names in zip(self.keywords, (self.wrt, self.outputs), strict=True)
        }


def native_launch(
    kernel: JITFunction, grid: tuple[Any, ...], names: Names, fallback: Callable[..., Any]
) -> Callable[..., Any] | None:
    """A callable that launches a derivative of a kernel on a grid; None if native code does not
    support it.

    Args:
        fallback: launches in Python: ``fallback(grid, *args, **kwargs)``. It returns a `Started`
            if native code may repeat the launch.
    """
    if kernel.native_chain() is None:
        return None
    described = _Described(kernel, names)
    items = names.items()
    further = [parameter for group in items.values() for parameter in group.values()]
    in_key = parameters.InKey(
        integers=frozenset(kernel.arg_names),
        layouts=frozenset([*further, *names.wrt, *names.outputs]),
    )
    made = launcher.make_launcher(described, fallback, in_key=in_key, mappings=items)
    return None if made is None else made.bind(grid)


class _Described:
    """The parameters of a native launcher: those of the kernel, the further arrays, whether to
    accumulate, and the dicts that have these arrays."""

    def __init__(self, kernel: JITFunction, names: Names) -> None:
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self._kernel = kernel
        items = names.items()
        further = [parameter for group in items.values() for parameter in group.values()]
        more = [_keyword(name) for name in further]
        more.append(_keyword(ACCUMULATE, default=False, annotation=constexpr))
        more += [_keyword(name) for name in items]
        self.signature = Signature([*kernel.signature.parameters.values(), *more])
        first = len(kernel.params)
        self.params = [
            *kernel.params,
            *(KernelParam(first + i, p) for i, p in enumerate(more)),
        ]

    @property
    def used_global_vals(self) -> Recorded:
        return self._kernel.used_global_vals

    @property
    def used_objects(self) -> Recorded:
        return self._kernel.used_objects


def _keyword(name: str, **more: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, **more)


def start_plan(found: Checked, of_wrt: Arrays, accumulate: bool, first: int) -> Started | None:
    """Launch a plan's kernels through Python. Returns the data that native code needs to repeat the
    launch; None if it cannot.

    Args:
        first: the place of the arrays of `of_wrt` among the arguments of the launch.
    """
    plan, launch, zeroed = found
    for name in zeroed:
        zero(name, of_wrt[name])
    if 0 in launch.grid:
        return None
    sizes = BufferSizes(plan, of_wrt)
    arrays = sizes.allocated(of_wrt)
    parts = [Part(step.kernel, sizes.grid_of(step), step.arguments) for step in plan.steps]
    for part in parts:
        start_part(part, launch, arrays)
    parts += sizes.finish(arrays, of_wrt, accumulate)
    arguments = [argument for part in parts for argument in part.arguments]
    if plan.overlapping or sizes.adds_up_views or any(map(_is_part, (*plan.integers, *arguments))):
        return None
    places = {name: first + i for i, name in enumerate(of_wrt)}
    prepare = _Prepare([places[name] for name in zeroed], sizes.workspace(of_wrt))
    slots = {("gradient", name): place for name, place in places.items()}
    return Started(parts, slots, sizes.known, prepare, accumulate)


def _is_part(argument: Path | Made | int) -> bool:
    """Whether an argument is a part of one of those of the launch: an item of a tuple."""
    return isinstance(argument, tuple) and isinstance(argument[0], int) and len(argument) > 1


class _Prepare:
    """The preparation of a launch before its kernels.

    Args:
        cleared: the places of the arrays that are zeroed.
        workspace: what is allocated.
    """

    def __init__(self, cleared: Sequence[int], workspace: Workspace | None) -> None:
        self.cleared = cleared
        self._allocate = workspace.allocate if workspace else None
        self.offsets = workspace.offsets if workspace else {}

    @property
    def function(self) -> Callable[..., Any] | None:
        """Takes the arrays that are zeroed, and returns memory or None."""
        return self._run if self.cleared else self._allocate

    def _run(self, *arrays: Any) -> Any:
        for array in arrays:
            zero("", array)
        return self._allocate() if self._allocate else None


class Started:
    """A launch in Python, in the form in which native code repeats it.

    Args:
        parts: its kernels.
        slots: of arguments that are made, those that are among the arguments of the launch.
        known: of the others, those that do not change.
        prepare: what is done first.
        accumulate: whether a kernel must not run twice.
    """

    def __init__(
        self, parts: Sequence[Part], slots: Mapping[Made, int], known: Mapping[Made, Any],
        prepare: _Prepare, accumulate: bool,
    ) -> None:  # fmt: skip
        self.device = parts[0].kernel.device if parts else ""
        self.loaded = self
        self._parts = parts
        self._slots = slots
        self._known = known
        self._prepare = prepare
        self._accumulate = accumulate
        self._kept: list[Any] = []

    def native_start(self, runtime: Runtime) -> Start | None:
        """The record with which native code performs the launch; None if it cannot."""
        starts: list[Start] = []
        for part in self._parts:
            native = getattr(part.kernel.loaded, "native_start", None)
            start: Start | None = native(runtime) if native else None
            if start is None:
                return None
            starts.append(start)
        # What native code does not start is started by Python, from the first kernel on.
        if self._accumulate and any(map(_may_fail_to_start, starts[1:])):
            return None
        chain = self._chain(starts)
        if chain is None:
            return None
        self._kept.append(chain)
        return records.Start({"kind": layout.CHAIN, "chain": chain.address}, {}, [])

    def _chain(self, starts: Sequence[Start]) -> Structure | None:
        """The structure Chain; None if there is no room for its kernels, or their arguments."""
        chain = structure.Structure("Chain")
        made = _MadeSlots(self._prepare.offsets, self._known)
        for i, (part, start) in enumerate(zip(self._parts, starts, strict=True)):
            slots = [self._slot(part.arguments[s & ~layout.TO_FP32], made) for s in start.slots]
            flags = [slot & layout.TO_FP32 for slot in start.slots]
            again = replace(start, slots=[a | b for a, b in zip(slots, flags, strict=True)])
            record = again.record(part.kernel)
            self._kept.append((start, record))
            if i < layout.MAX_STEPS:
                data = id(record) + layout.FIELDS["Bytes"]["data"].offset
                place = i * layout.SIZES["Step"] // layout.WORD
                chain.put_words("steps", [data, *part.grid], skip=place)
        if len(starts) > layout.MAX_STEPS or len(made.values) > layout.MAX_MADE:
            return None
        chain.put("step_count", len(starts))
        chain.put("made_count", len(made.values))
        chain.put_words("made", made.values)
        chain.put_words("in_memory", made.in_memory)
        if self._prepare.function is not None:
            chain.put_object("prepare", self._prepare.function)
        chain.put("cleared_count", len(self._prepare.cleared))
        chain.put_words("cleared", self._prepare.cleared)
        return chain

    def _slot(self, argument: Path | Made | int, made: _MadeSlots) -> int:
        match argument:
            case int():
                return made.slot(argument)
            case (str(), str()):
                found = self._slots.get(argument)
                return made.slot(argument) if found is None else found
            case _:
                (place,) = argument
                assert isinstance(place, int)
                return place


class _MadeSlots:
    """The slots of the arguments that a launch creates.

    Args:
        offsets: of those that are in the memory that it allocates.
        known: the others.

    Attributes:
        values, in_memory: the fields of the structure Chain.
    """

    def __init__(self, offsets: Mapping[Made, int], known: Mapping[Made, Any]) -> None:
        self._offsets = offsets
        self._known = known
        self._numbers: dict[Made | int, int] = {}
        self.values: list[int] = []
        self.in_memory: list[int] = []

    def slot(self, argument: Any) -> int:
        """The slot of an argument: a number, or one that has a name."""
        if argument not in self._numbers:
            self._numbers[argument] = len(self.values)
            offset = self._offsets.get(argument)
            if offset is None:
                value = argument if isinstance(argument, int) else self._known[argument]
                offset = slot_of(value)
            self.values.append(offset)
            self.in_memory.append(-1 if argument in self._offsets else 0)
        return layout.MADE_SLOT + 1 + self._numbers[argument]


def _may_fail_to_start(start: Start) -> bool:
    """Whether native code may find only when it starts a kernel that it cannot: it makes tensor
    maps, allocates memory, or waits for another launch."""
    return any(start.fields.get(field) for field in ("map_count", "scratch", "owners"))
