"""Results of tuning: the disk cache, and files to ship with programs.

In the disk cache of kernels, the key of a result contains everything that the times depend on: the
compiler, the kernel's source, the device, the tuning key, the configurations and the settings.

A shipped result (`export_tuning`, `import_tuning`) is identified by the kernel's name, the device
model and the tuning key only. It is valid for any version of the compiler and of the kernel, which
is the responsibility of the program's author. Configurations the kernel no longer has are ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.compiler.version import VERSION, compiler_key
from tilewright.runtime.cache import RESULTS_FILE, digest, disk_cache

if TYPE_CHECKING:
    import pathlib
else:
    pathlib = lazy_import("pathlib")

FORMAT = 1


def store_key(
    kernel_key: str, device: str, tuning_key: Sequence[Any], configs: Iterable[Any]
) -> str:
    """The key of a result in the disk cache.

    Args:
        kernel_key: hash of the kernel's source and its dependencies.
        device: the device model and the processor to compile for.
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
    """The stored times of the configurations; None if there are none, or not for all of them."""
    files = disk_cache().get(key)
    if files is None:
        return None
    try:
        timings = dict(json.loads(files[RESULTS_FILE])["timings"])
        return {config: _floats(timings[str(config)]) for config in configs}
    except (ValueError, KeyError, TypeError):
        return None  # malformed, or of other configurations; will be overwritten


def save(key: str, name: str, timings: Mapping[Any, Any]) -> None:
    """Store the times of configurations. Does not raise OSError."""
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


def write(path: str | os.PathLike[str], entries: Iterable[Mapping[str, Any]]) -> None:
    """Write results to a file, sorted, so that equal results yield equal files."""
    ordered = sorted(entries, key=lambda e: (e["kernel"], e["device"], e["key"]))
    content = {"format": FORMAT, "results": ordered}
    pathlib.Path(path).write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def import_tuning(path: str | os.PathLike[str]) -> int:
    """Use the results in a file written by `export_tuning`; returns their number.

        tilewright.runtime.import_tuning(Path(__file__).with_name("tuned.json"))

    Raises:
        ValueError: the file does not contain tuning results.
    """
    try:
        content = json.loads(pathlib.Path(path).read_text("utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, where {FORMAT} is known")
        results = {(e["kernel"], e["device"], e["key"]): dict(e) for e in content["results"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not contain tuning results: {error}") from None
    _shipped.update(results)
    return len(results)


def shipped(
    name: str, device: str, tuning_key: Sequence[Any], configs: Iterable[Any]
) -> Any | None:
    """The configuration of the imported result, if it is among those given; else None."""
    found = _shipped.get((name, device, repr(list(tuning_key))))
    if found is None:
        return None
    return next((config for config in configs if str(config) == found["config"]), None)


def forget_imported() -> None:
    """Discard all imported results."""
    _shipped.clear()
