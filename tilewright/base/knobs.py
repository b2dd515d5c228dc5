"""All settings of tilewright, and the only module that reads the environment.

    from tilewright.base import knobs

    knobs.runtime.debug                       # override, else environment, else default
    knobs.compilation.always_compile = True   # override
    del knobs.compilation.always_compile      # remove the override
    with knobs.cache.scope():                 # overrides inside are undone at the end
        knobs.cache.dir = "/tmp/kernels"

Environment variables have the prefix `TILEWRIGHT_`. Where the table says so, the name with the
prefix `TRITON_` is an alternative with lower precedence. An empty variable counts as unset. Boolean
settings are true for 1, true, y, yes and on in any case, and false otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache as memoize
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

from tilewright.base.hooks import Alias, Chain, Hook
from tilewright.base.hooks import HookChain as HookChain
from tilewright.base.lazy_import import lazy_import
from tilewright.base.spelling import similar

if TYPE_CHECKING:
    from tilewright.base import triton_knobs
else:
    triton_knobs = lazy_import("tilewright.base.triton_knobs")


T = TypeVar("T")

_TRUE = frozenset({"1", "true", "y", "yes", "on"})


class _Environment:
    """Assigned to a setting, it removes the override: ``knobs.runtime.debug = knobs.env``."""

    def __repr__(self) -> str:
        return "knobs.env"


env: Final = _Environment()

propagate_env = False
"""Whether assigning a setting also sets its environment variable, for child processes."""


def refresh_knobs() -> None:
    """Reread the settings from the environment. A no-op: they are read on every access."""


def _parse_bool(text: str) -> bool:
    return text.strip().lower() in _TRUE


def _parse_optional_str(text: str) -> str | None:
    return text


# os.environ decodes, checks and copies on every read; the underlying mapping does not. Settings are
# read on the launch path, so read the mapping directly where CPython has it.
_raw: dict[Any, Any] | None = getattr(os.environ, "_data", None)
_encode: Callable[[str], Any] | None = getattr(os.environ, "encodekey", None)


def _is_set(key: Any, name: str) -> bool:
    return key in _raw if _raw is not None else name in os.environ


class Knob(Generic[T]):
    """A setting, as a descriptor on its group.

    Args:
        default: the value if neither an override nor a variable is set.
        names: environment variables in order of precedence.
        parse: converts the text of a variable; raises ValueError for an invalid text.
        doc: its effect.
        keyed: whether it affects compiled code and is therefore part of the cache key.
        check: raises ValueError for an invalid value, whether parsed or assigned.
    """

    def __init__(
        self,
        default: T,
        names: tuple[str, ...],
        parse: Callable[[str], T],
        doc: str,
        keyed: bool = False,
        check: Callable[[T], None] | None = None,
    ) -> None:
        self.default = default
        self.names = names
        self.parse = parse
        self.doc = doc
        self.keyed = keyed
        self.check = check
        self.name = ""
        self._keys = [(_encode(name) if _encode else name, name) for name in names]

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, group: None, owner: type) -> Knob[T]: ...
    @overload
    def __get__(self, group: Group, owner: type) -> T: ...
    def __get__(self, group: Group | None, owner: type) -> Knob[T] | T:
        if group is None:
            return self
        overrides = group.__dict__
        if self.name in overrides:
            return cast(T, overrides[self.name])
        for key, name in self._keys:
            if _is_set(key, name) and (text := os.environ.get(name)):
                return self._parsed(name, text)
        return self.default

    def _parsed(self, name: str, text: str) -> T:
        try:
            value = self.parse(text)
            if self.check:
                self.check(value)
        except ValueError as error:
            raise ValueError(f"environment variable {name}={text!r}: {error}") from None
        return value

    def __set__(self, group: Group, value: T | _Environment) -> None:
        if isinstance(value, _Environment):
            self.__delete__(group)
            return
        if self.check:
            self._check_assigned(group, value)
        group.__dict__[self.name] = value
        if propagate_env and self.names:
            self._propagate(value)

    def _check_assigned(self, group: Group, value: T) -> None:
        assert self.check is not None
        try:
            self.check(value)
        except ValueError as error:
            name = f"{type(group).__name__.lower()}.{self.name}"
            raise ValueError(f"the setting {name} = {value!r}: {error}") from None

    def _propagate(self, value: T) -> None:
        """Set the environment variable, for child processes."""
        if value is None:
            os.environ.pop(self.names[0], None)
        else:
            os.environ[self.names[0]] = str(int(value) if isinstance(value, bool) else value)

    def __delete__(self, group: Group) -> None:
        group.__dict__.pop(self.name, None)


launch_hooks: Final[list[Any]] = []
"""One item per registered launch hook; usually empty."""


def _names(name: str, triton: bool) -> tuple[str, ...]:
    return (f"TILEWRIGHT_{name}", f"TRITON_{name}") if triton else (f"TILEWRIGHT_{name}",)


def _switch(
    name: str, doc: str, *, default: bool = False, keyed: bool = False, triton: bool = False
) -> Knob[bool]:
    return Knob(default, _names(name, triton), _parse_bool, doc, keyed)


def _text(name: str, doc: str, *, keyed: bool = False, triton: bool = False) -> Knob[str | None]:
    return Knob(None, _names(name, triton), _parse_optional_str, doc, keyed)


def _parse_int(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _check_not_negative(value: int) -> None:
    if value < 0:
        raise ValueError("expected 0 or more")


PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")


def _check_precision(value: str | None) -> None:
    if value is not None and value not in PRECISIONS:
        raise ValueError(f"expected one of {', '.join(PRECISIONS)}")


# --------------------------------------------------------------------------------------------
# Groups
# --------------------------------------------------------------------------------------------


def _restore_variables(variables: dict[str, str | None]) -> None:
    for name, text in variables.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text


class Group:
    """The settings of one part of the system. Unknown names raise AttributeError on any access."""

    @classmethod
    def table(cls) -> dict[str, Knob[Any]]:
        """The settings of the group by name, in the order of definition."""
        return {name: knob for name, knob in vars(cls).items() if isinstance(knob, Knob)}

    @property
    def knobs(self) -> dict[str, Any]:
        """The current values by name."""
        return {name: getattr(self, name) for name in self.table()}

    def copy(self) -> Group:
        """A new group with the same overrides, independent of this one."""
        twin = type(self)()
        twin.__dict__.update(self.__dict__)
        return twin

    def reset(self) -> Group:
        """Remove all overrides; returns the group."""
        self.__dict__.clear()
        for chain in self._chains():
            chain.clear()
        return self

    def _chains(self) -> list[HookChain]:
        attributes = vars(type(self))
        return [getattr(self, name) for name, a in attributes.items() if isinstance(a, Chain)]

    @contextmanager
    def scope(self) -> Generator[None]:
        """Undo all assignments inside the block at its end."""
        before = self.__dict__.copy()
        calls = [(chain, chain.calls[:]) for chain in self._chains()]
        names = [name for knob in self.table().values() for name in knob.names[:1]]
        variables = {name: os.environ.get(name) for name in names}
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)
            for chain, called in calls:
                chain.clear()
                for func in called:
                    chain.add(func)
            if propagate_env:
                _restore_variables(variables)

    if not TYPE_CHECKING:  # keep unknown names errors for type checkers

        def __getattr__(self, name: str) -> Any:
            try:
                return triton_knobs.default(type(self).__name__.lower(), name)
            except KeyError:
                raise self._unknown(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        known = isinstance(getattr(type(self), name, None), Knob | Hook | Chain | Alias)
        if known:
            object.__setattr__(self, name, value)
        elif not triton_knobs.may_be_set(type(self).__name__.lower(), name, value):
            raise self._unknown(name)
        elif value is env:
            self.__dict__.pop(name, None)
        else:
            self.__dict__[name] = value

    def _unknown(self, name: str) -> AttributeError:
        near = similar(name, [n for n in dir(type(self)) if n[0] != "_"], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return AttributeError(f"there is no setting {type(self).__name__.lower()}.{name}{hint}")


class Runtime(Group):
    """Running kernels."""

    interpret = _switch(
        "INTERPRET", "Interpret kernels in NumPy; read where a kernel is decorated.", triton=True
    )
    interpret_any_address = _switch(
        "INTERPRET_ANY_ADDRESS",
        "Interpreted kernels may reach all memory of the process, unchecked, not only that of "
        "their arguments and of `runtime.reachable`.",
    )
    debug = _switch(
        "DEBUG", "Compile `device_assert` and overflow checks in.", keyed=True, triton=True
    )
    override_arch = _text(
        "OVERRIDE_ARCH", "Compile for this GPU, such as `sm90`.", keyed=True, triton=True
    )
    default_backend = _text(
        "DEFAULT_BACKEND", "Device of kernels without tensor arguments.", triton=True
    )
    cpu_threads: Knob[int] = Knob(
        0,
        _names("CPU_THREADS", False),
        _parse_int,
        "Number of threads of a CPU launch, including the caller; 0: as many as torch uses "
        "(`torch.set_num_threads`) if it is imported, else all cores available to the process.",
        check=_check_not_negative,
    )
    jit_cache_hook = Hook(
        "Called before a variant is compiled, with keywords (runtime/specialization_data.py). "
        "A true result cancels the launch."
    )
    jit_post_compile_hook = Hook("Called with the same keywords after a variant was compiled.")
    launch_enter_hook = Chain(
        "Called before each launch with a mapping that is computed lazily by its `get()`: name, "
        "function, stream, and the result of the kernel's `launch_metadata`.",
        counted=launch_hooks,
    )
    launch_exit_hook = Chain(
        "Called after each launch with the same argument.", reversed=True, counted=launch_hooks
    )
    kernel_load_start_hook = Chain(
        "Called before a kernel is loaded: module, function (both None), name, metadata_group, "
        "hash."
    )
    kernel_load_end_hook = Chain(
        "Called with the same arguments after a kernel was loaded; function is its handle."
    )
    kernel_unload_hook = Chain(
        "Called with the same arguments when a kernel that was loaded under this hook is unloaded."
    )


class Cache(Group):
    """The disk cache of compiled kernels."""

    home_dir: Knob[str | None] = Knob(
        None,
        _names("HOME", True),
        _parse_optional_str,
        "Replaces the home folder as the parent of the cache.",
    )
    dir = _text("CACHE_DIR", "Folder of the disk cache.", triton=True)
    dump_dir = _text(
        "DUMP_DIR", "Folder to which the stages of compiled kernels are dumped.", triton=True
    )
    override_dir = _text(
        "OVERRIDE_DIR", "Folder of stages that override those of the compiler.", triton=True
    )
    size_mib: Knob[int] = Knob(
        2048,
        _names("CACHE_SIZE_MIB", False),
        _parse_int,
        "Approximate maximum size of the disk cache in MiB; least recently used entries are "
        "evicted; 0: unlimited.",
        check=_check_not_negative,
    )
    manager_class = _text(
        "CACHE_MANAGER",
        "`module:Class` of the cache of files that programs store with kernels "
        "(`runtime.cache.get_cache_manager`).",
        triton=True,
    )
    xdg_cache_home: Knob[str | None] = Knob(
        None,
        ("XDG_CACHE_HOME",),
        _parse_optional_str,
        "The user's cache folder, as defined by the XDG base directory specification.",
    )

    def folder(self) -> str:
        """The folder of the disk cache: `dir`, else `tilewright` in `home_dir`/.cache, else in
        `$XDG_CACHE_HOME`, else in ~/.cache.

        Raises:
            RuntimeError: none of these is set, and the user has no home folder.
        """
        if self.dir:
            return _with_home(self.dir)
        if self.home_dir:
            return os.path.join(_with_home(self.home_dir), ".cache", "tilewright")
        # The specification requires ignoring relative paths.
        if self.xdg_cache_home and os.path.isabs(self.xdg_cache_home):
            return os.path.join(self.xdg_cache_home, "tilewright")
        return os.path.join(_with_home("~"), ".cache", "tilewright")


def _with_home(path: str) -> str:
    """A path whose first part may be ``~`` or ``~user``.

    Raises:
        RuntimeError: that user has no home folder.
    """
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise RuntimeError(
            f"there is no home folder for {path}: set TILEWRIGHT_CACHE_DIR to a folder"
        )
    return expanded


class Compilation(Group):
    """Compiling kernels."""

    always_compile = _switch("ALWAYS_COMPILE", "Ignore existing cache entries.", triton=True)
    store_binary_only = _switch(
        "STORE_BINARY_ONLY", "Cache only the final stage of a kernel.", triton=True
    )
    dump = _switch("KERNEL_DUMP", "Dump the stages of kernels to `cache.dump_dir`.", triton=True)
    dump_ir = Alias("dump")
    override = _switch(
        "KERNEL_OVERRIDE",
        "Replace stages of kernels by files in `cache.override_dir`, in the layout of `dump`; "
        "later stages are regenerated.",
        keyed=True,
        triton=True,
    )
    disabled_passes = _text(
        "DISABLED_PASSES",
        "Comma-separated names of optimisations that do not run, such as "
        "`specialize_warps,defer_reductions`: to find the one to blame for a result or a time.",
        keyed=True,
    )
    verify = _switch("VERIFY", "Verify the IR after each pass.")
    reproducer_dir = _text("REPRODUCER_DIR", "Folder for reproducers of internal compiler errors.")
    front_end_debugging = _switch(
        "FRONT_END_DEBUGGING", "Show frames of the compiler in tracebacks of kernels.", triton=True
    )
    allow_non_constexpr_globals = _switch(
        "ALLOW_NON_CONSTEXPR_GLOBALS",
        "Allow kernels to read global variables that are not constexpr.",
        triton=True,
    )
    disable_line_info = _switch(
        "DISABLE_LINE_INFO", "Omit line information from compiled code.", keyed=True, triton=True
    )
    cpu_name = _text(
        "CPU_NAME",
        "Processor to compile for, by LLVM's name, such as `znver4`; default: the host.",
        keyed=True,
    )
    cpu_features = _text(
        "CPU_FEATURES",
        "Target features to add or remove, including dependent ones, by LLVM's names, such as "
        "`+avx2,-avx512f`.",
        keyed=True,
    )
    listener = Hook(
        "Called when a kernel was compiled or loaded from the disk cache, with keywords: src, "
        "metadata, metadata_group, times, cache_hit."
    )


class Language(Group):
    """The kernel language, and the semantics of operations that a kernel leaves open."""

    strict_triton = _switch(
        "STRICT_TRITON",
        "Reject, with Triton's errors, constructs that Triton does not support.",
        keyed=True,
    )

    fp32_default: Knob[str | None] = Knob(
        None,
        _names("F32_DEFAULT", True),
        _parse_optional_str,
        f"Precision of `dot` on fp32 operands: {', '.join(PRECISIONS)}.",
        keyed=True,
        check=_check_precision,
    )
    default_fp_fusion = _switch(
        "DEFAULT_FP_FUSION",
        "Default of the option `enable_fp_fusion`.",
        default=True,
        keyed=True,
        triton=True,
    )
    force_disable_fp_fusion = _switch(
        "FORCE_DISABLE_FP_FUSION",
        "Never contract a multiplication and an addition, whatever the launch options are.",
        keyed=True,
        triton=True,
    )


ASSEMBLERS = ("ptxas", "nvjitlink", "driver")


def _check_assembler(value: str | None) -> None:
    if value is not None and value not in ASSEMBLERS:
        raise ValueError(f"expected one of {', '.join(ASSEMBLERS)}")


def _check_level(value: int) -> None:
    if not 0 <= value <= 3:
        raise ValueError("expected 0 to 3")


class Nvidia(Group):
    """Compiling for NVIDIA GPUs."""

    assembler: Knob[str | None] = Knob(
        None,
        _names("ASSEMBLER", False),
        _parse_optional_str,
        "What assembles PTX: `ptxas`, `nvjitlink`, or the `driver` at load time; default: the "
        "first one available.",
        keyed=True,
        check=_check_assembler,
    )
    ptxas_path = _text("PTXAS_PATH", "The assembler `ptxas`.", triton=True)
    ptxas_options: Knob[str | None] = Knob(
        None,
        ("TILEWRIGHT_PTXAS_OPTIONS", "PTXAS_OPTIONS"),
        _parse_optional_str,
        "Additional options for `ptxas`, separated by blanks.",
        keyed=True,
    )
    opt_level: Knob[int] = Knob(
        3,
        _names("PTXAS_OPT_LEVEL", False),
        _parse_int,
        "Optimisation level of the assembler, 0 to 3.",
        keyed=True,
        check=_check_level,
    )
    disable_ptxas_opt: Knob[bool] = Knob(
        False, ("DISABLE_PTXAS_OPT",), _parse_bool, "The same as `opt_level` 0.", keyed=True
    )
    tensor_copies = _switch(
        "TENSOR_COPIES",
        "Let a dedicated warp copy operands of products as blocks of tensors (TMA), where a "
        "kernel does not say otherwise by the option of that name.",
        default=True,
    )
    random_delays: Knob[int] = Knob(
        0,
        _names("RANDOM_DELAYS", False),
        _parse_int,
        "Seed of random delays around synchronisation, which show races, where a kernel does not "
        "say otherwise by the option of that name; 0 for none.",
    )
    overlap_launches = _switch(
        "OVERLAP_LAUNCHES",
        "Let launches begin before the preceding ones have completed (programmatic dependent "
        "launch, SM90 and later), where a kernel does not specify it by the option `launch_pdl`.",
        default=True,
    )
    strict_products = _switch(
        "STRICT_PRODUCTS",
        "Reject a kernel if the assembler serialises its asynchronous products (`wgmma`); "
        "otherwise this is a remark. Calls of checks in a debug build may serialise them.",
    )
    libcuda_path = _text(
        "LIBCUDA_PATH",
        "Folder of the driver library, if the system does not find it.",
        triton=True,
    )
    nvjitlink_path = _text("NVJITLINK_PATH", "The library `libnvJitLink`.")
    nvdisasm_path = _text("NVDISASM_PATH", "The disassembler `nvdisasm`.", triton=True)
    cuda_home: Knob[str | None] = Knob(
        None,
        ("CUDA_HOME", "CUDA_PATH"),
        _parse_optional_str,
        "Folder of a CUDA toolkit, searched for programs and libraries.",
    )


class Autotuning(Group):
    """Autotuning."""

    print = _switch("PRINT_AUTOTUNING", "Print measurements and the selection.", triton=True)
    cache = _switch("CACHE_AUTOTUNING", "Cache measured times on disk.", default=True, triton=True)
    progress = _switch("AUTOTUNING_PROGRESS", "Show progress on a terminal.", default=True)
    protect_mib: Knob[int] = Knob(
        0,
        _names("AUTOTUNING_PROTECT_MIB", False),
        _parse_int,
        "Maximum device memory in MiB for backups of tensors that a kernel modifies while it is "
        "tuned; 0: half of the free memory.",
        check=_check_not_negative,
    )
    workers: Knob[int] = Knob(
        -1,
        _names("AUTOTUNING_WORKERS", False),
        _parse_int,
        "Worker processes that compile configurations; 0 or 1: none; -1: up to one per additional "
        "core, if worthwhile.",
    )
    listener = Hook(
        "Called when a configuration was selected, with keywords: fn, key, best_config, "
        "configs_timings, duration (in seconds), cache_hit."
    )


runtime = Runtime()
cache = Cache()
compilation = Compilation()
language = Language()
nvidia = Nvidia()
autotuning = Autotuning()

GROUPS: Final[dict[str, Group]] = {
    "runtime": runtime,
    "cache": cache,
    "compilation": compilation,
    "language": language,
    "nvidia": nvidia,
    "autotuning": autotuning,
}


def cache_key_values() -> dict[str, Any]:
    """The current values of all settings that affect compiled code, as ``group.name``."""
    return {
        f"{group_name}.{name}": getattr(group, name)
        for group_name, group in GROUPS.items()
        for name, knob in group.table().items()
        if knob.keyed
    }


def variables() -> dict[str, str]:
    """The non-empty environment variables with the prefix of settings. Not all are settings."""
    prefixes = ("TILEWRIGHT_", "TRITON_")
    known = {name for group in GROUPS.values() for knob in group.table().values()
             for name in knob.names}  # fmt: skip
    return {
        name: text
        for name, text in sorted(os.environ.items())
        if text and (name.startswith(prefixes) or name in known)
    }


def environment_with(name: str, items: Iterable[str]) -> dict[str, str]:
    """The environment of a child process, with items before those of a list in a variable, whose
    separator is a colon."""
    text = os.environ.get(name)
    return {**os.environ, name: ":".join([*items, *([text] if text else [])])}


def prepend_python_path(folder: str) -> None:
    """Prepend a folder to the module search path of child Python processes."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in paths if path not in ("", folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *kept])


def render_docs() -> str:
    """The text of docs/knobs.md."""
    lines = [
        "# Settings",
        "",
        "Generated from `tilewright/base/knobs.py`. The value of a setting is an override "
        "(`knobs.runtime.debug = True`), else the environment variable, else the default. "
        "Settings marked *keyed* affect compiled code and are part of the cache key.",
    ]
    for group_name, group in GROUPS.items():
        lines += ["", f"## knobs.{group_name}", "", (type(group).__doc__ or "").strip(), ""]
        lines += ["| setting | variables | default | keyed | effect |", "|---|---|---|---|---|"]
        for name, knob in group.table().items():
            variables = ", ".join(f"`{variable}`" for variable in knob.names)
            keyed = "yes" if knob.keyed else ""
            lines.append(f"| `{name}` | {variables} | `{knob.default!r}` | {keyed} | {knob.doc} |")
    return "\n".join([*lines, *triton_knobs.render()]) + "\n"


@memoize
def triton_group(name: str) -> Group:
    """A group of settings that only Triton has; all of its names are accepted.

    Raises:
        AttributeError: there is none of the name.
    """
    if name not in triton_knobs.GROUPS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    kind = type(name.capitalize(), (Group,), {"__doc__": triton_knobs.GROUPS[name]})
    return kind()


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Groups of settings that only Triton has."""
        return triton_group(name)
