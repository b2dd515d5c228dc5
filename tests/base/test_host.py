"""The description of this machine's processor, cached without LLVM, equals LLVM's."""

import json
import os
import platform
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from tests.memory import Memory
from tilewright.base import fact_cache, llvm_library
from tilewright.base import host as module
from tilewright.base.host import Host, host, processor_identity

ARM = """\
processor	: 0
BogoMIPS	: 50.00
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics
CPU implementer	: 0x41
CPU part	: 0xd0c

processor	: 1
BogoMIPS	: 50.00
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics
CPU implementer	: 0x41
CPU part	: 0xd0c
"""


host_facts = llvm_library.host_facts


class CountingMemory(Memory):
    """Counts the queries of LLVM, too."""

    requested = 0

    def ask(self) -> list[str]:
        self.requested += 1
        return host_facts()


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingMemory]:
    made = CountingMemory()
    monkeypatch.setattr(fact_cache, "_store_of", lambda: made)
    monkeypatch.setattr(llvm_library, "host_facts", made.ask)
    host.cache_clear()
    yield made
    host.cache_clear()


def _again() -> Host:
    host.cache_clear()
    return host()


def test_llvm_is_queried_once_for_a_processor(
    memory: CountingMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = llvm.get_host_cpu_features().items()
    on, off = (
        frozenset(name for name, has in features if has is reference) for reference in (True, False)
    )
    expected = Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), on, off)
    assert _again() == _again() == expected
    assert memory.requested == (1 if processor_identity() else 2)
    monkeypatch.setattr(module, "processor_identity", lambda: [[1, 2, 3, 4]])
    assert _again() == _again() == expected
    assert memory.requested == 2  # of another processor
    monkeypatch.setattr(module, "library_state", lambda: ("other.so", 1, 2, 3))
    _again()
    assert memory.requested == 3


def test_unknown_processor_is_queried_each_time(
    memory: CountingMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "processor_identity", lambda: None)
    assert _again() == _again()
    assert memory.requested == 2
    assert memory.kept == {}


def test_vectors_of_sve_have_the_size_that_the_system_tells(
    memory: CountingMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    inherited = 1 << 17  # a flag in the same word

    class System:
        def __init__(self, name: None) -> None:
            pass

        def prctl(self, option: int, *args: int) -> int:
            return inherited | 32 if option == 51 else -1

    processor_identity()  # opens the process's own libraries, which are not replaced
    facts = ["aarch64-unknown-linux-gnu", "neoverse-v1", "+neon"]
    monkeypatch.setattr(module.ctypes, "CDLL", System)
    monkeypatch.setattr(module.sys, "platform", "linux")
    for features, size in ((["+sve"], 32), ([], 0)):
        monkeypatch.setattr(llvm_library, "host_facts", lambda more=features: [*facts, *more])
        memory.kept.clear()
        assert _again().sve_bytes == size


def test_every_core_reports_the_same() -> None:
    """Values that differ between cores, such as their number, would repeat the query of LLVM."""
    reported: list[Any] = []

    def ask(core: int) -> None:
        os.sched_setaffinity(0, {core})  # of this thread alone
        reported.append(processor_identity())

    for core in sorted(os.sched_getaffinity(0))[:16]:
        thread = threading.Thread(target=ask, args=(core,))
        thread.start()
        thread.join()
    assert reported
    assert all(answer == reported[0] for answer in reported)
    assert json.loads(json.dumps(reported[0])) == reported[0]


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(),
    reason="compares what x86-64 says with what Linux says",
)
def test_cpuid_agrees_with_linux() -> None:
    reported = processor_identity()
    assert reported is not None
    leaf0, leaf1 = reported[:2]
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    facts = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    vendor = b"".join(leaf0[i].to_bytes(4, "little") for i in (1, 3, 2))
    assert vendor.decode() == facts["vendor_id"]
    signature = leaf1[0]
    family = (signature >> 8 & 15) + (signature >> 20 & 255 if signature >> 8 & 15 == 15 else 0)
    assert family == int(facts["cpu family"])
    assert signature & 15 == int(facts["stepping"])
    flags = facts["flags"].split()
    assert bool(leaf1[2] >> 28 & 1) == ("avx" in flags)
    assert bool(reported[2][1] >> 16 & 1) == ("avx512f" in flags)
    assert leaf1[1] == 0  # the number of the queried core
    if "avx" in flags:
        assert reported[-1] & 0b110 == 0b110  # the system saves vector registers


def test_lines_of_the_processor_file(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(ARM)
    assert module._processor_file(str(file)) == [
        "CPU implementer\t: 0x41",
        "CPU part\t: 0xd0c",
        "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics",
    ]
    file.write_text("")
    assert module._processor_file(str(file)) is None
    assert module._processor_file(str(tmp_path / "absent")) is None


@pytest.mark.parametrize(
    ("architecture", "more", "expected"),
    [
        ("aarch64", "asimddp asimdfhm sve i8mm bf16", {"dotprod", "fp16fml", "i8mm", "bf16"}),
        ("arm64", "asimddp", {"dotprod"}),
        ("aarch64", "", set[str]()),
        ("armv7l", "asimddp i8mm", set[str]()),
    ],
)
def test_features_of_arm_that_llvm_does_not_read(
    architecture: str,
    more: str,
    expected: set[str],
    memory: CountingMemory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(ARM.replace("atomics", f"atomics {more}"))
    before = _again().features
    lines = module._processor_file(str(file))
    monkeypatch.setattr(module, "processor_identity", lambda: lines)
    monkeypatch.setattr(platform, "machine", lambda: architecture)
    assert _again().features == before | expected
