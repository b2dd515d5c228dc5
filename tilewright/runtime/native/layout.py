"""The structures that the native code of a launch shares with Python, and its constants.

A structure is words of eight bytes, one for each field or several for an array; the fields of other
people's structures have their own offsets.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.runtime.kinds import KINDS, MAX_KINDS, Kind, category

WORD: Final = 8
MAX_PARAMS: Final = 64
MAX_OPTIONS: Final = 16
MAX_SLOTS: Final = 192
"""Of a call: one for each parameter, then one for each leaf of its tuples and each part of its
descriptors. A step of Record.slots has room for their numbers."""

GRIDS: Final = 4
GRID_NAMES: Final = 6
"""How many grid functions a kernel knows the names of, and how many names of each."""

MAX_WORDS: Final = 512
MAX_HELD: Final = 64
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
    "PyList_Size": "i64 ptr",
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
"""Python's C functions that the code calls: result, then arguments. They are of the stable ABI
(3.12), but for PyFunction's."""

TORCH_FUNCTIONS: Final = (
    *("torch_get_device_type", "torch_get_device_index", "torch_get_dtype"),
    *("torch_get_data_ptr", "torch_get_storage_size", "torch_get_storage_offset"),
)
"""torch's C functions that the code calls, whose names begin with `aoti_`."""

TORCH_DTYPES: Final = 128
"""torch's numbers of element types are lower."""

CONSTANT_TYPES: Final = 3
"""How many types of compile-time values are compared by their addresses."""


class Field(NamedTuple):
    """Where a field is, in bytes, and its type, or that of an array's elements: ``"ptr"``,
    ``"i64"``, ``"i32"``, or the name of a structure."""

    offset: int
    type: str


def _packed(*groups: tuple[str, str]) -> dict[str, Field]:
    """Fields that follow each other: a type, ``"i64*4"`` for arrays, and the names that have it."""
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
    """Our structures. Those that others contain come first."""
    made: dict[str, dict[str, Field]] = {}
    for name, groups in _STRUCTURES.items():
        made[name] = _packed(*groups)
        SIZES[name] = made[name]["size"].offset
    return made


SIZES: dict[str, int] = {}
"""Bytes of each of our structures."""

_FUNCTION_NAMES = " ".join(FUNCTIONS)
_STRUCTURES: dict[str, tuple[tuple[str, str], ...]] = {
    "Param": (("ptr", "keyword name default"), ("i64", "flags low high")),
    "Global": (("ptr", "scope name object value"),),
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
    "Bound": (("ptr", "record slots"), ("i64", "debug slot_count"), ("i64*3", "grid")),
    "Runtime": (  # one in a process
        ("ptr", _FUNCTION_NAMES),
        ("ptr", " ".join(TORCH_FUNCTIONS)),
        ("ptr", "none true false int float bool tuple ndarray function constexpr"),
        ("ptr", "home element_numbers device_numbers extents_of environ launch_hooks"),
        ("ptr", "base_name shape_name strides_name block_shape_name padding_name zero nan"),
        ("ptr", "best_config_name value_name launch_method freeze_method"),
        ("ptr", "pool pool_workers pool_launch pool_help pool_cancel resume"),
        ("i64", "slice cuda_usable torch_offset"),
        (f"ptr*{MAX_KINDS}", "kind_types kinds_met kind_attributes"),
        (f"ptr*{CONSTANT_TYPES}", "constant_types"),
        ("Param", "leaf"),
        ("Knob", "debug cpu_threads"),
        ("i64*64", "element_bytes"),
        (f"i64*{2 * BUCKETS}", "elements"),
        (f"i64*{TORCH_DTYPES}", "torch_elements"),
    ),
    "State": (  # one for each kernel
        ("ptr", "runtime params keywords names fallback warm adopt hooks entries spare"),
        ("ptr", "globals stages grids note_grid"),
        ("i64", "count positional turn global_count stage_count"),
        (f"Recent*{RECENTS}", "recents"),
        (f"ptr*{MAX_PARAMS}", "numbers"),  # the values in `names`
    ),
    "Record": (  # one for each compiled variant
        ("i64", "kind count threads all_threads scratch"),
        ("ptr", "kernel function"),
        ("i64", "shared ctas attribute_count device_number"),
        ("ptr", "attributes context get_current launch work_stream stream_of device_index"),
        ("ptr", "last_kernel name refuse"),
        (f"i64*{MAX_SLOTS}", "slots"),
    ),
    "Frame": (  # one for each call, on the stack
        (f"ptr*{MAX_PARAMS}", "values"),
        (f"i64*{MAX_PARAMS}", "lows highs"),
        (f"i64*{MAX_SLOTS}", "slots packed"),
        (f"ptr*{MAX_SLOTS}", "pointers"),
        (f"i64*{MAX_WORDS}", "words"),
        (f"ptr*{MAX_WORDS}", "objects"),
        (f"ptr*{2 * MAX_OPTIONS}", "options"),
        (f"ptr*{MAX_HELD}", "held"),
        ("i64", "word_count object_count option_count tensor_count device slot_count held_count"),
        ("i64", "read_params read_options"),
        ("ptr", "args kwnames given_grid recent stage grid_object"),
        ("i64", "nargs"),
        ("i64*3", "grid"),
        ("Job", "job"),
        ("i64*7", "config"),
    ),
}

_HEAD = object.__basicsize__

TORCH_OFFSETS: Final = (_HEAD, _HEAD + WORD)
"""Where a torch tensor's object may have the C++ tensor: first, or behind a flag."""

FIELDS: Final[dict[str, dict[str, Field]]] = {
    **_own(),
    # CPython's objects, checked by `runtime.py` before the code is used.
    "Object": {"references": Field(0, "i32"), "type": Field(_HEAD - WORD, "ptr")},
    "Tuple": {"size": Field(_HEAD, "i64"), "items": Field(tuple.__basicsize__, "ptr")},
    # Without the zero behind the last byte.
    "Bytes": {"data": Field(bytes.__basicsize__ - 1, "ptr")},
    # PyArrayObject_fields of NumPy's ABI (ndarraytypes.h), checked likewise.
    "Array": {
        "data": Field(_HEAD, "i64"),
        "nd": Field(_HEAD + 8, "i32"),
        "dims": Field(_HEAD + 16, "ptr"),
        "base": Field(_HEAD + 32, "ptr"),
        "descr": Field(_HEAD + 40, "i64"),
        "flags": Field(_HEAD + 48, "i32"),
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
}
"""The fields of each structure."""

# What a parameter's flags say.
IS_CONSTEXPR: Final = 1
BY_VALUE: Final = 2
BY_ALIGNMENT: Final = 4
BY_EVERY_VALUE: Final = 8
"""The value decides which configuration of a tuned kernel is best."""
TAKES_WIDE: Final = 16
"""Ints beyond int64."""

BY: Final = {"by_value": BY_VALUE, "by_alignment": BY_ALIGNMENT}
"""The flag for each field of `Mode` by which a fact counts."""

_FIRST_KIND = 8


def takes(kind: Kind) -> int:
    """The flag of parameters that take arguments of a kind."""
    return 1 << _FIRST_KIND + KINDS.index(kind)


def kind_flags(annotation: str) -> int:
    """Those of all kinds that a parameter of this annotation takes; ``""`` for none."""
    return sum(takes(k) for k in KINDS if not annotation or category(annotation) in k.annotated)


LEAF: Final = BY_VALUE | BY_ALIGNMENT | TAKES_WIDE
"""What is known of a leaf of a tuple, which takes every kind."""

TO_FP32: Final = 256
"""In a step of Record.slots, beside the parameter's number: round to fp32."""

ALL_NAMES: Final = -1
"""In Grid.count: the function may look at any of its arguments."""

CPU: Final = 0
CUDA: Final = 1
FUNCTION: Final = 2
"""In Record.kind: how programs are started; FUNCTION by a C function of a driver's."""

NO_DEVICE: Final = -1
"""In Frame.device, where a device has its number; that of the CPU is CPU's, and that of a CUDA
device its index and 1."""

COMPUTE: Final = 0
TUNE: Final = 1
"""Kinds of stages."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

HASH_FACTOR: Final = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: spreads addresses well
HASH_SHIFT: Final = 64 - BUCKETS.bit_length() + 1

# Words of a key. The lowest byte says what a word is of; above it is what else variants depend on.
TENSOR, INT, FLOAT, BOOL, NONE, OPTION = 1, 2, 3, 4, 5, 6
CONSTANT_INT, CONSTANT_FLOAT, CONSTANT_OBJECT, CONSTANT_TUPLE, CONSTEXPR = 7, 8, 9, 10, 11
TUPLE, DESCRIPTOR, HOME, PARAMS, CONFIGS = 12, 13, 14, 15, 16
TYPE_SHIFT, DEVICE_SHIFT = 8, 32
READ_ONLY, UNKNOWN, NAN = 1 << 17, 1 << 18, 1 << 19

# What preparing a launch gives, starting one, and reading a grid.
FAILED, READY, UNUSUAL, MISSED = 0, 1, 2, 3
STARTED, LEFT = 1, 2
SOME, EMPTY = 1, 2

TORCH_CPU, TORCH_CUDA = 0, 1  # c10::DeviceType
DL_CUDA: Final = 2  # of dlpack.h
OWNS_DATA, CONTIGUOUS, WRITEABLE = 0x4, 0x3, 0x400  # NumPy's flags
IS_TUPLE: Final = 1 << 26  # Py_TPFLAGS_TUPLE_SUBCLASS


def bucket_of(key: int) -> int:
    """Where the search for a key of a table begins."""
    return (key * HASH_FACTOR % (1 << 64)) >> HASH_SHIFT


def table_of(pairs: dict[int, int]) -> list[int]:
    """The words of a table of the code: numbers by keys other than 0, which collide downwards."""
    words = [0] * (2 * BUCKETS)
    assert len(pairs) <= BUCKETS // 2, "a fuller table is slow"
    for key, value in pairs.items():
        at = bucket_of(key)
        while words[2 * at]:
            at = (at + 1) % BUCKETS
        words[2 * at : 2 * at + 2] = key, value
    return words
