"""Level 0: the target compiles, and keeps to `targets/protocol.py`; no device is needed."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
from collections.abc import Iterator
from typing import Any

import tilewright.language as tl
from tilewright.base import knobs
from tilewright.base.child import python_command
from tilewright.base.diagnostics import InternalCompilerError, Loc, TritonError
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.build import context_for, lower
from tilewright.compiler.driver import compile_source
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import ASTSource
from tilewright.conformance.case import Case, Failed, Machine
from tilewright.conformance.claims import claims_of, exact_options
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.define import Op
from tilewright.ir.passes import Step, Verifier, run
from tilewright.ir.types import Type
from tilewright.ir.verify import verify_module
from tilewright.runtime.jit import jit
from tilewright.targets.protocol import UnknownOptionError, options_dict
from tilewright.targets.registry import MEMBERS, described
from tilewright.targets.registry import target as find_target

CHILD_SECONDS = 120.0


@jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 3, mask=i < n)


class UnknownOp(Op):
    """An op with an effect that no target lowers; not registered, as it is not part of the IR."""

    name = "conformance.unknown"
    writes_memory = True

    def result_types(self) -> tuple[Type, ...]:
        return ()


def _require(condition: object, message: str) -> None:
    if not condition:
        raise Failed(message)


def _target(machine: Machine) -> Any:
    """The target, of which nothing is certain yet."""
    return find_target(machine.target)


def _source() -> ASTSource:
    types = {"x_ptr": "*i32", "out_ptr": "*i32", "n": "i32"}
    return ASTSource(scale, types, {"BLOCK": 64})


def _kernel(machine: Machine) -> CompiledKernel:
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        return compile_source(_source(), machine.target, exact_options(_target(machine)))


# -- checks ---------------------------------------------------------------------------------------


def has_all_members(machine: Machine) -> None:
    target = _target(machine)
    missing = [name for name in MEMBERS if not hasattr(target, name)]
    _require(not missing, f"{type(target).__name__} has no {', '.join(missing)}")
    _require(isinstance(target.name, str), f"name is {target.name!r}, not a string")
    found = target.features()
    _require(isinstance(found, frozenset), f"features() returns {found!r}, not a frozenset")


def has_valid_claims(machine: Machine) -> None:
    claims_of(_target(machine))


def key_is_text(machine: Machine) -> None:
    key = _target(machine).key()
    _require(isinstance(key, str) and key, f"key() returns {key!r}, not a text")


def key_is_stable(machine: Machine) -> None:
    """In other processes."""
    here = _target(machine).key()
    for _ in range(2):
        there = _in_child("key_of", machine)
        _require(there == here, f"key() returns {there!r} in another process, {here!r} in this one")


def code_is_stable(machine: Machine) -> None:
    one, two = (_in_child("digest_of", machine) for _ in range(2))
    _require(one == two, "two processes generate different code for one kernel")


def options_are_data(machine: Machine) -> None:
    target = _target(machine)
    options = target.parse_options({})
    try:
        values, same = options_dict(options), target.parse_options({})
    except TypeError:
        raise Failed(f"parse_options returns {options!r}, not an instance of a dataclass") from None
    _require(options == same, "two results of parse_options({}) are not equal")
    _require(repr(options) == repr(same), "the text of equal options differs, and so the cache key")
    for name in ("num_warps", "num_stages"):
        _require(name in values, f"there is no option {name}, which any program may set")


def options_enter_the_key(machine: Machine) -> None:
    target = _target(machine)
    texts = {repr(target.parse_options({"num_warps": n})) for n in (1, 8)}
    _require(len(texts) == 2, "options with different num_warps have the same text")


def unknown_option_is_rejected(machine: Machine) -> None:
    target = _target(machine)
    if target.name == "interpreter":
        return  # it takes the options of all targets
    try:
        target.parse_options({"num_warpz": 4})
    except UnknownOptionError as error:
        _require("num_warpz" in str(error), f"the error does not name the option: {error}")
    else:
        raise Failed("parse_options accepts the unknown option num_warpz")


def options_of_others_are_ignored(machine: Machine) -> None:
    target = _target(machine)
    own = options_dict(target.parse_options({}))
    others = {"waves_per_eu": 2, "matrix_instr_nonkdim": 16, "maxnreg": 64, "vec_lib": "libsleef"}
    given = {name: value for name, value in others.items() if name not in own}
    same = target.parse_options(given) == target.parse_options({})
    _require(same, f"the options {', '.join(given)} of other targets are not ignored")


def front_end_options(machine: Machine) -> None:
    target = _target(machine)
    found = target.frontend_options(target.parse_options({}))
    _require(isinstance(found, FrontendOptions), f"frontend_options returns {found!r}")


def steps_keep_ir_valid(machine: Machine) -> None:
    target = _target(machine)
    steps: Any = pipeline(target)
    _require(all(isinstance(s, Step) for s in steps), "steps() has elements that are no Step")
    options = target.parse_options({})
    module = _source().module(target.frontend_options(options))
    run(module, steps, context_for(target, options), [Verifier()])


def kernel_has_stages_and_metadata(machine: Machine) -> None:
    target = _target(machine)
    options = target.parse_options({})
    module = _source().module(target.frontend_options(options))
    lowered = lower(module, target, options, pipeline(target))
    own: dict[str, Any] = {n: stage for n, stage in lowered.stages.items() if n != "ttir"}
    _require(own, "compile returns no stage")
    for name, stage in own.items():
        _require(isinstance(stage, str | bytes), f"the stage {name} is a {type(stage).__name__}")
    metadata = lowered.metadata
    _require(isinstance(metadata.get("name"), str), "the metadata has no `name`")
    try:
        restored = json.loads(json.dumps(metadata))
    except (TypeError, ValueError) as error:
        raise Failed(f"the metadata is not JSON: {error}") from None
    changed = [k for k, v in restored.items() if v != _plain(metadata[k])]
    _require(not changed, f"the metadata changes as JSON: {', '.join(changed)}")


def _plain(value: Any) -> Any:
    """Tuples as lists, as in JSON."""
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return {str(k): _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def kernel_survives_storage(machine: Machine) -> None:
    kernel = _kernel(machine)
    for copy in (CompiledKernel.from_files(kernel.files()), pickle.loads(pickle.dumps(kernel))):
        _require(copy.kernel == kernel.kernel, "the stored binary differs")
        _require(dict(copy.metadata) == dict(kernel.metadata), "the stored metadata differs")


def stages_can_be_derived(machine: Machine) -> None:
    kernel = _kernel(machine)
    for name in kernel.asm:
        _require(
            isinstance(kernel.asm[name], str | bytes), f"the stage {name} is not text or bytes"
        )
    _require("no such stage" not in kernel.asm, "derive returns a stage for any name")


def unknown_op_is_rejected(machine: Machine) -> None:
    """An op that the target does not support is an error of the kernel, with the line."""
    target = _target(machine)
    options = target.parse_options({})
    module = _source().module(target.frontend_options(options))
    _insert_unknown(module)
    try:
        lower(module, target, options, pipeline(target))
    except InternalCompilerError as error:
        raise Failed(f"an unknown op is an internal error: {error}") from None
    except TritonError as error:
        named = UnknownOp.name in str(error) and "kernel.py:7" in str(error)
        _require(named, f"the error does not name the op and its line: {error}")
    except Exception as error:
        raise Failed(f"an unknown op is a {type(error).__name__}: {error}") from None
    else:
        raise Failed("an op that the target does not know is ignored")


def _insert_unknown(module: Module) -> None:
    body = module.entry.body
    op = UnknownOp()
    op.loc = Loc("kernel.py", 7, 5)
    body.insert_before(op, body.terminator)
    verify_module(module)


CHECKS = {
    "target": [has_all_members, has_valid_claims],
    "cache key": [key_is_text, key_is_stable],
    "options": [
        options_are_data,
        options_enter_the_key,
        unknown_option_is_rejected,
        options_of_others_are_ignored,
        front_end_options,
    ],
    "compilation": [
        steps_keep_ir_valid,
        kernel_has_stages_and_metadata,
        kernel_survives_storage,
        stages_can_be_derived,
        code_is_stable,
        unknown_op_is_rejected,
    ],
}


def cases() -> Iterator[Case]:
    """The cases of level 0."""
    for feature, checks in CHECKS.items():
        for check in checks:
            yield Case("0", feature, check.__name__.replace("_", " "), check)


# -- other processes ------------------------------------------------------------------------------


def _in_child(function: str, machine: Machine) -> str:
    """The output of a function of this module in another process, in which hashes of Python differ,
    as their seed is random."""
    target = machine.target
    text = ":".join(filter(None, (target.backend, str(target.arch))))
    code = f"from tilewright.conformance import protocol_checks as p; print(p.{function}({text!r}))"
    ended = subprocess.run(
        python_command(code), capture_output=True, text=True, timeout=CHILD_SECONDS, check=False,
    )  # fmt: skip
    _require(ended.returncode == 0, f"a process that compiles failed: {ended.stderr[-300:]}")
    return ended.stdout.strip()


def key_of(target: str) -> str:
    """The key of a target."""
    return find_target(target).key()


def digest_of(target: str) -> str:
    """A hash of the code that a target generates for a kernel."""
    kernel = _kernel(Machine(described(target), ""))
    binary = kernel.kernel
    return hashlib.sha256(binary.encode() if isinstance(binary, str) else binary).hexdigest()
