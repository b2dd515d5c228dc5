"""Options of Inductor's tile kernels on the CPU that Inductor itself does not set.

A kernel's description is written where it is generated, `describe_kernels`, and read where it is
compiled, `set_options`, which may be a compile worker. Generated modules therefore call the latter.
Both have no effect on releases of torch that lack the functions.
"""

from __future__ import annotations

from typing import Any

from tilewright.runtime.devices.cpu import thread_count

OPTION = "single_threaded"

IMPORT = f"""
from {__name__} import set_options
set_options()
"""


def describe_kernels() -> None:
    """Have descriptions of generated kernels state whether launches on the CPU use one thread.

    Inductor's C++ kernels are generated for a number of threads, too: for one thread, they have
    ordinary additions in place of atomic ones.
    """
    from torch._inductor.codegen.triton import TritonKernel

    kernel: Any = TritonKernel
    describe: Any = getattr(kernel, "inductor_meta_common", None)
    imports: Any = getattr(kernel, "gen_common_triton_imports", None)
    if describe is None or imports is None or _is_ours(describe):
        return

    def inductor_meta_common(cls: Any) -> dict[str, Any]:
        return {**describe.__func__(cls), OPTION: thread_count() == 1}

    def gen_common_triton_imports(cls: Any) -> str:
        return imports.__func__(cls) + IMPORT

    kernel.inductor_meta_common = classmethod(inductor_meta_common)
    kernel.gen_common_triton_imports = classmethod(gen_common_triton_imports)


def set_options() -> None:
    """Compile Inductor's kernels with atomic additions for one thread, where they are described so.

    Other kernels, and those of the program itself, can run on any number of threads.
    """
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    autotuner: Any = CachingAutotuner
    create: Any = getattr(autotuner, "_create_compile_options", None)
    if create is None or _is_ours(create):
        return

    def create_compile_options(self: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        options = create(self, *rest, **named)
        meta = self.inductor_meta
        if self.device_props.type == "cpu" and meta.get("atomic_add_found") and meta.get(OPTION):
            options[OPTION] = True
        return options

    autotuner._create_compile_options = create_compile_options


def _is_ours(function: Any) -> bool:
    return function.__module__ == __name__
