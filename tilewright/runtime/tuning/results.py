"""What tuning has found: kept on disk, and shipped with programs.

On disk a result is an entry of the kernels' cache, whose key holds all that the times depend on:
the compiler, the kernel's source, the device, the tuning key, the configurations and the settings.

A shipped result (`export_tuning`, `import_tuning`) names the kernel, the kind of device and the
tuning key, and holds for whatever version of the compiler and the kernel: it is the program's
author who vouches for it. A configuration that the kernel no longer has is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.base import knobs
from tilewright.compiler.version import VERSION, compiler_key
from tilewright.runtime.cache import digest, disk_cache

FORMAT = 1
RESULTS_FILE = "autotune.json"


def store_key(
    kernel_key: str, device: str, tuning_key: Sequence[Any], configs: Iterable[Any]
) -> str:
    """What names a result on disk.

    Args:
        kernel_key: hash of the kernel's source and of what it reaches.
        device: the kind of device, and the processor that code is made for.
    """
    settings = sorted((k, str(v)) for k, v in knobs.cache_key_values().items())
    return digest(
        f"autotune {FORMAT}",
        compiler_key(),
        kernel_key,
        device,
        repr(list(tuning_key)),
        repr([str(config) for config in configs]),
        str(settings),
    )


def load(key: str, configs: Sequence[Any]) -> dict[Any, Any] | None:
    """The times of the configurations, as they were found before; None where there are none."""
    files = disk_cache().get(key)
    if files is None:
        return None
    try:
        timings = dict(json.loads(files[RESULTS_FILE])["timings"])
        return {config: _floats(timings[str(config)]) for config in configs}
    except (ValueError, KeyError, TypeError):
        return None  # written by something else; it will be replaced


def save(key: str, name: str, timings: Mapping[Any, Any]) -> None:
    """Keep the times of configurations. Never raises for the disk."""
    content = {"kernel": name, "timings": [[str(c), times] for c, times in timings.items()]}
    disk_cache().put(key, {RESULTS_FILE: json.dumps(content).encode()})


def _floats(times: Any) -> Any:
    return [float(t) for t in times] if isinstance(times, list) else float(times)


# -- shipped results ------------------------------------------------------------------------------

_shipped: dict[tuple[str, str, str], dict[str, Any]] = {}


def entry(name: str, device: str, tuning_key: Sequence[Any], config: Any) -> dict[str, Any]:
    """A result in its shipped form."""
    return {
        "kernel": name,
        "device": device,
        "key": repr(list(tuning_key)),
        "config": str(config),
        "version": VERSION,
    }


def write(path: str | Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write results to a file, in an order of their own, so that equal results are equal files."""
    ordered = sorted(entries, key=lambda e: (e["kernel"], e["device"], e["key"]))
    content = {"format": FORMAT, "results": ordered}
    Path(path).write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def import_tuning(path: str | Path) -> int:
    """Have tuned kernels use the results in a file that `export_tuning` wrote; gives their number.

        tilewright.runtime.import_tuning(Path(__file__).with_name("tuned.json"))

    Raises:
        ValueError: the file holds something else.
    """
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, where {FORMAT} is known")
        results = {(e["kernel"], e["device"], e["key"]): dict(e) for e in content["results"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no tuning results: {error}") from None
    _shipped.update(results)
    return len(results)


def shipped(
    name: str, device: str, tuning_key: Sequence[Any], configs: Iterable[Any]
) -> Any | None:
    """The configuration that an imported result names, one of those given; else None."""
    found = _shipped.get((name, device, repr(list(tuning_key))))
    if found is None:
        return None
    return next((config for config in configs if str(config) == found["config"]), None)


def forget_imported() -> None:
    """Forget what was imported."""
    _shipped.clear()
