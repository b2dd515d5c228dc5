"""Compiling: a source through the front end, the tile passes and a target to a `CompiledKernel`."""

from tilewright.base.diagnostics import CompilationError, InternalCompilerError
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource, IRSource
from tilewright.compiler.version import compiler_key as triton_key
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target as make_backend

__all__ = [
    "ASTSource",
    "CompilationError",
    "CompiledKernel",
    "GPUTarget",
    "IRSource",
    "InternalCompilerError",
    "compile",
    "make_backend",
    "triton_key",
]
