"""LLVM IR and PTX that the tests of the NVIDIA tools compile."""

from __future__ import annotations

SREG = "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"


def scaled_add(attributes: str, *, flags: str = "", lines: str | None = None) -> str:
    """A kernel whose threads each make four floats: out = x * y + y.

    Args:
        attributes: of the kernel.
        flags: fast-math flags of the arithmetic.
        lines: the `emissionKind` of debug information, which are absent otherwise.
    """
    at = (lambda n: f", !dbg !{n}") if lines else (lambda n: "")
    return f"""
define ptx_kernel void @scaled_add(ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %out)
    #0 {"!dbg !3" if lines else ""} {{
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x(){at(5)}
  %i = zext i32 %tid to i64{at(5)}
  %px = getelementptr <4 x float>, ptr addrspace(1) %x, i64 %i{at(5)}
  %py = getelementptr <4 x float>, ptr addrspace(1) %y, i64 %i{at(5)}
  %po = getelementptr <4 x float>, ptr addrspace(1) %out, i64 %i{at(5)}
  %vx = load <4 x float>, ptr addrspace(1) %px, align 16{at(5)}
  %vy = load <4 x float>, ptr addrspace(1) %py, align 16{at(5)}
  %p = fmul {flags} <4 x float> %vx, %vy{at(8)}
  %s = fadd {flags} <4 x float> %p, %vy{at(8)}
  store <4 x float> %s, ptr addrspace(1) %po, align 16{at(8)}
  ret void{at(5)}
}}
{SREG}
attributes #0 = {{ {attributes} }}
{_debug(lines) if lines else ""}
"""


SOURCE = "/sources/kernel.py"  # the file that the lines below name


def _debug(kind: str) -> str:
    """Lines 4 and 6 of the kernel, the second one in a function called in line 5."""
    folder, name = SOURCE.rsplit("/", 1)
    flags = "spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0"
    return f"""
!llvm.dbg.cu = !{{!0}}
!llvm.module.flags = !{{!2}}
!0 = distinct !DICompileUnit(language: DW_LANG_Python, file: !1, isOptimized: true,
  emissionKind: {kind})
!1 = !DIFile(filename: "{name}", directory: "{folder}")
!2 = !{{i32 2, !"Debug Info Version", i32 3}}
!3 = distinct !DISubprogram(name: "scaled_add", scope: !1, file: !1, line: 3, type: !4, {flags})
!4 = !DISubroutineType(types: !{{}})
!5 = !DILocation(line: 4, column: 2, scope: !3)
!6 = distinct !DISubprogram(name: "fused", scope: !1, file: !1, line: 1, type: !4, {flags})
!7 = distinct !DILocation(line: 5, column: 3, scope: !3)
!8 = !DILocation(line: 6, column: 4, scope: !6, inlinedAt: !7)
"""


def wgmma(attributes: str, columns: int = 8) -> str:
    """A kernel with one m64nNk16 product of a warp group; each thread stores its N / 2 sums."""
    count = columns // 2
    sums = ", ".join(["float"] * count)
    numbers = range(count)
    outputs = "".join(
        f"  %p{i} = getelementptr float, ptr addrspace(1) %out, i32 {i}\n"
        f"  %s{i} = extractvalue {{{sums}}} %d, {i}\n"
        f"  store float %s{i}, ptr addrspace(1) %p{i}\n"
        for i in numbers
    )
    instruction = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16"
    registers = ", ".join(f"${i}" for i in numbers)
    constraints = ",".join([*["=f"] * count, "l", "l", *map(str, numbers)])
    zeros = ", ".join(["float 0.0"] * count)
    return f"""
define ptx_kernel void @wgmma(ptr addrspace(1) %out, i64 %a, i64 %b) #0 {{
  call void asm sideeffect "wgmma.fence.sync.aligned;", ""() #1
  %d = call {{{sums}}} asm sideeffect
    "{instruction} {{{registers}}}, ${count}, ${count + 1}, 1, 1, 1, 0, 0;", "{constraints}"
    (i64 %a, i64 %b, {zeros}) #1
  call void asm sideeffect "wgmma.commit_group.sync.aligned;", ""() #1
  call void asm sideeffect "wgmma.wait_group.sync.aligned 0;", ""() #1
{outputs}  ret void
}}
attributes #0 = {{ {attributes} }}
attributes #1 = {{ convergent }}
"""


def many_values(attributes: str, count: int) -> str:
    """A kernel that needs `count` floats at once: all are loaded, then stored in reverse order."""
    loads = "".join(
        f"  %p{i} = getelementptr float, ptr addrspace(1) %x, i64 {i * 97}\n"
        f"  %v{i} = load volatile float, ptr addrspace(1) %p{i}\n"
        for i in range(count)
    )
    stores = "".join(
        f"  store volatile float %v{i}, ptr addrspace(1) %p{count - 1 - i}\n"
        for i in reversed(range(count))
    )
    return f"""
define ptx_kernel void @many_values(ptr addrspace(1) %x) #0 {{
{loads}{stores}  ret void
}}
attributes #0 = {{ {attributes} }}
"""
