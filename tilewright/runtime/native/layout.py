"""The structures that the native code of a launch shares with Python, and what its text may say.

A structure is words of eight bytes, one for each field or several for an array; the fields of other
people's structures have their own offsets. `expand.py` puts the numbers into the text.
"""

from __future__ import annotations

from typing import Final

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

FUNCTIONS: Final = (
    *("Py_IncRef", "Py_DecRef", "PyObject_Vectorcall", "PyObject_GetAttr", "PyObject_SetAttr"),
    *("PyCallable_Check", "PyCFunction_NewEx", "PyErr_Clear", "PyErr_Occurred"),
    *("PyEval_SaveThread", "PyEval_RestoreThread", "PyMem_RawMalloc", "PyMem_RawFree"),
    *("PyLong_AsLongLong", "PyLong_AsLongLongAndOverflow", "PyLong_AsUnsignedLongLong"),
    *("PyLong_AsVoidPtr", "PyLong_FromLongLong", "PyFloat_AsDouble", "PyType_GetFlags"),
    *("PyBytes_FromStringAndSize", "PyTuple_New", "PyTuple_Pack", "PyTuple_SetItem", "PyList_Size"),
    *(
        "PyList_GetItem",
        "PyList_SetItem",
        "PyCFunction_GetSelf",
        "PyFunction_GetCode",
        "PyFunction_GetClosure",
        "PyFunction_GetDefaults",
        "PyFunction_GetKwDefaults",
        "PySequence_Size",
        "PySequence_GetItem",
    ),
    *(
        "PyDict_Copy",
        "PyDict_GetItemWithError",
        "PyDict_SetItem",
        "PyDict_Size",
        "PyDict_Next",
        "PyDict_New",
    ),
)
"""Python's C functions that the code calls: of the stable ABI (3.12), but for PyFunction's."""

TORCH_FUNCTIONS: Final = (
    *("torch_get_device_type", "torch_get_device_index", "torch_get_dtype"),
    *("torch_get_data_ptr", "torch_get_storage_size", "torch_get_storage_offset"),
)
"""torch's C functions that the code calls, whose names begin with `aoti_`."""

TORCH_DTYPES: Final = 128
"""torch's numbers of element types are lower."""

CONSTANT_TYPES: Final = 3

# Words for each field of our structures.
_KNOB = {"group": 1, "overrides": 1, "name": 1, "variable": 1, "other_variable": 1}
_KNOB_WORDS = len(_KNOB)
_RUNTIME = {
    **dict.fromkeys(FUNCTIONS, 1),
    **dict.fromkeys(("none", "true", "false", "int", "float", "bool", "tuple", "ndarray"), 1),
    **dict.fromkeys(("function", "float64", "constexpr", "readers", "descriptors", "home"), 1),
    **dict.fromkeys(("element_numbers", "device_numbers"), 1),
    **dict.fromkeys(("base_name", "shape_name", "strides_name", "block_shape_name"), 1),
    **dict.fromkeys(("padding_name", "zero", "nan", "best_config_name"), 1),
    **dict.fromkeys(("torch_tensor", "torch_parameter", "torch_offset", "value_name"), 1),
    **dict.fromkeys(TORCH_FUNCTIONS, 1),
    **dict.fromkeys(("launch_method", "freeze_method", "extents_of", "environ", "cuda_usable"), 1),
    **dict.fromkeys(("pool", "pool_workers", "pool_launch", "pool_help", "pool_cancel"), 1),
    **dict.fromkeys(("resume", "slice", "launch_hooks"), 1),
    "constant_types": CONSTANT_TYPES,
    "leaf": 6,  # a Param
    "debug": _KNOB_WORDS,
    "cpu_threads": _KNOB_WORDS,
    "element_bytes": 64,
    "elements": 2 * BUCKETS,
    "torch_elements": TORCH_DTYPES,
}
_STATE = {
    **dict.fromkeys(("runtime", "count", "positional", "params", "keywords", "names"), 1),
    **dict.fromkeys(("fallback", "warm", "adopt", "hooks", "entries", "turn", "spare"), 1),
    **dict.fromkeys(("global_count", "globals", "stage_count", "stages"), 1),
    **dict.fromkeys(("grids", "note_grid"), 1),
    "recents": 4 * RECENTS,
    "numbers": MAX_PARAMS,  # the values in `names`
}
_RECORD = {
    **dict.fromkeys(("kind", "kernel", "count", "function", "threads"), 1),
    **dict.fromkeys(("all_threads", "scratch"), 1),  # the CPU's
    **dict.fromkeys(("shared", "ctas", "attributes", "attribute_count", "context"), 1),
    **dict.fromkeys(("get_current", "launch", "work_stream", "device_number"), 1),
    **dict.fromkeys(("stream_of", "device_index"), 1),
    **dict.fromkeys(("last_kernel", "name", "refuse"), 1),
    "slots": MAX_SLOTS,
}
_FRAME = {
    "values": MAX_PARAMS,
    "slots": MAX_SLOTS,
    "lows": MAX_PARAMS,
    "highs": MAX_PARAMS,
    "packed": MAX_SLOTS,
    "pointers": MAX_SLOTS,
    "words": MAX_WORDS,
    "objects": MAX_WORDS,
    "options": 2 * MAX_OPTIONS,
    "held": MAX_HELD,
    **dict.fromkeys(("word_count", "object_count", "option_count", "tensor_count", "device"), 1),
    **dict.fromkeys(("slot_count", "held_count", "read_params", "read_options"), 1),
    **dict.fromkeys(("recent", "stage"), 1),
    "grid_object": 1,
    "grid": 3,
    "job": 10,
    "config": 7,
}


def _packed(fields: dict[str, int]) -> dict[str, int]:
    """The offsets of fields that follow each other, and the `size` of them all, in bytes."""
    offsets: dict[str, int] = {}
    at = 0
    for name, words in fields.items():
        offsets[name] = at
        at += words * WORD
    return {**offsets, "size": at}


def _words(*names: str) -> dict[str, int]:
    return _packed(dict.fromkeys(names, 1))


_HEAD = object.__basicsize__

TORCH_OFFSETS: Final = (_HEAD, _HEAD + WORD)
"""Where a torch tensor's object may have the C++ tensor: first, or behind a flag."""


OFFSETS: Final[dict[str, dict[str, int]]] = {
    "Runtime": _packed(_RUNTIME),
    "State": _packed(_STATE),
    "Record": _packed(_RECORD),
    "Frame": _packed(_FRAME),
    "Knob": _packed(_KNOB),
    "Param": _words("keyword", "name", "default", "flags", "low", "high"),
    "Global": _words("scope", "name", "object", "value"),
    "Grid": _packed({"code": 1, "count": 1, "numbers": GRID_NAMES}),
    "Stage": _words("kind", "owner", "configs", "chosen", "note", "values"),
    "Bound": _words(
        *("state", "record", "debug", "grid_x", "grid_y", "grid_z", "slot_count", "slots")
    ),
    "Recent": _words("entry", "words", "count", "record"),
    "Job": _words(
        *("function", "args", "x", "y", "z", "begin", "scratch", "scratch_bytes", "workers"),
        "ticket",
    ),
    # CPython's objects, checked by `runtime.py` before the code is used.
    "Object": {"references": 0, "type": _HEAD - WORD},
    "Tuple": {"size": _HEAD},
    # PyArrayObject_fields of NumPy's ABI (ndarraytypes.h), checked likewise.
    "Array": {
        "data": _HEAD,
        "nd": _HEAD + 8,
        "dims": _HEAD + 16,
        "base": _HEAD + 32,
        "descr": _HEAD + 40,
        "flags": _HEAD + 48,
    },
    # CUlaunchConfig of cuda.h.
    "LaunchConfig": {
        **dict(zip(("grid_x", "grid_y", "grid_z"), (0, 4, 8), strict=True)),
        **dict(zip(("block_x", "block_y", "block_z"), (12, 16, 20), strict=True)),
        "shared": 24,
        "stream": 32,
        "attributes": 40,
        "attribute_count": 48,
    },
}
"""Where each field of each structure is, in bytes; and sizes."""

# What a parameter's flags say.
IS_CONSTEXPR: Final = 1
BY_VALUE: Final = 2
BY_ALIGNMENT: Final = 4
TAKES_TENSOR: Final = 8
TAKES_INT: Final = 16
TAKES_UINT64: Final = 32
TAKES_FLOAT: Final = 64
TAKES_BOOL: Final = 128
TAKES_PARTS: Final = 256
"""Tuples and descriptors."""
BY_EVERY_VALUE: Final = 512
"""The value decides which configuration of a tuned kernel is best."""

LEAF: Final = (
    BY_VALUE | BY_ALIGNMENT | TAKES_TENSOR | TAKES_INT | TAKES_UINT64 | TAKES_FLOAT | TAKES_BOOL
) | TAKES_PARTS
"""What is known of a leaf of a tuple."""

TO_FP32: Final = 256
"""In a step of Record.slots, beside the parameter's number: round to fp32."""

ALL_NAMES: Final = -1
"""In Grid.count: the function may look at any of its arguments."""

CPU: Final = 0
CUDA: Final = 1

COMPUTE: Final = 0
TUNE: Final = 1
"""Kinds of stages."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

_HASH_FACTOR = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: spreads addresses well
_HASH_SHIFT = 64 - BUCKETS.bit_length() + 1

NUMBERS: Final[dict[str, int]] = {
    "TUPLE_ITEMS": tuple.__basicsize__,
    "BYTES_DATA": bytes.__basicsize__ - 1,  # without the zero behind the last byte
    "MAX_OPTIONS": MAX_OPTIONS,
    "RECENTS": RECENTS,
    "GRIDS": GRIDS,
    "ALL_NAMES": ALL_NAMES,
    "BUCKETS": BUCKETS,
    "HASH_FACTOR": _HASH_FACTOR - (1 << 64),
    "HASH_SHIFT": _HASH_SHIFT,
    "CONSTANT_TYPES": CONSTANT_TYPES,
    "IS_CONSTEXPR": IS_CONSTEXPR,
    "BY_VALUE": BY_VALUE,
    "BY_ALIGNMENT": BY_ALIGNMENT,
    "TAKES_TENSOR": TAKES_TENSOR,
    "TAKES_INT": TAKES_INT,
    "TAKES_UINT64": TAKES_UINT64,
    "TAKES_FLOAT": TAKES_FLOAT,
    "TAKES_BOOL": TAKES_BOOL,
    "TAKES_PARTS": TAKES_PARTS,
    "BY_EVERY_VALUE": BY_EVERY_VALUE,
    "LEAF": LEAF,
    "TO_FP32": TO_FP32,
    "MAX_PARAMS": MAX_PARAMS,
    "MAX_SLOTS": MAX_SLOTS,
    "MAX_HELD": MAX_HELD,
    "WORDS_LIMIT": MAX_WORDS - 16,  # what is read at once takes fewer
    # Kinds of words in a key, and what is above the lowest byte.
    "TENSOR": 1,
    "INT": 2,
    "FLOAT": 3,
    "BOOL": 4,
    "NONE": 5,
    "OPTION": 6,
    "CONSTANT_INT": 7,
    "CONSTANT_FLOAT": 8,
    "CONSTANT_OBJECT": 9,
    "CONSTANT_TUPLE": 10,
    "CONSTEXPR": 11,
    "TUPLE": 12,
    "DESCRIPTOR": 13,
    "HOME": 14,
    "PARAMS": 15,
    "CONFIGS": 16,
    "ALIGNED": 1 << 16,
    "READ_ONLY": 1 << 17,
    "UNKNOWN": 1 << 18,
    "NAN": 1 << 19,
    "IS_TUPLE": 1 << 26,  # Py_TPFLAGS_TUPLE_SUBCLASS
    "MAX_RANK": 5,
    "PART_ALIGNMENT": 15,  # of a descriptor's base and strides, less 1
    "TUNE": TUNE,
    # What preparing gives, starting, and reading a grid.
    "READY": 1,
    "UNUSUAL": 2,
    "MISSED": 3,
    "STARTED": 1,
    "LEFT": 2,
    "FAILED": 0,
    "SOME": 1,
    "EMPTY": 2,
    "CPU": CPU,
    "NO_DEVICE": -1,
    "DL_CUDA": 2,  # of dlpack.h
    "TORCH_CPU": 0,
    "TORCH_CUDA": 1,  # c10::DeviceType, likewise
    "TORCH_DTYPES": TORCH_DTYPES,
    "OWNS_DATA": 0x4,
    "CONTIGUOUS": 0x3,
    "WRITEABLE": 0x400,  # NumPy's flags
    "EXTENT_LIMIT": 1 << 31,
    "INT64_MAX": INT64_MAX,
}
"""What $NAME stands for in the code."""


def bucket_of(key: int) -> int:
    """Where the search for a key of a table begins."""
    return (key * _HASH_FACTOR % (1 << 64)) >> _HASH_SHIFT


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
