"""Ahead-of-time export of CPU kernels: an object file and its header.

The object contains the kernel and a function that launches it, emitted here as LLVM IR:

    int32_t NAME(const tilewright_workers *workers, int64_t gridX, …, const float *x, int32_t n);

The function stores the arguments into the slots that the kernel reads, and passes ranges of the
flattened grid to the caller's workers, or executes all of it on the calling thread without workers.
A range allocates its workspace with `malloc`. The object depends on the C library and libm only,
has no state, and may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.amx import REQUEST
from tilewright.ir.types import FP32, scalar_type
from tilewright.lowering.convert import cast, cast_fp16
from tilewright.lowering.emit import (
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Builder,
    LType,
    Module,
    V,
    array,
    const,
)
from tilewright.lowering.types import memory_type
from tilewright.targets.cpu import emit
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.name import NAME
from tilewright.targets.export import (
    AXES,
    LINKAGE_BEGIN,
    LINKAGE_END,
    ONE,
    Export,
    ExportError,
    Interface,
    Parameter,
    grid_lines,
    guarded,
    listed,
    promises,
)
from tilewright.targets.protocol import Stage

ALIGNMENT = 64  # bytes, of a range's workspace
SLOT = 8  # bytes of an argument, as the kernel reads it

OK, NO_MEMORY, BAD_GRID, BROKEN_HINT, NO_TILES = range(5)

# Offsets in a job, the structure that is passed to each range of programs.
_SLOTS, _GRID, _STATUS, _JOB_BYTES = 0, 8, 20, 24

_WORKERS = "const tilewright_workers *"
_RUN = 0  # offset of the function in `tilewright_workers`

_TYPES = """
#ifndef TILEWRIGHT_CPU_TYPES
#define TILEWRIGHT_CPU_TYPES

/* The result of a launch. */
enum {
  TILEWRIGHT_OK = 0,
  TILEWRIGHT_NO_MEMORY = 1,   /* malloc of a workspace failed; some programs have not run */
  TILEWRIGHT_BAD_GRID = 2,    /* an extent is negative or above 2147483647 */
  TILEWRIGHT_BROKEN_HINT = 3, /* this variant was not compiled for such an argument */
  TILEWRIGHT_NO_AMX = 4       /* the system does not permit the process to use AMX */
};

/* Runs programs first to last - 1 of a launch. */
typedef void (*tilewright_range)(void *job, int64_t first, int64_t last);

/* Threads that execute a launch. `run` calls range(job, first, last) such that each number from 0
 * to count - 1 is in exactly one range, on any threads and in any order, and returns when all calls
 * have returned. Embed this structure at the start of a larger one for data of your own. A launch
 * without workers (NULL) runs on the calling thread. */
typedef struct tilewright_workers tilewright_workers;
struct tilewright_workers {
  void (*run)(const tilewright_workers *workers, int64_t count, tilewright_range range, void *job);
};

#endif
"""


def export(
    machine: Machine, stages: Mapping[str, Stage], metadata: Mapping[str, Any], request: Export
) -> dict[str, bytes]:
    """The files of a launch function: ``.h`` and ``.o``.

    Raises:
        ExportError: the kernel prints or checks assertions, which is implemented in Python.
    """
    if metadata["host_calls"]:
        raise ExportError(
            f"{request.kernel} prints or asserts, which on the CPU is done by Python: compile it "
            "without debug=True and without device_print"
        )
    llir = str(stages["llir"])
    symbol = request.symbol if request.grid is None else f"{request.symbol}_on_grid"
    wrapper = _launch_function(symbol, metadata, request, machine, "@llvm.x86.tile" in llir)
    code = emit.object_of([llir, wrapper], symbol, machine)
    return {".h": _header(symbol, request, machine).encode(), ".o": code}


# -- the header -----------------------------------------------------------------------------------


def interface(request: Export) -> Interface:
    """The launch function that programs call."""
    extents = [("int64_t", axis) for axis in AXES] if request.grid is None else []
    return Interface(
        symbol=request.symbol,
        base=request.base,
        algorithm=request.algorithm,
        target=NAME,
        result="int32_t",
        failure="TILEWRIGHT_BROKEN_HINT",
        parameters=((_WORKERS, "workers"), *extents, *_arguments(request)),
        hints={p.name: p.hint for p in request.parameters if p.hint},
    )


def _arguments(request: Export) -> list[tuple[str, str]]:
    return [(p.pointer if p.is_pointer else p.scalar, p.name) for p in request.parameters]


def _header(symbol: str, request: Export, machine: Machine) -> str:
    face = interface(request)
    extents = [("int64_t", axis) for axis in AXES]
    in_object = listed([(_WORKERS, "workers"), *extents, *_arguments(request)])
    lines = [
        f"/* {request.kernel}, compiled for {machine.cpu} ({machine.triple}); the code is in the",
        " * object file of the same name.",
        " *",
        *promises(request),
        " */",
        face.directive,
        "#include <stdint.h>",
        _TYPES,
        LINKAGE_BEGIN,
        "",
        "/* Runs the programs of a grid. Returns TILEWRIGHT_OK or an error. */",
        f"int32_t {symbol}({in_object});",
        "",
    ]
    if request.grid is not None:
        names = ", ".join(["workers", *AXES, *(p.name for p in request.parameters)])
        lines += [
            "/* The same, with the grid computed from the arguments. */",
            f"static inline int32_t {request.symbol}({listed(face.parameters)}) {{",
            *(f"  const {line}" for line in grid_lines(request)),
            f"  return {symbol}({names});",
            "}",
            "",
        ]
    return guarded(request.symbol, "\n".join([*lines, LINKAGE_END]))


# -- the launch function --------------------------------------------------------------------------


def _launch_function(
    symbol: str, metadata: Mapping[str, Any], request: Export, machine: Machine, tiles: bool
) -> str:
    """LLVM IR of the function that launches, and of the one that runs a range of programs."""
    module = Module(symbol)
    run_range = f"{symbol}.range"
    _range_function(module, run_range, metadata["name"], metadata["scratch_bytes"])
    types = [PTR, I64, I64, I64, *(_c_type(p) for p in request.parameters)]
    function = module.function(symbol, I32, [(t, "") for t in types], attributes="nounwind")
    b = Builder(function, has_fma=machine.has_fma)
    if not machine.converts_fp16:
        b.own_cast = cast_fp16
    workers, *extents = function.params[:4]
    arguments = function.params[4:]
    for parameter, argument in zip(request.parameters, arguments, strict=True):
        if parameter.hint:
            _leave_if(b, _breaks(b, parameter, argument), BROKEN_HINT)
    total = _programs(b, extents)
    if tiles:
        _leave_if(b, _amx_denied(b), NO_TILES)
    slots = b.alloca(array(I64, max(1, len(request.passed))), 1, SLOT)
    taken = [(p, a) for p, a in zip(request.parameters, arguments, strict=True) if p.passed]
    for i, (parameter, argument) in enumerate(taken):
        b.store(_slot_value(b, parameter, argument), b.gep(I64, slots, i))
    job = b.alloca(array(I8, _JOB_BYTES), 1, SLOT)
    b.store(slots, b.gep(I8, job, _SLOTS))
    for i, extent in enumerate(extents):
        b.store(b.trunc(extent, I32), b.gep(I8, job, _GRID + 4 * i))
    b.store(const(I32, OK), b.gep(I8, job, _STATUS))
    alone, shared, done = b.block("alone"), b.block("shared"), b.block("done")
    one_thread = b.icmp("eq", b.ptrtoint(workers), 0)
    b.cond_br(const(I1, 1) if metadata.get("single_threaded") else one_thread, alone, shared)
    b.at(alone)
    b.call(run_range, VOID, [job, const(I64, 0), total])
    b.br(done)
    b.at(shared)
    run = b.load(PTR, b.gep(I8, workers, _RUN))
    b.call(run, VOID, [workers, total, V(f"@{run_range}", PTR), job])
    b.br(done)
    b.at(done)
    b.ret(b.load_atomic(I32, b.gep(I8, job, _STATUS), "acquire"))
    return module.text()


def _c_type(parameter: Parameter) -> LType:
    """The LLVM type of the C parameter."""
    if parameter.is_pointer:
        return PTR
    return memory_type(FP32 if parameter.is_narrow else scalar_type(parameter.type))


def _slot_value(b: Builder, parameter: Parameter, value: V) -> V:
    """The value to store in the parameter's slot."""
    return cast(b, value, FP32, scalar_type(parameter.type)) if parameter.is_narrow else value


def _breaks(b: Builder, parameter: Parameter, value: V) -> V:
    """Whether an argument violates its hint."""
    number = b.ptrtoint(value) if parameter.is_pointer else value
    if parameter.hint == ONE:
        return b.icmp("ne", number, 1)
    return b.icmp("ne", b.and_(number, parameter.hint - 1), 0)


def _leave_if(b: Builder, condition: V, status: int) -> None:
    leave, stay = b.block("leave"), b.block("stay")
    b.cond_br(condition, leave, stay)
    b.at(leave)
    b.ret(const(I32, status))
    b.at(stay)


def _programs(b: Builder, extents: list[V]) -> V:
    """The number of programs of a grid. Emits returns for an empty and for an invalid grid."""
    for extent in extents:
        _leave_if(b, b.icmp("ugt", extent, (1 << 31) - 1), BAD_GRID)
    x, y, z = extents
    plane = b.mul(x, y)
    nothing = b.icmp("eq", b.and_(b.icmp("ne", plane, 0), b.icmp("ne", z, 0)), 0)
    _leave_if(b, nothing, OK)
    _leave_if(b, b.icmp("ugt", plane, b.udiv(const(I64, (1 << 63) - 1), z)), BAD_GRID)
    return b.mul(plane, z)


def _amx_denied(b: Builder) -> V:
    """Whether Linux denies the process the use of AMX (arch_prctl), which it must request."""
    status = b.inline_asm(
        "syscall",
        "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}",
        I64,
        [const(I64, number) for number in REQUEST],
        side_effects=True,
    )
    return b.icmp("ne", status, 0)


def _range_function(module: Module, name: str, kernel: str, scratch_bytes: int) -> None:
    """Emit the function that executes a range of programs, with its own workspace."""
    params = [(PTR, ""), (I64, ""), (I64, "")]
    function = module.function(name, VOID, params, attributes="nounwind", linkage="internal")
    job, first, last = function.params
    b = Builder(function)
    memory = V("null", PTR)
    scratch = memory
    if scratch_bytes:
        memory = b.call("malloc", PTR, [const(I64, scratch_bytes + ALIGNMENT - 1)])
        without, runs = b.block("without"), b.block("runs")
        b.cond_br(b.icmp("eq", b.ptrtoint(memory), 0), without, runs)
        b.at(without)
        b.store_atomic(const(I32, NO_MEMORY), b.gep(I8, job, _STATUS), "release")
        b.ret()
        b.at(runs)
        address = b.and_(b.add(b.ptrtoint(memory), ALIGNMENT - 1), -ALIGNMENT)
        scratch = b.inttoptr(address)
    slots = b.load(PTR, b.gep(I8, job, _SLOTS))
    b.call(kernel, VOID, [slots, scratch, first, last, b.gep(I8, job, _GRID)])
    if scratch_bytes:
        b.call("free", VOID, [memory])
    b.ret()
