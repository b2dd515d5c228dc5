"""The text of each op: golden texts, which Triton parses if it is installed.

That an op has an emitter is a part of its completeness (`tests/ops/completeness.py`).
"""

from __future__ import annotations

import pytest
from tilewright_triton.client import TritonFailure, client
from tilewright_triton.ttir.print_ttir import print_ttir
from tilewright_triton.ttir.writer import EMITTERS
from tilewright_triton.vendors import VENDORS, vendor_of

from plugins.triton.tests.golden import Case, cases, written
from tilewright.base.diagnostics import CompilationError, Loc
from tilewright.ir.parser import parse_module


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_golden(case: Case) -> None:
    assert written(case) == case.expected


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_triton_accepts(case: Case, triton: str) -> None:
    for arch in (["cuda", "90", 32], ["hip", "gfx942", 64]):
        text = print_ttir(parse_module(case.source, case.name), vendor_of(str(arch[0])))
        client().ask({"what": "verify", "target": arch, "text": text})


def test_triton_rejects_what_is_wrong(triton: str) -> None:
    text = 'module { tt.func @f() { %0 = arith.addi %1, %1 : i32 loc("k.py":7:3) tt.return } }'
    with pytest.raises(TritonFailure, match="undeclared"):
        client().ask({"what": "verify", "target": ["cuda", "90", 32], "text": text})


def test_golden_texts_have_the_ops() -> None:
    text = "\n".join(case.source for case in cases())
    assert not {op.name for op in EMITTERS if f"{op.name} " not in text}


UNSUPPORTED = {
    "no atomics of 8 bits": """func @f(%p: 8xptr<i8>, %v: 8xi8) {
      %w = atomic.rmw %p, %v, _, kind="add", sem="relaxed", scope="gpu"
        : (8xptr<i8>, 8xi8) -> 8xi8
      control.return [] : () -> ()
    }""",
    "compare-and-swap with a mask": """func @f(%p: ptr<i32>, %v: i32, %m: i1) {
      %w = atomic.cas %p, %v, %v, %m, sem="relaxed", scope="gpu"
        : (ptr<i32>, i32, i32, i1) -> i32
      control.return [] : () -> ()
    }""",
    "no loops in functions that combine": """func @f(%v: 8xi32, %n: i32) {
      %m = tile.reduce [%v], axis=0 : 8xi32 -> i32 {
        (%a: i32, %b: i32)
        %r = control.for %a, %b, %b, [%a], num_stages=0, unroll=0, hints=()
          : (i32, i32, i32, i32) -> i32 {
          (%i: i32, %x: i32)
          control.yield [%i] : i32 -> ()
        }
        control.yield [%r] : i32 -> ()
      }
      control.return [] : () -> ()
    }""",
    "extents are not powers of two": """func @f(%v: 8xi32) {
      debug.print [%v], prefix="v", hex=False, extents=((5,),) : 8xi32 -> ()
      control.return [] : () -> ()
    }""",
}


@pytest.mark.parametrize(("message", "text"), UNSUPPORTED.items(), ids=list(UNSUPPORTED))
def test_what_triton_lacks_is_an_error(message: str, text: str) -> None:
    with pytest.raises(CompilationError, match=message):
        print_ttir(parse_module(text, "f"), vendor_of("cuda"))


WAIT = """func @f(%p: ptr<i32>, %v: i32, %t: i64) {
  %w = atomic.poll %p, %v, _, %t, sem="acquire", scope="gpu" : (ptr<i32>, i32, i64) -> i1
  control.return [] : () -> ()
}"""


def test_timeout_is_by_the_clock_of_the_vendor() -> None:
    assert "globaltimer" in print_ttir(parse_module(WAIT, "f"), vendor_of("cuda"))
    with pytest.raises(CompilationError, match="no clock for the timeout"):
        print_ttir(parse_module(WAIT, "f"), vendor_of("hip"))


def test_triton_accepts_a_wait_with_a_timeout(triton: str) -> None:
    text = print_ttir(parse_module(WAIT, "f"), vendor_of("cuda"))
    client().ask({"what": "verify", "target": ["cuda", "90", 32], "text": text})


def test_locations_are_those_of_the_kernel() -> None:
    text = (
        'func @f() { loc("k.py":3:1 in f)\n  control.return [] : () -> () loc("k.py":4:5 in f)\n}\n'
    )
    found = print_ttir(parse_module(text, "f"), vendor_of("cuda"), locations=True)
    assert 'tt.return loc("k.py":4:5)' in found


def test_file_names_are_strings_of_mlir(triton: str) -> None:
    file = 'a "b"\\ñ\n.py'
    fn = parse_module("func @f() {\n  control.return [] : () -> ()\n}\n", "f")
    fn.entry.loc = next(iter(fn.entry.body)).loc = Loc(file, 3, 1)
    found = print_ttir(fn, vendor_of("cuda"), locations=True)
    assert found.count('loc("a \\22b\\22\\5C\\C3\\B1\\0A.py":3:1)') == 2
    client().ask({"what": "verify", "target": ["cuda", "90", 32], "text": found})


@pytest.mark.parametrize(("arch", "lanes"), [("gfx942", 64), ("gfx90a", 64), ("gfx1100", 32)])
def test_lanes_of_amd(arch: str, lanes: int) -> None:
    assert VENDORS["hip"].lanes_of(arch) == lanes
