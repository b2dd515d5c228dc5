"""The structures and constants that the native code of a launch shares with Python.

Our own structures consist of 8-byte words: one per field, several for an array or a nested
structure. The structures of CPython, NumPy and CUDA are listed with the offsets of their ABIs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.runtime.kinds import KINDS, MAX_KINDS, Kind, category

WORD: Final = 8
MAX_PARAMS: Final = 64
MAX_OPTIONS: Final = 16
MAX_SLOTS: Final = 192
"""The most slots of a call: one for each parameter, then one for each leaf of its tuples and each
part of its descriptors. A slot's index must be below TO_FP32, see Record.slots."""

GRIDS: Final = 4
GRID_NAMES: Final = 6
"""The most grid functions per kernel whose names are cached, and the most names of each."""

KNOWN_GRIDS: Final = 4
"""The most grids of a substitute that are kept, by the arguments that they were computed from."""

MAX_MAPS: Final = 8
MAX_MAP_WORDS: Final = 16
MAX_MAP_TERMS: Final = 3
"""The most tensor maps of a kernel that native code makes, arguments that they may depend on, and
terms of a sum, each of at most two arguments; Python makes others."""
MAP_SETS: Final = 64
"""For how many different arguments a kernel's tensor maps are kept."""
MAP_BYTES: Final = 128
MAP_ALIGN: Final = 64

# Limits of cuTensorMapEncodeTiled, in elements and bytes, and a number of the driver's
# CUtensorMapL2promotion.
MAX_RANK: Final = 5
STRIDE_ALIGN: Final = 16
MAX_MAP_EXTENT: Final = 1 << 32
MAX_MAP_STRIDE: Final = 1 << 40
PROMOTE_TO_128_BYTES: Final = 2

MAX_WORDS: Final = 512
MAX_DIMS: Final = 6
"""The most axes of a tensor whose layout is in a key; a launch with others takes the slow path."""
MAX_HELD: Final = 64
MAX_STEPS: Final = 8
MAX_MADE: Final = 32
"""The most kernels of a chain, and the most arguments that its launch makes."""
MADE_SLOT: Final = MAX_SLOTS - MAX_MADE - 1
"""The slot of the memory that a chain's launch allocates; those of these arguments follow."""
OWNERS: Final = 2
"""The words of Record.owners: the threads that launch the kernel in native code, and in Python."""
RECENTS: Final = 4
BUCKETS: Final = 128

FUNCTIONS: Final = {
    "Py_IncRef": "void ptr",
    "Py_DecRef": "void ptr",
    "PyObject_Vectorcall": "ptr ptr ptr i64 ptr",
    "PyObject_GetAttr": "ptr ptr ptr",
    "PyObject_SetAttr": "i32 ptr ptr ptr",
    "PyCallable_Check": "i32 ptr",
    "PyCFunction_NewEx": "ptr ptr ptr ptr",
    "PyErr_Clear": "void",
    "PyErr_Occurred": "ptr",
    "PyEval_SaveThread": "ptr",
    "PyThread_get_thread_ident": "i64",
    "PyEval_RestoreThread": "void ptr",
    "PyMem_RawMalloc": "ptr i64",
    "PyMem_RawFree": "void ptr",
    "PyLong_AsLongLong": "i64 ptr",
    "PyLong_AsLongLongAndOverflow": "i64 ptr ptr",
    "PyLong_AsUnsignedLongLong": "i64 ptr",
    "PyLong_AsVoidPtr": "ptr ptr",
    "PyLong_FromLongLong": "ptr i64",
    "PyFloat_AsDouble": "double ptr",
    "PyType_GetFlags": "i64 ptr",
    "PyBytes_FromStringAndSize": "ptr ptr i64",
    "PyTuple_New": "ptr i64",
    "PyTuple_SetItem": "i32 ptr i64 ptr",
    "PyList_GetItem": "ptr ptr i64",
    "PyList_SetItem": "i32 ptr i64 ptr",
    "PyCFunction_GetSelf": "ptr ptr",
    "PyFunction_GetCode": "ptr ptr",
    "PyFunction_GetClosure": "ptr ptr",
    "PyFunction_GetDefaults": "ptr ptr",
    "PyFunction_GetKwDefaults": "ptr ptr",
    "PySequence_Size": "i64 ptr",
    "PySequence_GetItem": "ptr ptr i64",
    "PyDict_Copy": "ptr ptr",
    "PyDict_GetItemWithError": "ptr ptr ptr",
    "PyDict_SetItem": "i32 ptr ptr ptr",
    "PyDict_Size": "i64 ptr",
    "PyDict_Next": "i32 ptr ptr ptr ptr",
    "PyDict_New": "ptr",
}
"""Python's C functions that the code calls, with the types of the result and the arguments. All
but the PyFunction_* are part of the stable ABI (3.12)."""

TORCH_FUNCTIONS: Final = (
    *("torch_get_device_type", "torch_get_device_index", "torch_get_dtype"),
    *("torch_get_data_ptr", "torch_get_storage_size", "torch_get_storage_offset"),
)
"""torch's C functions that the code calls, without the prefix `aoti_`."""

TORCH_LAYOUT: Final = ("torch_get_dim", "torch_get_sizes", "torch_get_strides")
"""Likewise, of layouts; old releases lack some of them, and then all are 0."""

TORCH_DTYPES: Final = 128
"""An upper bound of torch's enum ScalarType."""

CONSTANT_TYPES: Final = 3
"""The number of types whose values are compared by address as compile-time values."""


class Field(NamedTuple):
    """A field's offset in bytes, and its type (of an array: its element type): ``"ptr"``,
    ``"i64"``, ``"i32"``, or the name of a structure."""

    offset: int
    type: str


def _packed(*groups: tuple[str, str]) -> dict[str, Field]:
    """Lay out fields consecutively; each group is a type (``"i64*4"`` for arrays) and the names of
    the fields that have it."""
    fields: dict[str, Field] = {}
    at = 0
    for type, names in groups:
        element, _, count = type.partition("*")
        words = SIZES.get(element, WORD) // WORD * int(count or 1)
        for name in names.split():
            fields[name] = Field(at, element)
            at += words * WORD
    return {**fields, "size": Field(at, "")}


def _own() -> dict[str, dict[str, Field]]:
    """Lay out our structures; nested ones must precede those that contain them."""
    made: dict[str, dict[str, Field]] = {}
    for name, groups in _STRUCTURES.items():
        made[name] = _packed(*groups)
        SIZES[name] = made[name]["size"].offset
    return made


SIZES: dict[str, int] = {}
"""Sizes of our structures, in bytes."""

_FUNCTION_NAMES = " ".join(FUNCTIONS)
_STRUCTURES: dict[str, tuple[tuple[str, str], ...]] = {
    # `key` is that of the argument in a mapping. Of a mapping, `low` is the index of the first
    # parameter that takes an item, `high` the number of items.
    "Param": (
        ("ptr", "keyword name default key"),
        ("i64", "flags low high"),
    ),
    "Global": (("ptr", "scope name object"),),
    "Guard": (("ptr", "word globals"), ("i64", "value count")),
    "Grid": (("ptr", "code"), ("i64", "count"), (f"i64*{GRID_NAMES}", "numbers")),
    "Stage": (("i64", "kind"), ("ptr", "owner configs chosen note values")),
    "Knob": (("ptr", "group overrides name variable other_variable"),),
    "Recent": (("ptr", "entry words"), ("i64", "count"), ("ptr", "record")),
    "Job": (
        ("ptr", "function args"),
        ("i64", "x y z begin"),
        ("ptr", "scratch"),
        ("i64", "scratch_bytes workers ticket"),
    ),
    "Compiled": (
        ("ptr", "record"),
        ("i64", "device"),
        # Of a substitute: of each argument, the index of its parameter; and grids by numbers.
        ("ptr", "positions keyword"),
        ("i64", "given keeps_gil"),
        (f"ptr*{KNOWN_GRIDS}", "grids"),
    ),
    "Bound": (("ptr", "record slots"), ("i64", "debug slot_count"), ("i64*3", "grid")),
    "Runtime": (  # one per process
        ("ptr", _FUNCTION_NAMES),
        ("ptr", " ".join((*TORCH_FUNCTIONS, *TORCH_LAYOUT))),
        ("ptr", "none true false int float bool tuple dict ndarray function constexpr"),
        (
            "ptr",
            "home native_readers element_numbers device_numbers extents_of environ launch_hooks",
        ),
        (
            "ptr",
            "base_name shape_name strides_name block_shape_name padding_name round_name zero nan",
        ),
        ("ptr", "best_config_name value_name launch_method freeze_method"),
        ("ptr", "enter_chain exit_chain"),
        ("ptr", "pool pool_workers pool_launch pool_help pool_cancel resume torch_threads"),
        ("i64", "slice cuda_usable torch_offset"),
        (f"ptr*{MAX_KINDS}", "kind_types kinds_met kind_attributes"),
        (f"ptr*{CONSTANT_TYPES}", "constant_types"),
        ("Param", "leaf"),
        ("Knob", "debug cpu_threads"),
        ("i64*64", "element_bytes"),
        (f"i64*{2 * BUCKETS}", "elements dlpack_elements"),
        (f"i64*{TORCH_DTYPES}", "torch_elements"),
    ),
    "State": (  # one per kernel
        ("ptr", "runtime params keywords names fallback warm adopt hooks entries spare"),
        ("ptr", "globals guards stages grids note_grid"),
        ("i64", "count positional mapping_count turn global_count guard_count stage_count"),
        (f"Recent*{RECENTS}", "recents"),
        (f"ptr*{MAX_PARAMS}", "numbers"),  # the values in the dict `names`, by parameter
    ),
    "MapSet": ((f"i64*{MAX_MAP_WORDS}", "words"), ("i64", "filled")),
    "MapTerm": (("i64", "factor left right"),),  # indices of arguments; negative for none
    "MapSum": (("i64", "count"), (f"MapTerm*{MAX_MAP_TERMS}", "terms")),
    "MapPlan": (  # one per tensor map of a kernel
        ("i64", "base type rank element_bytes swizzle"),
        ("i64*3", "box ones"),  # 32-bit numbers
        (f"MapSum*{2 * MAX_RANK}", "sums"),  # offset, extents, strides but that of axis 0
    ),
    "Step": (("ptr", "record"), ("i64*3", "grid")),  # one per kernel of a chain
    "Chain": (  # one per variant that is several kernels
        ("ptr", "prepare"),
        ("i64", "step_count cleared_count made_count"),
        (f"Step*{MAX_STEPS}", "steps"),
        (f"i64*{MAX_PARAMS}", "cleared"),  # indices of the parameters that `prepare` gets
        (f"i64*{MAX_MADE}", "made in_memory"),  # numbers; if all bits of the other are set, offsets
    ),
    "Record": (  # one per compiled variant
        ("i64", "kind count threads cores scratch"),
        ("ptr", "kernel function chain"),
        ("ptr", "owners failures raise_first"),  # of a kernel that calls Python; see `host_calls`
        ("i64", "shared spare spare_blocks packed packed_above ctas attribute_count"),
        ("i64", "looped_axes most_blocks"),
        ("i64", "device_number"),
        ("ptr", "attributes context get_current launch work_stream stream_of device_index"),
        ("ptr", "last_kernel name raise_error map_sets map_room map_plans map_encode"),
        ("i64", "map_count map_word_count"),
        (f"i64*{MAX_MAP_WORDS}", "map_arguments"),
        (f"i64*{MAX_SLOTS}", "slots"),
    ),
    "XlaRuntime": (  # one per process
        ("ptr", "table prepare error_message pool pool_launch pool_help get_current"),
        ("i64", "major minor slice"),
    ),
    "XlaKernel": (  # one per compiled variant; of a GPU's, one per device
        ("ptr", "function launch attributes"),
        ("i64", "workers scratch scratch_align threads shared ctas attribute_count"),
    ),
    "Frame": (  # one per call, on the stack
        (f"ptr*{MAX_PARAMS}", "values"),
        (f"i64*{MAX_PARAMS}", "lows highs"),
        (f"i64*{MAX_SLOTS}", "slots packed"),
        (f"ptr*{MAX_SLOTS}", "pointers"),
        (f"i64*{MAX_WORDS}", "words"),
        (f"ptr*{MAX_WORDS}", "objects"),
        (f"ptr*{2 * MAX_OPTIONS}", "options"),
        (f"ptr*{MAX_HELD}", "held"),
        ("i64", "word_count object_count option_count tensor_count device slot_count held_count"),
        ("i64", "read_params read_options any_stream keeps_gil"),
        ("ptr", "stream"),
        ("ptr", "args kwnames given_grid recent stage grid_object"),
        ("i64", "nargs"),
        ("i64*3", "grid"),
        ("Job", "job"),
        ("i64*7", "config"),
        (f"i64*{MAX_RANK}", "map_extents map_strides"),
        (f"i64*{(MAX_MAPS * MAP_BYTES + MAP_ALIGN) // WORD}", "maps"),
    ),
}

_HEAD = object.__basicsize__

TORCH_OFFSETS: Final = (_HEAD, _HEAD + WORD)
"""Offsets at which a torch tensor's Python object may have the C++ tensor: the first field, or the
second, after a flag, in older releases."""

FIELDS: Final[dict[str, dict[str, Field]]] = {
    **_own(),
    # Objects of CPython; `runtime.py` checks these offsets before the code is used.
    "Object": {"references": Field(0, "i32"), "type": Field(_HEAD - WORD, "ptr")},
    # A list has its size at the same offset.
    "Tuple": {"size": Field(_HEAD, "i64"), "items": Field(tuple.__basicsize__, "ptr")},
    # The basic size includes the terminating zero.
    "Bytes": {"data": Field(bytes.__basicsize__ - 1, "ptr")},
    "Cell": {"object": Field(_HEAD, "ptr")},
    "Dict": {"version": Field(_HEAD + WORD, "i64")},  # `guard_tables.py` detects whether it has one
    # PyArrayObject_fields of NumPy's ABI (ndarraytypes.h), also checked by `runtime.py`.
    "Array": {
        "data": Field(_HEAD, "i64"),
        "nd": Field(_HEAD + 8, "i32"),
        "dims": Field(_HEAD + 16, "ptr"),
        "strides": Field(_HEAD + 24, "ptr"),
        "base": Field(_HEAD + 32, "ptr"),
        "descr": Field(_HEAD + 40, "i64"),
        "flags": Field(_HEAD + 48, "i32"),
    },
    # The result of a C function that reads a tensor; see `launchers/functions.py`.
    "Reading": {
        "address": Field(0, "i64"),
        "low": Field(8, "i64"),
        "high": Field(16, "i64"),
        "dtype": Field(24, "i32"),
        "read_only": Field(28, "i32"),
    },
    # CUlaunchConfig of cuda.h.
    "LaunchConfig": {
        "grid": Field(0, "i32"),
        "block": Field(12, "i32"),
        "shared": Field(24, "i32"),
        "stream": Field(32, "ptr"),
        "attributes": Field(40, "ptr"),
        "attribute_count": Field(48, "i32"),
    },
    # xla/ffi/api/c_api.h, versions 0.x. The fields of nested structures are listed flat.
    "XlaFrame": {  # XLA_FFI_CallFrame
        "size": Field(0, "i64"),
        "extension": Field(8, "ptr"),
        "api": Field(16, "ptr"),
        "context": Field(24, "ptr"),
        "stage": Field(32, "i32"),
        "argument_count": Field(56, "i64"),
        "arguments": Field(72, "ptr"),
        "result_count": Field(96, "i64"),
        "results": Field(112, "ptr"),
        "attribute_count": Field(136, "i64"),
        "attributes": Field(160, "ptr"),
    },
    "XlaBuffer": {
        "element": Field(16, "i32"),
        "data": Field(24, "i64"),
        "rank": Field(32, "i64"),
        "dims": Field(40, "ptr"),
    },
    "XlaArray": {"element": Field(0, "i32"), "count": Field(8, "i64"), "data": Field(16, "ptr")},
    "XlaApi": {
        "size": Field(0, "i64"),
        "error_create": Field(48, "ptr"),
        "stream_get": Field(80, "ptr"),
        "allocate": Field(120, "ptr"),
        "free": Field(128, "ptr"),
    },
    "XlaExtension": {
        "type": Field(8, "i32"),
        "next": Field(16, "ptr"),
        "metadata": Field(24, "ptr"),
    },
    "XlaMetadata": {"major": Field(24, "i32"), "minor": Field(28, "i32")},
    "XlaError": {  # XLA_FFI_Error_Create_Args
        "size": Field(0, "i64"),
        "extension": Field(8, "ptr"),
        "message": Field(16, "ptr"),
        "code": Field(24, "i32"),
    },
    "XlaStream": {  # XLA_FFI_Stream_Get_Args
        "size": Field(0, "i64"),
        "extension": Field(8, "ptr"),
        "context": Field(16, "ptr"),
        "stream": Field(24, "ptr"),
    },
    "XlaAllocation": {  # XLA_FFI_DeviceMemory_Allocate_Args
        "size": Field(0, "i64"),
        "extension": Field(8, "ptr"),
        "context": Field(16, "ptr"),
        "bytes": Field(24, "i64"),
        "align": Field(32, "i64"),
        "data": Field(40, "ptr"),
    },
    "XlaRelease": {  # XLA_FFI_DeviceMemory_Free_Args
        "size": Field(0, "i64"),
        "extension": Field(8, "ptr"),
        "context": Field(16, "ptr"),
        "bytes": Field(24, "i64"),
        "data": Field(32, "ptr"),
    },
}
"""The fields of each structure."""

# Param.flags.
IS_CONSTEXPR: Final = 1
BY_VALUE: Final = 2
BY_ALIGNMENT: Final = 4
BY_EVERY_VALUE: Final = 8
"""The whole value is part of the launch's key, as for parameters in the key of an autotuner."""
TAKES_WIDE: Final = 16
"""The parameter accepts ints from 2**63 to 2**64 - 1."""
BY_LAYOUT: Final = 32
"""The shape and strides of the tensor are part of the launch's key."""
ONLY_ADDRESS: Final = 64
"""Of a tensor, only the address is read: the caller vouches for its type and device."""
BY_INTEGER: Final = 128
"""The value of an int or a bool is part of the launch's key."""

BY: Final = {"by_value": BY_VALUE, "by_alignment": BY_ALIGNMENT}
"""Flags by the field of `Mode` that enables specialisation on a fact."""

_FIRST_KIND = 8  # the bits below are flags of their own


def takes(kind: Kind) -> int:
    """The flag of parameters that accept arguments of a kind."""
    return 1 << _FIRST_KIND + KINDS.index(kind)


def kind_flags(annotation: str) -> int:
    """The `takes` flags of a parameter with an annotation; ``""`` for one without annotation."""
    return sum(takes(k) for k in KINDS if not annotation or category(annotation) in k.annotated)


LEAF: Final = BY_VALUE | BY_ALIGNMENT | TAKES_WIDE
"""Flags of the items of a tuple, together with `kind_flags("")`."""

MAX_LOOPED: Final = (1 << 31) - 1
"""The most programs of a launch whose blocks loop over them: a block counts them in 32 bits."""

TO_FP32: Final = 256
"""A flag in Record.slots, in addition to the slot's index: convert fp64 to fp32."""

ALL_NAMES: Final = -1
"""A value of Grid.count: the function may read any argument."""

CPU: Final = 0
CUDA: Final = 1
FUNCTION: Final = 2
CHAIN: Final = 3
"""Values of Record.kind: how a variant is started; FUNCTION: by a C function of its driver; CHAIN:
it is the kernels of Record.chain, one after the other."""

NO_DEVICE: Final = -1
"""A value of Frame.device, which otherwise has the device's number: CPU for the CPU, 1 + index for
CUDA devices."""

COMPUTE: Final = 0
TUNE: Final = 1
"""Values of Stage.kind."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

HASH_FACTOR: Final = 0x9E3779B97F4A7C15  # 2**64 / golden ratio (Fibonacci hashing, Knuth 6.4)
HASH_SHIFT: Final = 64 - BUCKETS.bit_length() + 1


# Words of a key: the lowest byte is one of these tags, the bits above it are what the variant
# depends on (element type, facts, device). So equal keys imply equal specialisations.
TENSOR, INT, FLOAT, BOOL, NONE, OPTION = 1, 2, 3, 4, 5, 6
CONSTANT_INT, CONSTANT_FLOAT, CONSTANT_OBJECT, CONSTANT_TUPLE, CONSTEXPR = 7, 8, 9, 10, 11
TUPLE, DESCRIPTOR, HOME, PARAMS, CONFIGS, LAYOUT = 12, 13, 14, 15, 16, 17
TAG = 255
TYPE_SHIFT, DEVICE_SHIFT = 8, 32
READ_ONLY, UNKNOWN, NAN, ROUNDS = 1 << 17, 1 << 18, 1 << 19, 1 << 20

# Results of `prepare`, `start_on_device` and `extents`; FAILED: a Python exception is set.
FAILED, READY, FALL_BACK, MISSED = 0, 1, 2, 3
STARTED, NOT_STARTED = 1, 2
SOME, EMPTY = 1, 2

TORCH_CPU, TORCH_CUDA = 0, 1  # c10::DeviceType
DL_CUDA: Final = 2  # of dlpack.h
OWNS_DATA, CONTIGUOUS, WRITEABLE = 0x4, 0x3, 0x400  # NumPy's flags
IS_TUPLE: Final = 1 << 26  # Py_TPFLAGS_TUPLE_SUBCLASS


def bucket_of(key: int) -> int:
    """The bucket at which the search for a key begins."""
    return (key * HASH_FACTOR % (1 << 64)) >> HASH_SHIFT


def table_of(pairs: dict[int, int]) -> list[int]:
    """A hash table with linear probing, as alternating words of key and value; keys are not 0."""
    words = [0] * (2 * BUCKETS)
    assert len(pairs) <= BUCKETS // 2, "the load factor must not exceed one half"
    for key, value in pairs.items():
        at = bucket_of(key)
        while words[2 * at]:
            at = (at + 1) % BUCKETS
        words[2 * at : 2 * at + 2] = key, value
    return words
