"""Source locations of instructions, as LLVM debug metadata: line tables only, no variables or
types."""

from __future__ import annotations

from os.path import basename

from tilewright.base.diagnostics import Loc
from tilewright.lowering.emit import Function, Module


class Lines:
    """The locations of one function of a module.

        lines = Lines(module, function, loc)
        b.location = lines.of(op.loc)

    Files are named without their directories, so that the code does not depend on where the source
    is; debuggers and profilers have an option for the directory.

    Args:
        loc: the location of the function's definition.
    """

    def __init__(self, module: Module, function: Function, loc: Loc) -> None:
        self._module = module
        self._locations: dict[Loc, str] = {}
        self._scopes: dict[tuple[str, str], str] = {}
        self._kernel = loc
        unit = module.metadata(
            f"!DICompileUnit(language: DW_LANG_Python, file: {self._file(loc.file)}, "
            'producer: "tilewright", isOptimized: true, runtimeVersion: 0, '
            "emissionKind: DebugDirectivesOnly)",
            distinct=True,
        )
        self._unit = unit
        self._types = module.metadata(f"!DISubroutineType(types: {module.metadata('!{}')})")
        module.named_metadata("llvm.dbg.cu", unit)
        version = module.metadata('!{i32 2, !"Debug Info Version", i32 3}')
        module.named_metadata("llvm.module.flags", version)
        self._root = self._subprogram(function.name, loc.file, loc.line)
        function.subprogram = self._root

    def of(self, loc: Loc | None) -> str:
        """The id of a location; that of the function's definition if there is none."""
        loc = loc or self._kernel
        result = self._locations.get(loc)
        if result is None:
            result = self._locations[loc] = self._location(loc)
        return result

    def of_call_in(self, function: Function) -> str:
        """The id of a location in another function, which calls this one."""
        scope = self._subprogram(function.name, self._kernel.file, self._kernel.line)
        function.subprogram = scope
        return self._module.metadata(f"!DILocation(line: {self._kernel.line}, scope: {scope})")

    def _location(self, loc: Loc) -> str:
        place = f"line: {loc.line}, column: {loc.column}"
        if loc.caller is None:
            scope = self._root
            if loc.file != self._kernel.file:
                file = self._file(loc.file)
                scope = self._module.metadata(
                    f"!DILexicalBlockFile(scope: {self._root}, file: {file}, discriminator: 0)"
                )
            return self._module.metadata(f"!DILocation({place}, scope: {scope})")
        key = loc.function, loc.file
        if key not in self._scopes:
            self._scopes[key] = self._subprogram(loc.function, loc.file, 1)
        caller = self.of(loc.caller)
        return self._module.metadata(
            f"!DILocation({place}, scope: {self._scopes[key]}, inlinedAt: {caller})", distinct=True
        )

    def _file(self, path: str) -> str:
        name = basename(path).replace("\\", "\\5C").replace('"', "\\22")
        return self._module.metadata(f'!DIFile(filename: "{name}", directory: "")')

    def _subprogram(self, name: str, file: str, line: int) -> str:
        node = self._file(file)
        return self._module.metadata(
            f'!DISubprogram(name: "{name}", linkageName: "{name}", scope: {node}, file: {node}, '
            f"line: {line}, type: {self._types}, scopeLine: {line}, "
            f"spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: {self._unit})",
            distinct=True,
        )
