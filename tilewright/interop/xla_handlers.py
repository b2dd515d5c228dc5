"""The native handlers that XLA calls to run a kernel: custom calls of the typed FFI.

XLA calls a handler with a call frame (`xla/ffi/api/c_api.h`): the buffers of operands and results,
and the attributes of the call in the program. A call of ours has two attributes, sorted by name:

    "kernel"   the hash of the compiled kernel, a string
    "site"     int64 words: key, grid (3), count of parameters, and for each parameter
               (place, word)

`place` is the index of a buffer, operands before results, possibly with ALIGNED; or IS_WORD, and
the parameter's slot is `word`. If a buffer with ALIGNED is not aligned, such as a slice of another
one, another kernel runs, which is compiled for any address.

`key` is derived from the hash. Attributes contain no addresses, so a compiled program may be stored
and loaded by another process: the kernel is looked up by its key in `XlaRuntime.table`, and the
first call for a key goes to Python (`XlaRuntime.prepare`), which loads the kernel.

A handler holds no GIL and must not raise. It returns null, or an error object made by XLA.
"""

from __future__ import annotations

import platform
from typing import Annotated, TypeAlias

from tilewright.lowering.emit import I8, I32, I64, PTR, VOID, V, const
from tilewright.runtime.native.layout import MAX_SLOTS
from tilewright.runtime.native.routine import UNLIKELY, Ref, Routine, routine, text_of

XlaFrame: TypeAlias = Annotated[Ref, "XlaFrame"]

RUNTIME = "tilewright_xla"
"""The symbol of the structure XlaRuntime."""

IS_WORD = -1
ALIGNED = 1 << 32
"""A flag of a place: the kernel is compiled for an address divisible by 16."""
UNALIGNED = 1
"""The bit of a key in the table for the kernel compiled for buffers at any address."""
KEY, GRID, COUNT, PLACES = 0, 1, 4, 5
"""Where the parts of the attribute "site" are, in words."""

DONE, AGAIN = 0, 1
"""Results of `XlaRuntime.prepare`: it ran the kernel; it has put it into the table. Any other is
the address of an error message."""

FRAME_BYTES = 168  # up to and including the attributes
_ARGUMENTS_OF_ERROR, _OF_STREAM, _OF_ALLOCATION, _OF_RELEASE = 28, 32, 48, 40  # struct_size
_METADATA = 1  # XLA_FFI_Extension_Metadata
_EXECUTE = 3  # XLA_FFI_ExecutionStage_EXECUTE
_INTERNAL = 13  # XLA_FFI_Error_Code_INTERNAL
_LINE = 64  # bytes that scratch memory is aligned to
_DEFAULT_MXCSR = 0x1F80
X86, ARM = ("x86_64", "amd64"), ("aarch64", "arm64")

OTHER_LAYOUT = "XLA's call frame is smaller than in version 0.x of its foreign function interface"
NO_MEMORY = "no memory for the workspace of a kernel"


@routine(PTR, entry=True)
def execute_cpu(r: Routine, frame: XlaFrame) -> None:
    """Runs a kernel on the CPU's thread pool and on this thread."""
    rt = _begin(r, frame)
    site = _site(r, frame)
    packed, unaligned = _pack(r, frame, site)
    kernel = _kernel(r, rt, frame, site, unaligned)
    saved = _default_float_modes(r)
    bytes = kernel["scratch"]
    block = r.alloca(PTR)
    r.store(const(PTR, 0), block)
    with r.when(r.ne(bytes, 0)):
        failed = r.call("posix_memalign", I32, [block, const(I64, _LINE), bytes])
        with r.when(r.ne(failed, 0), UNLIKELY):
            _restore_float_modes(r, saved)
            r.ret(_error(r, frame, _text(r, NO_MEMORY)))
    scratch = r.load(PTR, block)
    _run_on_pool(r, rt, kernel, site, packed, scratch)
    with r.when(r.ne(bytes, 0)):
        r.call("free", VOID, [scratch])
    _restore_float_modes(r, saved)
    r.ret(0)


@routine(PTR, entry=True)
def execute_cuda(r: Routine, frame: XlaFrame) -> None:
    """Launches a kernel on the stream of the call, asynchronously."""
    rt = _begin(r, frame)
    site = _site(r, frame)
    current = r.alloca(I64)
    r.store(const(I64, 0), current)
    failed = r.call(rt["get_current"], I32, [current])
    with r.when(r.ne(failed, 0), UNLIKELY):
        _return_error(r, rt, frame, failed)
    packed, unaligned = _pack(r, frame, site)
    # A kernel is loaded once for each device: the context is part of the key.
    kernel = _kernel(r, rt, frame, site, r.xor(r.load(I64, current), unaligned))
    stream = _stream(r, frame)
    count, room = _word(r, site, COUNT), r.alloca(PTR, MAX_SLOTS + 1)
    with r.loop(0, r.add(count, 1)) as loop:
        r.store(r.gep(I64, packed, loop.index), r.gep(PTR, room, loop.index))
    grid = [_word(r, site, GRID + axis) for axis in range(3)]
    bytes = r.mul(r.mul(r.mul(grid[0], grid[1]), grid[2]), kernel["scratch"])
    with r.when(r.ne(bytes, 0)):
        memory = _allocate(r, frame, bytes, kernel["scratch_align"])
        r.store(r.ptrtoint(memory), r.gep(I64, packed, count))
    status = _launch(r, kernel, [r.trunc(n, I32) for n in grid], stream, room)
    with r.when(r.ne(bytes, 0)):  # in the order of the stream: after the kernel
        _release(r, frame, bytes, r.inttoptr(r.load(I64, r.gep(I64, packed, count))))
    with r.when(r.ne(status, 0), UNLIKELY):
        _return_error(r, rt, frame, status)
    r.ret(0)


HANDLERS = {"cpu": execute_cpu, "cuda": execute_cuda}


def handler_text(backend: str) -> str:
    """The LLVM IR of the handler for kernels of a target."""
    return text_of("xla", [HANDLERS[backend]])


# -- the call frame -------------------------------------------------------------------------------


def _begin(r: Routine, frame: Ref) -> Ref:
    """Leave the handler at once unless it is called to run a kernel. Returns the runtime."""
    rt = r.ref("XlaRuntime", r.module.global_variable(RUNTIME, I64, "", 8, linkage="external"))
    extension = r.ref("XlaExtension", frame["extension"])
    none = const(I32, 0)
    kind = r.choose(r.ne(extension.address, 0), lambda: extension["type"], lambda: none)
    with r.when(r.eq(kind, _METADATA), UNLIKELY):
        metadata = r.ref("XlaMetadata", extension["metadata"])
        metadata["major"] = r.trunc(rt["major"], I32)
        metadata["minor"] = r.trunc(rt["minor"], I32)
        r.ret(0)
    with r.when(r.icmp("ult", frame["size"], FRAME_BYTES), UNLIKELY):
        r.ret(_error(r, frame, _text(r, OTHER_LAYOUT)))
    r.require(r.eq(frame["stage"], _EXECUTE))
    return rt


def _site(r: Routine, frame: Ref) -> V:
    """The address of the words of the attribute "site"."""
    return r.ref("XlaArray", r.load(PTR, r.gep(PTR, frame["attributes"], 1)))["data"]


def _word(r: Routine, words: V, index: V | int) -> V:
    return r.load(I64, r.gep(I64, words, index))


def _pack(r: Routine, frame: Ref, site: V) -> tuple[V, V]:
    """The slots of the kernel's parameters; and UNALIGNED if one that the kernel is compiled for as
    divisible by 16 is not, else 0."""
    packed, bits = r.alloca(I64, MAX_SLOTS + 1), r.alloca(I64)
    r.store(const(I64, 0), bits)
    operands = frame["argument_count"]

    def address_of(place: V) -> V:
        number = r.and_(place, ALIGNED - 1)

        def operand() -> V:
            return r.load(PTR, r.gep(PTR, frame["arguments"], number))

        def result() -> V:
            return r.load(PTR, r.gep(PTR, frame["results"], r.sub(number, operands)))

        buffer = r.choose(r.icmp("ult", number, operands), operand, result)
        data = r.ref("XlaBuffer", buffer)["data"]
        checked = r.select(r.has(place, ALIGNED), data, const(I64, 0))
        r.store(r.or_(r.load(I64, bits), checked), bits)
        return data

    with r.loop(0, _word(r, site, COUNT)) as loop:
        at = r.add(r.mul(loop.index, 2), PLACES)
        place = _word(r, site, at)
        word = _word(r, site, r.add(at, 1))
        value = r.choose(r.eq(place, IS_WORD), lambda: word, lambda: address_of(place))
        r.store(value, r.gep(I64, packed, loop.index))
    unaligned = r.select(r.has(r.load(I64, bits), 15), const(I64, UNALIGNED), const(I64, 0))
    return packed, unaligned


def _kernel(r: Routine, rt: Ref, frame: Ref, site: V, variant: V) -> Ref:
    """The kernel of a call, prepared by Python if it is not in the table.

    Args:
        variant: what the key is combined with; see `xla_kernels.table_key`.
    """
    key = r.xor(_word(r, site, KEY), variant)
    found = r.alloca(PTR)
    with r.repeated() as loop:
        r.store(_lookup(r, rt["table"], key), found)
        loop.stop_if(r.ne(r.load(PTR, found), 0))
        saved = _default_float_modes(r)  # Python may run the kernel
        status = r.call(rt["prepare"], I64, [frame.address])
        _restore_float_modes(r, saved)
        with r.when(r.eq(status, DONE)):
            r.ret(0)
        with r.when(r.ne(status, AGAIN)):
            r.ret(_error(r, frame, r.inttoptr(status)))
    return r.ref("XlaKernel", r.load(PTR, found))


def _lookup(r: Routine, table: V, key: V) -> V:
    """The value of a key in a hash table with linear probing; null if it has none. The table's
    first word is its size - 1; then follow pairs of words. At least one key is 0: vacant."""
    mask, found = _word(r, table, 0), r.alloca(PTR)
    with r.repeated(r.and_(key, mask)) as loop:
        at = r.add(r.mul(loop.carried[0], 2), 1)
        other = _word(r, table, at)
        r.store(r.inttoptr(_word(r, table, r.add(at, 1))), found)
        loop.stop_if(r.eq(other, key))
        r.store(const(PTR, 0), found)
        loop.stop_if(r.eq(other, 0))
        loop.following = [r.and_(r.add(loop.carried[0], 1), mask)]
    return r.load(PTR, found)


# -- XLA's functions ------------------------------------------------------------------------------


def _api(r: Routine, frame: Ref) -> Ref:
    return r.ref("XlaApi", frame["api"])


def _text(r: Routine, text: str) -> V:
    return r.module.global_constant("text", I8, [*text.encode(), 0], align=1)


def _arguments(r: Routine, frame: Ref, struct: str, size: int) -> Ref:
    """The argument of a function of XLA."""
    result = r.ref(struct, r.alloca(I64, 6))
    result["size"] = size
    result["extension"] = const(PTR, 0)
    if struct != "XlaError":
        result["context"] = frame["context"]
    return result


def _error(r: Routine, frame: Ref, message: V) -> V:
    """A new XLA_FFI_Error."""
    arguments = _arguments(r, frame, "XlaError", _ARGUMENTS_OF_ERROR)
    arguments["message"] = message
    arguments["code"] = const(I32, _INTERNAL)
    return r.call(_api(r, frame)["error_create"], PTR, [arguments.address])


def _succeed(r: Routine, function: V, given: Ref) -> None:
    """Call a function of XLA; leave the handler with its error if it fails."""
    error = r.call(function, PTR, [given.address])
    with r.when(r.ne(error, 0), UNLIKELY):
        r.ret(error)


def _stream(r: Routine, frame: Ref) -> V:
    arguments = _arguments(r, frame, "XlaStream", _OF_STREAM)
    arguments["stream"] = const(PTR, 0)
    _succeed(r, _api(r, frame)["stream_get"], arguments)
    return arguments["stream"]


def _allocate(r: Routine, frame: Ref, bytes: V, align: V) -> V:
    arguments = _arguments(r, frame, "XlaAllocation", _OF_ALLOCATION)
    arguments["bytes"] = bytes
    arguments["align"] = align
    arguments["data"] = const(PTR, 0)
    _succeed(r, _api(r, frame)["allocate"], arguments)
    return arguments["data"]


def _release(r: Routine, frame: Ref, bytes: V, data: V) -> None:
    arguments = _arguments(r, frame, "XlaRelease", _OF_RELEASE)
    arguments["bytes"] = bytes
    arguments["data"] = data
    _succeed(r, _api(r, frame)["free"], arguments)


# -- running --------------------------------------------------------------------------------------


def _run_on_pool(r: Routine, rt: Ref, kernel: Ref, site: V, packed: V, scratch: V) -> None:
    """Run all programs. See `pool_launch` for the protocol; the ticket of the launch is the address
    of its slots, which is unique among concurrent launches."""
    pool, launch, help, slice = rt["pool"], rt["pool_launch"], rt["pool_help"], rt["slice"]
    x, y, z = (_word(r, site, GRID + axis) for axis in range(3))
    ticket = r.ptrtoint(packed)
    common = (scratch, kernel["scratch"], kernel["workers"], ticket, slice)
    with r.repeated(const(I64, 0)) as loop:
        begin = loop.carried[0]
        call = (pool, kernel["function"], packed, x, y, z, begin, *common)
        left = r.call(launch, I64, call)
        loop.stop_if(r.icmp("sle", left, 0))
        loop.following = [left]
    with r.when(r.ne(left, 0)), r.repeated() as loop:
        more = r.call(help, I64, [pool, ticket, scratch, slice])
        loop.stop_if(r.eq(more, 0))


def _launch(r: Routine, kernel: Ref, grid: list[V], stream: V, parameters: V) -> V:
    """Call the CUDA driver; returns the CUresult."""
    x, y, z = grid
    threads, shared, ctas, count = (
        r.trunc(kernel[field], I32) for field in ("threads", "shared", "ctas", "attribute_count")
    )
    function, call, one, none = kernel["function"], kernel["launch"], const(I32, 1), const(PTR, 0)
    room = r.alloca(I64, 7)

    def plain() -> V:
        shape = (x, y, z, threads, one, one, shared)
        return r.call(call, I32, [function, *shape, stream, parameters, none])

    def extended() -> V:
        config = r.ref("LaunchConfig", room)
        for axis, (blocks, size) in enumerate(((r.mul(x, ctas), threads), (y, one), (z, one))):
            config.put("grid", axis, blocks)
            config.put("block", axis, size)
        config["shared"] = shared
        config["stream"] = stream
        config["attributes"] = kernel["attributes"]
        config["attribute_count"] = count
        return r.call(call, I32, [config.address, function, parameters, none])

    return r.choose(r.eq(count, 0), plain, extended)


def _return_error(r: Routine, rt: Ref, frame: Ref, status: V) -> None:
    """Leave the handler with the error for a status of the CUDA driver."""
    message = r.call(rt["error_message"], PTR, [frame.address, r.sext(status, I64)])
    r.ret(_error(r, frame, message))


# -- the modes of floating-point arithmetic -------------------------------------------------------


def _default_float_modes(r: Routine) -> V:
    """Set the thread's floating-point modes to their defaults, as the pool's threads have them.
    XLA runs programs with subnormals flushed to zero. Returns what `_restore_float_modes` takes."""
    machine = platform.machine().lower()
    saved = r.alloca(I64)
    if machine in X86:
        own = r.alloca(I32)
        r.call("llvm.x86.sse.stmxcsr", VOID, [saved])
        r.store(const(I32, _DEFAULT_MXCSR), own)
        r.call("llvm.x86.sse.ldmxcsr", VOID, [own])
    elif machine in ARM:
        r.store(r.call("llvm.aarch64.get.fpcr", I64, []), saved)
        r.call("llvm.aarch64.set.fpcr", VOID, [const(I64, 0)])
    return saved


def _restore_float_modes(r: Routine, saved: V) -> None:
    machine = platform.machine().lower()
    if machine in X86:
        r.call("llvm.x86.sse.ldmxcsr", VOID, [saved])
    elif machine in ARM:
        r.call("llvm.aarch64.set.fpcr", VOID, [r.load(I64, saved)])
