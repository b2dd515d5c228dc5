"""Corrections of torch's code for tile kernels on the CPU, which torch does not test.

Each corrects a fault or a gap of torch 2.13, and has no effect on a release that lacks the
function.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import wraps
from importlib.util import module_from_spec
from typing import Any

from tilewright.interop.after_import import after_import, is_defined_in
from tilewright.language.types import dtype


def correct_inductor() -> None:
    """Apply the corrections, once: to modules that are imported now, and to the others, which take
    a second to import, when a first compilation imports them."""
    _describe_arguments()
    _list_types()
    after_import("torch._inductor.codegen.wrapper", _keep_scalar_inputs)
    after_import("torch._inductor.codegen.cpu_device_op_overrides", _indent_streams)
    after_import("torch._dynamo.device_interface", _guard_the_cpu)
    after_import("torch._inductor.compile_fx", _generate_cpp)
    after_import("torch._inductor.codegen.cpp_wrapper_cpu", _explain_calls)
    for module in ("lowering", "decomposition"):
        after_import(f"torch._inductor.{module}", _add_short_integers)


def _describe_arguments() -> None:
    """Redefine Inductor's description of arguments, if its module has been imported without Triton,
    for which an import of `torch._inductor.config` suffices."""
    hints: Any = sys.modules.get("torch._inductor.runtime.hints")
    missing = getattr(hints, "AttrsDescriptorWrapper", None)
    if not isinstance(missing, type):
        return  # a function, if Triton was found
    from torch.utils import _triton

    _triton.has_triton_package.cache_clear()
    found: Any = module_from_spec(hints.__spec__)
    hints.__spec__.loader.exec_module(found)
    for name, module in list(sys.modules.items()):
        if name.startswith("torch._inductor") and (
            vars(module).get("AttrsDescriptorWrapper") is missing
        ):
            vars(module)["AttrsDescriptorWrapper"] = found.AttrsDescriptorWrapper


def _list_types() -> None:
    """Complete modules of torch that were imported without Triton, and only list its types and its
    version."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is not None:
        utils.common_constant_types.add(dtype)
        vars(utils).setdefault("triton", sys.modules["triton"])


def _keep_scalar_inputs(module: Any) -> None:
    """Keep results of kernels out of the memory of tensors on the CPU without dimensions.

    Inductor passes these to tile kernels as numbers. It nevertheless places results in those that a
    backward graph may overwrite, and the kernel then computes with the address.
    """
    from torch._inductor.virtualized import V

    wrapper = module.PythonWrapperCodegen
    can_reuse: Any = getattr(wrapper, "can_reuse", None)
    if can_reuse is None or is_defined_in(can_reuse, __file__):
        return

    @wraps(can_reuse)
    def can_reuse_memory(self: Any, input_buffer: Any, *rest: Any, **named: Any) -> bool:
        if V.graph.is_unspec_arg(input_buffer.get_name()):
            return False
        return can_reuse(self, input_buffer, *rest, **named)

    wrapper.can_reuse = can_reuse_memory


def _indent_streams(module: Any) -> None:
    """Define the function for streams of generated modules in one line: Inductor inserts it into an
    indented text, and the modules that max-autotune measures were not valid Python."""
    overrides: Any = getattr(module, "CpuDeviceOpOverrides", None)
    define: Any = getattr(overrides, "import_get_raw_stream_as", None)
    if define is None or is_defined_in(define, __file__):
        return

    @wraps(define)
    def import_in_one_line(self: Any, name: str) -> str:
        return f"{name} = lambda _: 0"

    overrides.import_get_raw_stream_as = import_in_one_line


def _guard_the_cpu(module: Any) -> None:
    """Give the CPU a context manager that selects a device, which max-autotune enters when it
    measures whether to fuse a template with its epilogue."""
    interface = module.CpuInterface
    if interface.device is module.DeviceInterface.device:
        interface.device = nullcontext


ONLY_CPP = "flex_attention"
"""How the names of operators begin that torch has only C++ templates of on the CPU."""


def _generate_cpp(module: Any) -> None:
    """Have Inductor generate C++ for graphs that it has no complete tile kernels of on the CPU:
    those with flex attention, a template, and those whose kernels C++ code calls (`cpp_wrapper`,
    AOTInductor). It raised errors about its own functions. The program's kernels are unaffected.
    """
    from torch._inductor import config

    compiler: Any = getattr(module, "_InProcessFxCompile", None)
    compile_graph: Any = getattr(compiler, "codegen_and_compile", None)
    if compile_graph is None or is_defined_in(compile_graph, __file__):
        return

    @wraps(compile_graph)
    def codegen_and_compile(self: Any, gm: Any, *rest: Any, **named: Any) -> Any:
        settings: Any = config
        *_, options = (*rest, *named.values())
        patches: dict[str, Any] = {}
        if settings.cpu_backend == "triton":
            if options.get("cpp_wrapper"):
                patches = {"cpu_backend": "cpp"}
            elif _has_only_cpp(gm):  # its template raises an error for what is fused behind it
                patches = {"cpu_backend": "cpp", "epilogue_fusion": False}
        with settings.patch(patches):
            return compile_graph(self, gm, *rest, **named)

    compiler.codegen_and_compile = codegen_and_compile


def _has_only_cpp(graph: Any) -> bool:
    """Whether a graph calls an operator of `ONLY_CPP` on the CPU."""
    calls = [node for node in graph.graph.nodes if str(node.target).startswith(ONLY_CPP)]
    return any(_is_on_cpu(node.args[0]) for node in calls)


def _is_on_cpu(argument: Any) -> bool:
    return argument.meta["val"].device.type == "cpu"


def _explain_calls(module: Any) -> None:
    """Raise an error for calls of the program's kernels in C++ code of `cpp_wrapper` on the CPU:
    torch supports such calls for AOTInductor only. Its own error names a cache, and a setting that
    does not help."""
    from torch._inductor.virtualized import V

    call: Any = getattr(module, "DeferredCpuTritonCallWrapper", None)
    generate: Any = getattr(call, "generate", None)
    if generate is None or is_defined_in(generate, __file__):
        return

    @wraps(generate)
    def generate_call(self: Any, wrapper: Any) -> None:
        if not V.graph.aot_mode:
            raise RuntimeError(
                f"torch._inductor.config.cpp_wrapper: torch generates no C++ code that calls "
                f"kernels of the program on the CPU, such as {self.kernel_name}, but for "
                "AOTInductor. Compile this function without cpp_wrapper"
            )
        generate(self, wrapper)

    call.generate = generate_call


SUMS = ("add", "sum")
"""What operators call a scatter that adds."""


def _add_short_integers(module: Any) -> None:
    """Have eager execution's functions add to integers of 8 and 16 bits by index, as those to int64
    and bool: tiles have no such atomic additions, and Inductor generated them."""
    import torch
    from torch._inductor import config

    settings: Any = config
    short = (torch.int8, torch.uint8, torch.int16)
    limits: Any = getattr(module, "needs_fallback_due_to_atomic_add_limitations", None)
    scatters: Any = getattr(module, "use_scatter_fallback", None)
    if limits is None or scatters is None or is_defined_in(scatters, __file__):
        return

    @wraps(limits)
    def needs_fallback(dtype: Any) -> bool:
        tiles = settings.cpu_backend == "triton" or torch.cuda.is_available()
        return limits(dtype) or (tiles and dtype in short)

    @wraps(scatters)
    def use_scatter_fallback(
        op_overload: Any, reduction_type: str | None, self_dtype: Any, *rest: Any
    ) -> bool:
        adds = reduction_type in SUMS and needs_fallback(self_dtype)
        return adds or scatters(op_overload, reduction_type, self_dtype, *rest)

    module.needs_fallback_due_to_atomic_add_limitations = needs_fallback
    module.use_scatter_fallback = use_scatter_fallback
