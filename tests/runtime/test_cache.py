"""The disk cache: entries are valid or rejected, also with damaged files and killed processes."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from tilewright.base import knobs
from tilewright.runtime import cache as cache_module
from tilewright.runtime.cache import DiskCache, digest, disk_cache

ROOT = Path(__file__).parents[2]
KEY = digest("a kernel")
FILES = {"kernel.o": bytes(range(256)) * 40, "kernel.json": b"{}", "empty": b""}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def _entry(cache: DiskCache) -> Path:
    path = cache.path(KEY)
    assert path is not None
    return Path(path)


def _run(program: str, *arguments: object) -> "subprocess.Popen[str]":
    head = "import sys, os, time; from pathlib import Path\n"
    head += "from tilewright.runtime.cache import DiskCache, digest\n"
    command = [sys.executable, "-c", head + program, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_put_then_get_also_from_another_object(root: Path) -> None:
    cache = DiskCache(root)
    assert cache.get(KEY) is None
    cache.put(KEY, FILES)
    assert cache.get(KEY) == FILES
    assert DiskCache(root).get(KEY) == FILES
    cache.put(KEY, {"other": b"1"})
    assert cache.get(KEY) == {"other": b"1"}
    assert list(root.rglob("*.tmp")) == []


def test_digest_distinguishes_parts() -> None:
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", "")}) == 4
    assert digest("é") == digest("é".encode())


def test_without_a_folder_nothing_is_cached_and_all_works() -> None:
    cache = DiskCache(None)
    with cache.compiling(KEY):
        cache.put(KEY, FILES)
        assert cache.get(KEY) is None


@pytest.mark.parametrize("key", ["", "../../../../etc/passwd", "ABCDEF0123456789", "abc"])
def test_keys_other_than_digests_are_rejected(key: str, root: Path) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        DiskCache(root).get(key)


def test_only_the_user_may_read_and_write(root: Path) -> None:
    cache = DiskCache(root)
    before = os.umask(0)
    try:
        cache.put(KEY, FILES)
    finally:
        os.umask(before)
    path = _entry(cache)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert root.stat().st_mode & 0o777 == 0o700


def test_every_truncation_and_changed_byte_is_a_miss_and_is_replaced(root: Path) -> None:
    cache = DiskCache(root)
    small = {"a": b"xyz", "b": b""}
    cache.put(KEY, small)
    path = _entry(cache)
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert cache.get(KEY) is None, end
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert cache.get(KEY) is None, at
    path.write_bytes(whole + b"\0")
    assert cache.get(KEY) is None
    cache.put(KEY, small)
    assert cache.get(KEY) == small


def test_entry_under_another_key_is_a_miss(root: Path) -> None:
    cache = DiskCache(root)
    cache.put(KEY, FILES)
    name = cache.path(digest("another kernel"))
    assert name is not None
    other = Path(name)
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(_entry(cache).read_bytes())
    other.chmod(0o600)
    assert cache.get(digest("another kernel")) is None


def test_entry_of_another_user_is_a_miss(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(root)
    cache.put(KEY, FILES)
    path = _entry(cache)
    for mode in (0o620, 0o602):
        path.chmod(mode)
        assert cache.get(KEY) is None
    path.chmod(0o644)
    assert cache.get(KEY) == FILES
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert cache.get(KEY) is None


def test_link_and_folder_and_pipe_are_misses(root: Path, tmp_path: Path) -> None:
    cache = DiskCache(root)
    cache.put(KEY, FILES)
    path = _entry(cache)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.get(KEY) is None
    path.unlink()
    path.mkdir()
    assert cache.get(KEY) is None
    path.rmdir()
    os.mkfifo(path)
    assert cache.get(KEY) is None  # and does not wait for a writer


def test_folder_that_cannot_be_created_warns_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="TILEWRIGHT_CACHE_DIR"):
        cache.put(KEY, FILES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(KEY, FILES)
        assert cache.get(KEY) is None
        begin = time.monotonic()
        with cache.compiling(KEY):
            pass
        assert time.monotonic() - begin < cache_module.WAIT_SECONDS / 2


def test_full_disk_warns_and_leaves_the_old_entry(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DiskCache(root)
    cache.put(KEY, FILES)

    def full(path: str, content: bytes) -> None:
        Path(path).write_bytes(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module, "_write_private", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.put(KEY, {"new": b""})
    assert cache.get(KEY) == FILES
    assert list(root.rglob("*.tmp")) == []


def test_two_processes_write_and_read_at_once(root: Path) -> None:
    program = """
cache, me = DiskCache(Path(sys.argv[1])), int(sys.argv[2])
keys = [digest(str(i)) for i in range(8)]
misses = 0
for turn in range(150):
    key = keys[turn % 8]
    cache.put(key, {"who": bytes([me]) * 30000})
    found = cache.get(key)
    if found is None or len(set(found["who"])) != 1 or len(found["who"]) != 30000:
        misses += 1
print(misses)
"""
    processes = [_run(program, root, me) for me in (1, 2)]
    for process in processes:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert out.strip() == "0"
    assert list(root.rglob("*.tmp")) == []


def test_writers_killed_midway_leave_only_whole_entries(root: Path) -> None:
    program = """
cache, key = DiskCache(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
while True:
    for value in (1, 2):
        with cache.compiling(key):
            cache.put(key, {"a": bytes([value]) * 200000})
"""
    reader = DiskCache(root)
    seen = 0
    for turn in range(16):
        process = _run(program, root, KEY)
        assert process.stdout is not None
        with process.stdout:
            process.stdout.readline()
            time.sleep(0.003 * (turn % 4))
            process.send_signal(signal.SIGKILL)
            process.wait()
        found = reader.get(KEY)
        if found is not None:
            assert len(set(found["a"])) == 1
            assert len(found["a"]) == 200000
            seen += 1
        # The lock of a killed process does not block others, even where no entry exists.
        _entry(reader).unlink(missing_ok=True)
        begin = time.monotonic()
        with reader.compiling(KEY):
            pass
        assert time.monotonic() - begin < cache_module.WAIT_SECONDS / 2
    assert seen


def test_temporary_files_of_killed_writers_are_removed_eventually(root: Path) -> None:
    cache = DiskCache(root)
    cache.put(KEY, FILES)
    folder = _entry(cache).parent
    old, young = folder / ".x.twc.1.aa.tmp", folder / ".y.twc.1.bb.tmp"
    for path in (old, young):
        path.write_bytes(b"torn")
    os.utime(old, (1, 1))
    cache.put("0" * 64, FILES)  # the keys whose writers sweep the folder are those with low ends
    assert not old.exists()
    assert young.exists()


def test_threads_compile_once(root: Path) -> None:
    cache = DiskCache(root)
    compiled: list[int] = []

    def make() -> None:
        with cache.compiling(KEY):
            if cache.get(KEY) is None:
                time.sleep(0.02)
                compiled.append(1)
                cache.put(KEY, FILES)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == [1]
    assert cache._locks == {}


def test_processes_compile_once(root: Path) -> None:
    program = """
cache, key = DiskCache(Path(sys.argv[1])), sys.argv[2]
with cache.compiling(key):
    if cache.get(key) is None:
        time.sleep(1.0)
        print("compiled")
        cache.put(key, {"a": b"1"})
"""
    processes = [_run(program, root, KEY) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert "".join(outputs).split() == ["compiled"]
    assert list(root.rglob("*.lock")) == []


def test_nested_compilation_does_not_deadlock(root: Path) -> None:
    cache = DiskCache(root)
    begin = time.monotonic()
    with cache.compiling(KEY), cache.compiling(KEY), cache.compiling(digest("other")):
        pass
    assert time.monotonic() - begin < cache_module.WAIT_SECONDS / 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"pid": 0}'])
def test_a_lock_is_never_seen_half_written(content: bytes, root: Path) -> None:
    """A lock file is created atomically, so a partial one has no owner."""
    cache = DiskCache(root)
    cache.put(digest("x"), {})
    with cache.compiling(KEY):
        lock = _entry(cache).with_suffix(".lock")
        assert b'"pid"' in lock.read_bytes()
        assert lock.stat().st_mode & 0o777 == 0o600
        assert list(root.rglob("*.tmp")) == []
    lock.write_bytes(content)
    if content in (b"{}", b'{"pid": 0}', b"[]"):
        os.utime(lock, (1, 1))  # of an unknown machine: only its age is usable
    begin = time.monotonic()
    with cache.compiling(KEY):
        assert time.monotonic() - begin < cache_module.WAIT_SECONDS / 2
    assert not lock.exists()


def test_lock_of_a_living_process_is_waited_for_up_to_a_limit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DiskCache(root)
    cache.put(digest("x"), {})
    monkeypatch.setattr(cache_module, "WAIT_SECONDS", 0.2)
    with cache.compiling(KEY):
        lock = _entry(cache).with_suffix(".lock")
        before = lock.read_bytes()
        begin = time.monotonic()
        with DiskCache(root).compiling(KEY):
            assert time.monotonic() - begin >= 0.2
        assert lock.read_bytes() == before  # it still belongs to the first
    assert not lock.exists()


def test_error_while_compiling_frees_the_key(root: Path) -> None:
    cache = DiskCache(root)
    with pytest.raises(KeyError), cache.compiling(KEY):
        raise KeyError
    assert cache._locks == {}
    assert list(root.rglob("*.lock")) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_a_fork_does_not_wait_for_threads_it_does_not_have(root: Path) -> None:
    cache = DiskCache(None)
    held, finish = threading.Event(), threading.Event()

    def hold() -> None:
        with cache.compiling(KEY):
            held.set()
            finish.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        with cache.compiling(KEY):
            os._exit(0 if time.monotonic() - begin < cache_module.WAIT_SECONDS / 2 else 1)
    _, status = os.waitpid(child, 0)
    finish.set()
    thread.join()
    assert status == 0


def test_shared_cache_follows_the_setting(tmp_path: Path) -> None:
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "one")
        one = disk_cache()
        assert one.root == str(tmp_path / "one")
        assert disk_cache() is one
        knobs.cache.dir = str(tmp_path / "two")
        assert disk_cache().root == str(tmp_path / "two")
