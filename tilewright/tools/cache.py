"""Maintain the disk cache of compiled kernels and autotuning results.

    python -m tilewright cache list                     list entries, most recently used first
    python -m tilewright cache verify                   check all entries; --remove invalid ones
    python -m tilewright cache clear                    remove all; or some, as `clear --unused 30`
    python -m tilewright cache pack kernels.twpack      write entries to a file, to ship it, except
                                                        facts about this machine
    python -m tilewright cache unpack kernels.twpack    import entries from such a file

`list`, `clear` and `pack` take names of kernels or prefixes of keys to select entries. The folder
is the one given by the settings, or DIR of --dir.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.runtime.cache import DiskCache, disk_cache
from tilewright.runtime.cache_entries import Entry, InvalidEntry, entries, remove
from tilewright.runtime.cache_maintenance import About, contents, describe, faults, pack, unpack
from tilewright.tools.load import UsageError

HELP = "list, verify, clear, pack and unpack the disk cache"

_DAY = 86400.0


class Known(NamedTuple):
    """An entry with a description of its contents; None if they are invalid."""

    entry: Entry
    about: About | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--dir", type=Path, help="the cache's folder")
    file = argparse.ArgumentParser(add_help=False)
    file.add_argument("file", type=Path, metavar="FILE")
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("names", nargs="*", metavar="NAME", help="kernels, or prefixes of keys")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", parents=[common, chosen], help="list the entries")
    listing.add_argument("--json", action="store_true", help="as JSON")
    verify = actions.add_parser("verify", parents=[common], help="check every entry")
    verify.add_argument("--remove", action="store_true", help="remove invalid entries")
    clear = actions.add_parser("clear", parents=[common, chosen], help="remove entries")
    clear.add_argument(
        "--unused", type=float, metavar="DAYS", help="only those not used for so long"
    )
    actions.add_parser("pack", parents=[common, file, chosen], help="write entries to a file")
    actions.add_parser("unpack", parents=[common, file], help="import entries from a file")


def execute(args: argparse.Namespace) -> int:
    cache = DiskCache(args.dir) if args.dir else disk_cache()
    if cache.root is None:
        raise UsageError("the disk cache has no folder: set TILEWRIGHT_CACHE_DIR")
    return _ACTIONS[args.action](cache, args)


def _known(cache: DiskCache) -> list[Known]:
    """All entries, most recently used first."""
    found: list[Known] = []
    for entry in sorted(entries(cache.root), key=lambda entry: (-entry.used, entry.key)):
        try:
            about = describe(contents(entry))
        except FileNotFoundError:
            continue
        except (InvalidEntry, OSError):
            about = None
        found.append(Known(entry, about))
    return found


def _selected(cache: DiskCache, names: Sequence[str]) -> list[Known]:
    """The entries selected by names; all entries if there are none.

    Raises:
        UsageError: a name matches no entry.
    """
    known = _known(cache)
    if not names:
        return known
    chosen: list[Known] = []
    for name in names:
        matching = [k for k in known if _matches(name, k)]
        if not matching:
            raise UsageError(f"no entry in {cache.root} has the name or the key prefix {name!r}")
        chosen += [k for k in matching if k not in chosen]
    return chosen


def _matches(name: str, known: Known) -> bool:
    """Whether `name` is the entry's name or, with at least 4 characters, a prefix of its key."""
    by_key = len(name) >= 4 and known.entry.key.startswith(name)
    return by_key or (known.about is not None and known.about.name == name)


# -- actions --------------------------------------------------------------------------------------


def _list(cache: DiskCache, args: argparse.Namespace) -> int:
    known = _selected(cache, args.names)
    if args.json:
        print(json.dumps({"folder": str(cache.root), "bound": cache.bound,
                          "entries": [_plain(k) for k in known]}, indent=1))  # fmt: skip
        return 0
    now = time.time()
    for entry, about in known:
        shown = about or About("invalid")
        print(
            f"{entry.key[:12]}  {shown.kind:<8}{shown.target:<10}{size_text(entry.size):>10}  "
            f"{_ago(now - entry.used):>10}  {shown.name}".rstrip()
        )
    total = sum(k.entry.size for k in known)
    bound = f" of {size_text(cache.bound)}" if cache.bound else ", unbounded"
    print(f"{_count(len(known))}, {size_text(total)}{bound}, in {cache.root}")
    return 0


def _plain(known: Known) -> dict[str, Any]:
    entry, about = known
    return {
        "key": entry.key,
        "kind": about.kind if about else "invalid",
        "name": about.name if about else "",
        "target": about.target if about else "",
        "size": entry.size,
        "used": entry.used,
    }


def _verify(cache: DiskCache, args: argparse.Namespace) -> int:
    count = sum(1 for _ in entries(cache.root))
    invalid = list(faults(cache))
    for entry, why in invalid:
        print(f"{entry.path}: {why}")
    print(f"{_count(count)}, {len(invalid)} invalid, in {cache.root}")
    if args.remove:
        print(f"{_count(remove(entry for entry, _ in invalid))} removed")
        return 0
    if invalid:
        print("Invalid entries are compiled again on their next use; --remove removes them now.")
    return 1 if invalid else 0


def _clear(cache: DiskCache, args: argparse.Namespace) -> int:
    doomed: Iterable[Entry] = (k.entry for k in _selected(cache, args.names))
    if not args.names:
        doomed = entries(cache.root)  # without reading them: invalid entries too
    if args.unused is not None:
        before = time.time() - args.unused * _DAY
        doomed = (entry for entry in doomed if entry.used < before)
    print(f"{_count(remove(doomed))} removed from {cache.root}")
    return 0


def _pack(cache: DiskCache, args: argparse.Namespace) -> int:
    content, count = pack(
        k.entry for k in _selected(cache, args.names) if k.about and k.about.kind != "fact"
    )
    args.file.write_bytes(content)
    print(f"{_count(count)}, {size_text(len(content))}, in {args.file}")
    return 0


def _unpack(cache: DiskCache, args: argparse.Namespace) -> int:
    try:
        written, there = unpack(cache, args.file.read_bytes())
    except ValueError as error:
        raise UsageError(f"{args.file}: {error}") from None
    print(f"{_count(written)} imported into {cache.root}, {there} were present")
    return 0


_ACTIONS = {"list": _list, "verify": _verify, "clear": _clear, "pack": _pack, "unpack": _unpack}


# -- text -----------------------------------------------------------------------------------------


def _count(number: int) -> str:
    return f"{number} entry" if number == 1 else f"{number} entries"


def size_text(size: float) -> str:
    """A human-readable number of bytes."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _ago(seconds: float) -> str:
    """Approximate age; times have a resolution of one hour."""
    if seconds < 2 * 3600:
        return "now" if seconds < 3600 else "1 h ago"
    hours = seconds / 3600
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:.0f} d ago"
