"""Long functions are split into parts with the same meaning; kernels are run in
tests/targets/cpu/test_long_kernels.py."""

import re
from collections.abc import Callable

import llvmlite.binding as llvm

from tilewright.lowering.emit import F32, I64, PTR, VOID, Builder, Module
from tilewright.lowering.split_function import split_function


def function_of(emit: Callable[[Builder], None], attributes: str = "") -> Builder:
    """A function of two pointers and a float, of which `emit` appends the code before `ret`."""
    params = [(PTR, attributes), (PTR, attributes), (F32, "")]
    b = Builder(Module("m").function("f", VOID, params))
    body = b.block("body")
    b.at(body)
    emit(b)
    b.ret()
    b.at(b.function.entry)
    b.br(body)
    return b


def split(b: Builder, part: int = 8, most_live: int = 16) -> str:
    """The verified text of the module after splitting."""
    split_function(b.function, "nounwind noinline", most_live, long=part, part=part)
    text = b.module.text()
    llvm.parse_assembly(text).verify()
    return text


def emit_sums(b: Builder) -> None:
    """Each of 20 elements of the second array becomes the sum of the first's so far."""
    x, y, total = b.function.params
    for i in range(20):
        total = b.fadd(total, b.load(F32, b.gep(F32, x, i)))
        b.store(total, b.gep(F32, y, i))


def test_parts_have_bounded_length_and_call_the_next() -> None:
    text = split(function_of(emit_sums))
    bodies = re.findall(r"^define [^{]*\{(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    assert len(bodies) > 5
    assert all(len(body.splitlines()) < 20 for body in bodies)
    calls = re.findall(r"call void @f\.part(\d+)\(", text)
    assert sorted(map(int, calls)) == list(range(1, len(bodies)))


def test_short_functions_are_not_split() -> None:
    b = function_of(emit_sums)
    split_function(b.function, "", 16)
    assert ".part" not in b.module.text()


def test_a_loop_is_not_cut() -> None:
    def emit(b: Builder) -> None:
        with b.loop(0, b.fptosi(b.function.params[2], I64)) as loop:
            x = b.gep(F32, b.function.params[0], loop.index)
            for _ in range(30):
                b.store(b.fadd(b.load(F32, x), 1.0), x)

    assert ".part" not in split(function_of(emit))


def test_a_branch_that_is_bypassed_is_not_cut() -> None:
    def emit(b: Builder) -> None:
        x, y, a = b.function.params
        with b.when(b.fcmp("olt", a, 0.0)):
            for _ in range(30):
                b.store(b.fadd(b.load(F32, x), 1.0), x)
        b.store(a, y)

    assert ".part" not in split(function_of(emit))


def test_functions_are_not_cut_where_much_is_live() -> None:
    def emit(b: Builder) -> None:
        x, y, _ = b.function.params
        values = [b.load(F32, b.gep(F32, x, i)) for i in range(20)]
        for i, value in enumerate(values):
            b.store(value, b.gep(F32, y, i))

    for most_live in (8, 24):
        heads = re.findall(r"^define internal.*", split(function_of(emit), 8, most_live), re.M)
        words = [head.count("float %") + 2 * head.count("ptr %") for head in heads]
        assert most_live - 4 <= max(words) <= most_live


def test_parameters_stay_noalias_unless_a_derived_pointer_is_passed() -> None:
    assert "define internal void @f.part1(ptr noalias %p0" in split(
        function_of(emit_sums, "noalias")
    )

    def emit(b: Builder) -> None:
        x, y, a = b.function.params
        moved = b.gep(F32, x, b.fptosi(a, I64))
        for i in range(20):
            b.store(b.load(F32, b.gep(F32, x, i)), b.gep(F32, y, i))
            b.store(a, b.gep(F32, moved, i))

    text = split(function_of(emit, "noalias"))
    (params,) = re.findall(r"^define internal void @f\.part1\((.*)\)", text, re.MULTILINE)
    assert params.count("ptr") == 3
    assert "noalias" not in params


def test_memory_is_allocated_in_the_only_part_that_uses_it() -> None:
    def emit(b: Builder) -> None:
        x, y, _ = b.function.params
        everywhere = b.alloca(F32)
        for i in range(20):
            here = b.alloca(F32)
            b.store(b.load(F32, b.gep(F32, x, i)), here)
            b.store(b.load(F32, here), everywhere)
            b.store(b.load(F32, everywhere), b.gep(F32, y, i))

    text = split(function_of(emit), part=12)
    whole, *parts = re.findall(r"^define.*?^\}", text, re.MULTILINE | re.DOTALL)
    assert 1 < whole.count("alloca") < 6
    assert sum(part.count("alloca") for part in parts) == 21 - whole.count("alloca")
    assert all("ptr noalias %v" in part.partition("\n")[0] for part in parts)


def test_addresses_at_the_entry_are_repeated_rather_than_passed() -> None:
    def emit(b: Builder) -> None:
        x, y, _ = b.function.params
        body = b.current
        b.at(b.function.entry)
        places = [b.gep(F32, y, i + 1) for i in range(20)]
        b.at(body)
        for i, place in enumerate(places):
            b.store(b.load(F32, b.gep(F32, x, i + 1)), place)

    text = split(function_of(emit), most_live=6)
    assert "@f.part1(ptr %p0, ptr %p1)" in text


def test_locations_of_a_part_are_in_its_own_subprogram() -> None:
    module = Module("m")
    b = Builder(module.function("f", VOID, [(PTR, ""), (PTR, ""), (F32, "")]))
    file = module.metadata('!DIFile(filename: "kernel.py", directory: "/")')
    unit = module.metadata(
        f"!DICompileUnit(language: DW_LANG_Python, file: {file}, emissionKind: LineTablesOnly)",
        distinct=True,
    )
    form = module.metadata("!DISubroutineType(types: !{})")

    def subprogram(name: str) -> str:
        return module.metadata(
            f'!DISubprogram(name: "{name}", linkageName: "{name}", file: {file}, type: {form}, '
            f"unit: {unit}, spFlags: DISPFlagDefinition)",
            distinct=True,
        )

    b.function.subprogram = subprogram("f")
    version = module.metadata('!{i32 2, !"Debug Info Version", i32 3}')
    module.named_metadata("llvm.dbg.cu", unit)
    module.named_metadata("llvm.module.flags", version)
    caller = module.metadata(f"!DILocation(line: 5, scope: {b.function.subprogram})")
    b.location = module.metadata(
        f"!DILocation(line: 7, scope: {subprogram('helper')}, inlinedAt: {caller})", distinct=True
    )
    emit_sums(b)
    b.ret()
    # LLVM drops all debug info if some of it is invalid.
    parsed = llvm.parse_assembly(split(b))
    parts = [f for f in parsed.functions if f.name.startswith("f.part")]
    assert len(parts) > 4
    text = str(parsed)
    assert text.count("!DILocation(line: 5") == text.count("!DILocation(line: 7") == len(parts) + 1
    assert 'name: "f", linkageName: "f.part1"' in text
