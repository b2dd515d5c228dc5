"""Inductor's tile kernels: options that Inductor does not set, and blocks of reductions.

A kernel's description is written where it is generated, and read where it is compiled, which may be
a compile worker. Generated modules therefore call `adapt_autotuner` there. Has no effect on
releases of torch that lack the patched functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import wraps
from typing import Any

from tilewright.interop.after_import import after_import, is_defined_in
from tilewright.interop.torch_launches import adapt_launches
from tilewright.runtime.devices.cpu import thread_count
from tilewright.runtime.jit import JITFunction

OPTION = "single_threaded"

SHARED = "shared_arguments"
"""The key of a kernel's description with the names of arguments that may share memory."""

OF_PROGRAMS = "USER_AUTOTUNE"
"""What the heuristic is called of kernels that are the program's, rather than generated."""

ASSERTION = "device_assert"

ALIAS = "tw.alias"
"""The attribute of an argument with its alias class: see ir/core.py."""

_described: list[Any] = []
"""The kernel whose text is being generated."""

CODE = f"""
from {__name__} import adapt_autotuner
adapt_autotuner()
"""
"""What generated modules begin with."""

TAG = "tilewright 1"
"""Part of the keys of torch's caches: changes whenever generated modules of earlier releases cannot
be used any more."""


def describe_kernels() -> None:
    """Have descriptions of generated kernels state whether launches on the CPU use one thread, and
    which arguments share memory.

    Inductor's C++ kernels are generated for a number of threads, too: for one thread, they have
    ordinary additions in place of atomic ones.
    """
    _tag_caches()
    after_import("torch._inductor.codegen.triton", _describe_kernels)


def _describe_kernels(module: Any) -> None:
    kernel = module.TritonKernel
    describe: Any = getattr(kernel, "inductor_meta_common", None)
    imports: Any = getattr(kernel, "gen_common_triton_imports", None)
    generate: Any = getattr(kernel, "codegen_kernel", None)
    if describe is None or imports is None or generate is None or is_defined_in(generate, __file__):
        return

    @wraps(generate)
    def codegen_kernel(self: Any, *rest: Any, **named: Any) -> Any:
        _described.append(self)
        try:
            return generate(self, *rest, **named)
        finally:
            _described.pop()

    def inductor_meta_common(cls: Any) -> dict[str, Any]:
        described = _described[-1] if _described else _template(cls, kernel)
        shared = {SHARED: _shared_arguments(described)} if described is not None else {}
        return {**describe.__func__(cls), **shared, OPTION: thread_count() == 1}

    def gen_common_triton_imports(cls: Any) -> str:
        return imports.__func__(cls) + CODE

    kernel.codegen_kernel = codegen_kernel
    kernel.inductor_meta_common = classmethod(inductor_meta_common)
    kernel.gen_common_triton_imports = classmethod(gen_common_triton_imports)


def _template(cls: Any, base: Any) -> Any:
    """The kernel of a template whose text is being generated, by `cls`; None if there is none.

    Templates, which have no `codegen_kernel`, are kernels of a class of their own. Its module is
    not imported for it: that takes half a second.
    """
    from torch._inductor.virtualized import V

    kernel = V.kernel if cls is not base else None
    return kernel if type(kernel) is cls else None


def _shared_arguments(kernel: Any) -> list[str]:
    """The names of arguments of a generated kernel whose memory another one may access as well:
    those that are passed twice, as an input that the kernel overwrites, and views of one buffer.

    Templates that are only measured have buffers of their own, before there is a schedule.
    """
    from torch._inductor.virtualized import V

    arguments: dict[str, set[str]] = {}
    operands, schedule = kernel.args, V.graph.scheduler
    buffers_by_name: Mapping[str, Any] = schedule.name_to_buf if schedule is not None else {}
    for buffers in (operands.input_buffers, operands.output_buffers, operands.inplace_buffers):
        for buffer, argument in buffers.items():
            name = getattr(argument, "inner_name", argument)
            if isinstance(name, str):
                known = buffers_by_name.get(buffer)
                for place in (buffer, *(known.get_aliases() if known else ())):
                    arguments.setdefault(place, set()).add(name)
    return sorted(set[str]().union(*(names for names in arguments.values() if len(names) > 1)))


def _tag_caches() -> None:
    """Add the tag to the keys of torch's caches, once in a process. Compile workers need it as
    well: they name the files in which this process stores the fastest configurations."""
    from torch.compiler import config

    settings: Any = config
    tag: str | None = getattr(settings, "cache_key_tag", None)
    if tag is not None and TAG not in tag:
        settings.cache_key_tag = f"{tag} {TAG}".strip()


def adapt_autotuner() -> None:
    """Adapt Inductor's classes of kernels, and the keys of its caches, once in a process."""
    from torch._inductor.runtime import triton_heuristics

    _tag_caches()
    _set_options(triton_heuristics.CachingAutotuner)
    _separate_arguments(triton_heuristics.CachingAutotuner)
    _choose_blocks(triton_heuristics)
    keep_blocks(triton_heuristics.CachingAutotuner)
    adapt_launches(triton_heuristics)


def _set_options(autotuner: Any) -> None:
    """Compile Inductor's kernels with atomic additions for one thread, if they are described so:
    other kernels, and those of the program itself, can run on any number of threads. Compile
    kernels for GPUs that C++ code launches without tensor maps, which it does not pass. Compile
    generated kernels without assertions without the option `debug`, which Inductor sets for all: it
    would check assumptions of templates, and GPU kernels that may call the function for failed
    assertions wait for each asynchronous product."""
    create: Any = getattr(autotuner, "_create_compile_options", None)
    if create is None or is_defined_in(create, __file__):
        return

    def create_compile_options(self: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        options = create(self, *rest, **named)
        meta = self.inductor_meta
        if self.device_props.type == "cpu" and meta.get("atomic_add_found") and meta.get(OPTION):
            options[OPTION] = True
        if self.device_props.type == "cuda" and meta.get("store_cubin"):
            options["tensor_copies"] = False
        if self.heuristic_type.name != OF_PROGRAMS and not _has_assertions(self.fn):
            options["debug"] = False
        return options

    autotuner._create_compile_options = create_compile_options


def _has_assertions(kernel: JITFunction) -> bool:
    """Whether a generated kernel, or a function of its module, contains assertions."""
    functions = [v for v in kernel.fn.__globals__.values() if isinstance(v, JITFunction)]
    return any(ASSERTION in function.src for function in (kernel, *functions))


def _separate_arguments(autotuner: Any) -> None:
    """Give the arguments of Inductor's kernels alias classes, as a launch that knows their
    addresses does. Otherwise, a load of one must not be moved across a store to another.

    They are as generated: Inductor passes no buffers that overlap other than those described.
    """
    create: Any = getattr(autotuner, "_create_compile_meta", None)
    if create is None or is_defined_in(create, __file__):
        return

    def create_compile_meta(self: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        meta = create(self, *rest, **named)
        shared = self.inductor_meta.get(SHARED)
        if shared is not None and meta["configs"]:
            meta["configs"] = [_with_classes(meta["configs"][0], meta["signature"], shared)]
        return meta

    autotuner._create_compile_meta = create_compile_meta


def _with_classes(
    attributes: Mapping[tuple[int, ...], Sequence[Any]],
    signature: Mapping[str, Any],
    shared: Sequence[str],
) -> dict[tuple[int, ...], list[Any]]:
    """Attributes of arguments, with the alias classes of pointers: one for those that are shared,
    and one for each of the others."""
    result = {path: list(pairs) for path, pairs in attributes.items()}
    for i, (name, kind) in enumerate(signature.items()):
        if isinstance(kind, str) and kind.startswith("*"):
            result.setdefault((i,), []).append([ALIAS, 0 if name in shared else i + 1])
    return result


USUAL_REGISTERS = 40
"""The registers of a thread that kernels for NVIDIA GPUs may have before ptxas is to save any:
`targets/nvidia/occupancy.ROOMY_REGISTERS`."""


def keep_blocks(autotuner: Any) -> None:
    """Prevent Inductor from compiling reductions with half the block size, and measuring both, only
    because of the registers that tilewright uses for each kernel.

    It does so, in the program's own process, where more than 32 registers keep programs from being
    resident. ptxas squeezes many kernels into 32, but these are assembled again with up to 40,
    whatever their block is.
    """
    scale: Any = getattr(autotuner, "_dynamic_scale_rblock", None)
    if scale is None or is_defined_in(scale, __file__):
        return

    @wraps(scale)
    def dynamic_scale_rblock(self: Any) -> None:
        if any((launcher.n_regs or 0) > USUAL_REGISTERS for launcher in self.launchers):
            scale(self)

    autotuner._dynamic_scale_rblock = dynamic_scale_rblock


LONGEST_REDUCTION = 1024
"""The longest reduction that is compiled without a loop."""

LONGEST_COLUMN = 1 << 15
"""The longest such reduction of elements that are not contiguous. In a loop, sums of a block are
kept for each of its elements, and neighbouring elements are not added as vectors."""

MOST_IN_ONE = 4096
"""The most elements of a kernel for one program."""

INNER = "INNER"
"""Inductor's hint that a reduction is of contiguous elements."""

LOOP_BLOCK = 512
"""The most elements of contiguous ones that an iteration of a loop reduces: the accumulators of a
variance, which are read and written in each, stay in the first-level cache."""

LEAST_BLOCK = 16
"""The least length of its block along another axis: a vector of fp32 numbers."""


def _choose_blocks(heuristics: Any) -> None:
    """Have short reductions that are not along contiguous elements compiled without a loop, and
    short elementwise kernels for one program: to divide them takes longer.

    Inductor's configurations are those of GPUs, on which a block must fit into the registers of a
    program, and accesses of neighbouring programs coalesce. It has no loops for reductions of up to
    1,024 contiguous elements itself.
    """
    tune: Any = getattr(heuristics, "cached_autotune", None)
    if tune is None or is_defined_in(tune, __file__):
        return

    def cached_autotune(
        size_hints: Any, configs: Any, triton_meta: Any, *rest: Any, **named: Any
    ) -> Any:
        if configs and size_hints and triton_meta["device"].type == "cpu":
            hint = (named.get("inductor_meta") or {}).get("reduction_hint")
            is_column = getattr(hint, "name", INNER) != INNER
            blocks = blocks_on_cpu(configs[0].kwargs, size_hints, is_column)
            if blocks:
                configs = [deepcopy(configs[0])]
                configs[0].kwargs.update(blocks)
        return tune(size_hints, configs, triton_meta, *rest, **named)

    heuristics.cached_autotune = cached_autotune


def blocks_on_cpu(
    blocks: Mapping[str, int], sizes: Mapping[str, int], is_column: bool = False
) -> dict[str, int]:
    """The blocks of a kernel on the CPU instead of those of a configuration.

    Args:
        blocks: those of the configuration: ``{"XBLOCK": 1, "R0_BLOCK": 64}``.
        sizes: the extents of the axes, rounded up to powers of two: ``{"x": 256, "r0_": 512}``.
        is_column: whether a reduction is known not to be of contiguous elements.

    Returns:
        the blocks; empty if the configuration is to be used.
    """
    if [*blocks, *sizes] == ["XBLOCK", "x"]:
        return {"XBLOCK": sizes["x"]} if sizes["x"] <= MOST_IN_ONE else {}
    return _blocks_without_loop(blocks, sizes, LONGEST_COLUMN if is_column else LONGEST_REDUCTION)


def _blocks_without_loop(
    blocks: Mapping[str, int], sizes: Mapping[str, int], longest: int
) -> dict[str, int]:
    """The blocks of a short reduction without a loop, and of a long one with short blocks; empty if
    they are vectors along the other axis."""
    if "R0_BLOCK" not in blocks or not blocks.keys() <= {"XBLOCK", "YBLOCK", "R0_BLOCK"}:
        return {}
    if blocks["XBLOCK"] >= LEAST_BLOCK:
        return {}
    if sizes["r0_"] > longest:
        return {"R0_BLOCK": LOOP_BLOCK} if blocks["R0_BLOCK"] > LOOP_BLOCK else {}
    result = {**blocks, "R0_BLOCK": sizes["r0_"]}
    if "YBLOCK" not in blocks:
        result["XBLOCK"] = min(LEAST_BLOCK, sizes["x"])
    return result
