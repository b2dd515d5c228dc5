"""Modules of LLVM IR: parsing, and their lifetime."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import llvmlite.binding as llvm
import pytest

from tilewright.base.llvm_library import option, parsed

ONE = "define i32 @one() {\n  ret i32 1\n}\n"
TWO = "declare i32 @one()\ndefine i32 @two() {\n  %x = call i32 @one()\n  ret i32 %x\n}\n"


def test_a_module_of_two_texts() -> None:
    with parsed(TWO, ONE) as module:
        module.verify()
        assert {f.name: f.is_declaration for f in module.functions} == {"one": False, "two": False}


WRONG_PLACE = """
define void @f() !dbg !3 {
  ret void, !dbg !4
}
define void @g() !dbg !5 {
  ret void, !dbg !4
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: DebugDirectivesOnly)
!1 = !DIFile(filename: "a.py", directory: "")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = distinct !DISubprogram(name: "f", unit: !0, file: !1, spFlags: DISPFlagDefinition)
!4 = !DILocation(line: 1, scope: !3)
!5 = distinct !DISubprogram(name: "g", unit: !0, file: !1, spFlags: DISPFlagDefinition)
"""


def test_modules_are_verified_once() -> None:
    """Not by the parser, which removes invalid debug information."""
    with parsed(WRONG_PLACE) as module, pytest.raises(RuntimeError, match="wrong subprogram"):
        module.verify()


def test_a_module_is_freed_with_its_block() -> None:
    with parsed(ONE) as module:
        assert not module.closed
    assert module.closed
    with pytest.raises(ZeroDivisionError), parsed(ONE) as module:
        _ = 1 / 0
    assert module.closed


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (("no IR",), "expected top-level entity"),
        ((ONE, "no IR"), "expected top-level entity"),
        ((ONE, ONE), "symbol multiply defined"),
    ],
)
def test_text_that_is_not_a_module(texts: tuple[str, ...], why: str) -> None:
    with pytest.raises(RuntimeError, match=why), parsed(*texts):
        pass


REJECTED = """
    import gc
    from tilewright.targets.cpu import emit
    from tilewright.targets.cpu.host import host_machine
    from tilewright.targets.nvidia import emit as gpu

    # The verifier rejects this, in a frame that holds the module.
    text = '''
    define float @f(ptr %p) {
      br label %b
    b:
      %y = fadd float %x, 1.0
      %x = load float, ptr %p
      ret float %y
    }'''
    for compile in (
        lambda: emit.compile_text(text, host_machine()),
        lambda: emit.object_of([text], "f", host_machine()),
        lambda: gpu.compile_text(text, "sm_90a", 81),
    ):
        gc.disable()
        for i in range(50):
            try:
                compile()
            except RuntimeError as error:
                cycle = [error]  # freed in an unknown order
                cycle.append(cycle)
            else:
                raise AssertionError
            del cycle
        gc.collect()
    print("alive")
"""


def test_a_rejected_module_does_not_end_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(REJECTED)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")


def test_an_option_is_unseen_by_other_threads() -> None:
    """Others that use llvmlite wait, as options are the whole process's."""
    called = threading.Event()

    def call() -> None:
        llvm.get_default_triple()
        called.set()

    with option("disable-lsr", "true", "false"):
        thread = threading.Thread(target=call)
        thread.start()
        llvm.get_default_triple()  # this thread does not wait
        assert not called.wait(0.2)
    assert called.wait(60)
    thread.join()
