"""Triton's settings that have no effect here.

`ACCEPTED` are paths of unused tools and options of Triton's compiler: programs may read and set
them. `ABSENT` are settings with an observable effect that is not implemented: programs may read
them, but setting one is an error. Loaded on the first access to a name that `knobs.py` does not
have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

ACCEPTED: Final[dict[str, dict[str, Any]]] = {
    "amd": {
        "buffer_ops_analyze_small_tensor_range": False,
        "dump_amdgcn": False,
        "dump_mir": None,
        "libhip_path": None,
        "lld_path": None,
        "scalarize_packed_fops": False,
        "swap_mir": None,
        "use_async_copy": None,
        "use_block_pingpong": None,
        "use_buffer_atomics": True,
        "use_buffer_ops": True,
        "use_in_thread_transpose": False,
    },
    "build": {"cc": None, "cudacrt_path": None, "cudart_path": None},
    "compilation": {"dump_ir_extract_di_local_variables": False, "use_ir_loc": None},
    "nvidia": {
        "cuobjdump_path": None,
        "dump_nvptx": False,
        "dump_ptxas_log": False,
        "libdevice_path": None,
        "mock_ptx_version": None,
        "ptxas_blackwell_path": None,
    },
    "proton": {
        "cupti_lib_blackwell_dir": None,
        "cupti_lib_dir": None,
        "disable": False,
        "enable_nvtx": True,
        "profile_buffer_size": None,
    },
    "redis": {"host": "localhost", "key_format": "triton:{key}:{filename}", "port": 6379},
}

ABSENT: Final[dict[str, dict[str, Any]]] = {
    "build": {"impl": None},
    "cache": {"remote_manager_class": None},
    "compilation": {
        "enable_asan": False,
        "enable_experimental_consan": False,
        "fpsan_homomorphic_casts": False,
        "instrumentation_mode": "",
    },
    "runtime": {"add_stages_inspection_hook": None},
}


GROUPS: Final = {
    "amd": "Names of the compiler for AMD's GPUs.",
    "build": "Names of what builds C code, which nothing here does.",
    "proton": "Names of a profiler.",
    "redis": "Names of a cache on a server.",
}
"""Descriptions of the groups that only Triton has."""

TOOLS: Final[dict[tuple[str, str], Callable[[], Any]]] = {}
"""Tools by group and name, which are searched for when they are read; `compat` adds them."""


def default(group: str, name: str) -> Any:
    """The default of a setting.

    Raises:
        KeyError: the setting is unknown.
    """
    if (group, name) in TOOLS:
        return TOOLS[group, name]()
    for table in (ACCEPTED, ABSENT):
        if name in table.get(group, ()):
            return table[group][name]
    raise KeyError(name)


def may_be_set(group: str, name: str, value: Any) -> bool:
    """Whether the setting is one of Triton's.

    Raises:
        ValueError: the value is not supported.
    """
    absent = ABSENT.get(group, {})
    if name in absent and value != absent[name]:
        raise ValueError(f"the setting {group}.{name} can't be {value!r}: it is not supported")
    return name in absent or name in ACCEPTED.get(group, ())


def render() -> list[str]:
    """Lines of docs/knobs.md."""
    lines = [
        "",
        "## Triton's settings without effect",
        "",
        "Programs may read and set these; they have no effect.",
        "",
        "| group | names |",
        "|---|---|",
    ]
    lines += [f"| `{g}` | {', '.join(f'`{n}`' for n in names)} |" for g, names in ACCEPTED.items()]
    lines += [
        "",
        "These may be read. Setting one is an error, because they are not implemented.",
        "",
        "| group | names |",
        "|---|---|",
    ]
    lines += [f"| `{g}` | {', '.join(f'`{n}`' for n in names)} |" for g, names in ABSENT.items()]
    return lines
