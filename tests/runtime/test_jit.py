"""Launching kernels: arguments, grids, variants, options, caches, errors; compiled and interpreted.

Kernels here are as small as they can be: what operations compute is tested elsewhere.
"""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import tilewright
import tilewright.language as tl
from tests.threads import in_threads
from tilewright.base import knobs
from tilewright.compiler import build as making
from tilewright.runtime.jit import InterpretedFunction, JITFunction, jit

pytestmark = pytest.mark.usefixtures("launcher")

Array = np.ndarray[Any, Any]


def fill(out, value):
    tl.store(out + tl.program_id(0), value)


def add_one(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + 1, i < n)


def copy_strided(x, out, stride, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i * stride))


def program_ids(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out + at, x + 10 * y + 100 * z)


def use_tuple(out, pair, unused):
    tl.store(out, pair[0])
    tl.store(out + 1, pair[1])


@pytest.fixture(params=["cpu", "interpreter"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., JITFunction]]:
    """Decorates a function for one of the targets."""
    with knobs.runtime.scope():
        knobs.runtime.interpret = request.param == "interpreter"
        yield jit


@pytest.fixture(autouse=True)
def verified() -> Iterator[None]:
    with knobs.compilation.scope():
        knobs.compilation.verify = True
        yield


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were really compiled, not found in a cache."""
    names: list[str] = []
    build = making.build

    def recorded(source: Any, *rest: Any) -> Any:
        names.append(source.name)
        return build(source, *rest)

    monkeypatch.setattr(making, "build", recorded)
    return names


@pytest.fixture
def cache_dir(tmp_path: Path) -> Iterator[Path]:
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "cache")
        yield tmp_path / "cache"


def variants(kernel: JITFunction) -> int:
    return sum(len(cache.kernel_cache) for cache in kernel.device_caches.values())


# -- what a launch does ---------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_launch_runs_every_program(make: Callable[..., JITFunction], library: str) -> None:
    x = np.arange(1000, dtype=np.float32)
    out = np.zeros_like(x)
    arrays = (x, out) if library == "numpy" else (torch.from_numpy(x), torch.from_numpy(out))
    compiled = make(add_one)[(tilewright.cdiv(1000, 64),)](*arrays, 1000, BLOCK=64)
    assert np.array_equal(out, x + 1)
    assert compiled.name == "add_one"


def test_launch_returns_the_same_kernel_again(make: Callable[..., JITFunction]) -> None:
    kernel, out = make(fill), np.zeros(1, np.int32)
    assert kernel[(1,)](out, 5) is kernel[(1,)](out, 7)
    assert out[0] == 7


@pytest.mark.parametrize(
    ("grid", "count"),
    [((3,), 3), ([3], 3), ((3, 2), 6), ((3, 2, 2), 12), ((np.int64(3),), 3), ((True,), 1)],
)
def test_grid_has_one_to_three_axes(
    make: Callable[..., JITFunction], grid: Any, count: int
) -> None:
    out = np.full(20, -1, np.int32)
    make(program_ids)[grid](out)
    x, y, z = (*(int(n) for n in grid), 1, 1)[:3]
    expected = [i + 10 * j + 100 * k for k in range(z) for j in range(y) for i in range(x)]
    assert out.tolist() == expected + [-1] * (20 - count)


def test_grid_function_receives_all_arguments(make: Callable[..., JITFunction]) -> None:
    seen: dict[str, Any] = {}

    def grid(meta: dict[str, Any]) -> tuple[int]:
        seen.update(meta)
        return (tilewright.cdiv(meta["n"], meta["BLOCK"]),)

    x = np.zeros(100, np.float32)
    make(add_one)[grid](x, x, 100, BLOCK=32)
    assert seen == {"x": x, "out": x, "n": 100, "BLOCK": 32}
    assert x.tolist() == [1.0] * 100


@pytest.mark.parametrize("grid", [(0,), (3, 0), (2, 2, 0), lambda meta: (0,)])
def test_empty_grid_launches_nothing_but_compiles(
    make: Callable[..., JITFunction], grid: Any
) -> None:
    out = np.zeros(4, np.int32)
    compiled = make(fill)[grid](out, 5)
    assert compiled.name == "fill"
    assert not out.any()


@pytest.mark.parametrize(
    ("grid", "error", "text"),
    [
        (4, TypeError, "a grid is a tuple of one to three ints, or a function"),
        ((), ValueError, "one to three axes, not 0"),
        ((1, 1, 1, 2), ValueError, "one to three axes, not 4"),
        ((2.0,), TypeError, r"axis x of the grid is 2\.0, a float"),
        ((1, -2), ValueError, "axis y of the grid is -2, which is negative"),
    ],
)
def test_wrong_grid_has_a_clear_error(
    make: Callable[..., JITFunction], grid: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make(fill)[grid](np.zeros(4, np.int32), 5)


def test_extents_beyond_the_third_may_be_1(make: Callable[..., JITFunction]) -> None:
    """Triton does not read them, and programs have some."""
    out = np.zeros(4, np.int32)
    make(fill)[(4, 1, 1, 1)](out, 5)
    assert (out == 5).all()
    make(fill)[[4, 1, 1, 1, 1]](out, 6)
    assert (out == 6).all()


def test_warmup_compiles_only(make: Callable[..., JITFunction], builds: list[str]) -> None:
    kernel, x = make(add_one), np.zeros(16, np.float32)
    compiled = kernel.warmup(torch.float32, np.dtype(np.float32), 16, BLOCK=16, grid=(1,))
    assert kernel.warmup(tilewright.MockTensor(tl.float32), np.float32, 16, BLOCK=16) is compiled
    assert builds in ([], ["add_one"])  # none when the disk cache has it
    assert not x.any()
    # Element types alone represent tensors that do not overlap, as most do not.
    out = np.zeros_like(x)
    assert kernel[(1,)](x, out, 16, BLOCK=16).hash == compiled.hash
    assert out.all()


def test_hooks_run_before_each_launch(make: Callable[..., JITFunction]) -> None:
    kernel, out, calls = make(fill), np.zeros(1, np.int32), []
    kernel.add_pre_run_hook(lambda *args, **kwargs: calls.append((args[1:], kwargs)))
    kernel[(1,)](out, 5)
    kernel[(1,)](out, value=6)
    assert calls == [((5,), {}), ((), {"value": 6})]


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (-5, np.int32),
        (2**31 - 1, np.int32),
        (-(2**40), np.int64),
        (2**64 - 1, np.uint64),
        (True, np.int32),
        (1, np.int32),
        (1.5, np.float32),
        (float("nan"), np.float32),
        (-0.0, np.float32),
        (np.float64(2.5), np.float32),
    ],
)
def test_scalars_arrive(make: Callable[..., JITFunction], value: Any, dtype: Any) -> None:
    out = np.zeros(1, dtype)
    make(fill)[(1,)](out, value)
    assert out.tobytes() == np.array([value]).astype(dtype).tobytes()


def annotated(out, h: tl.float16, b: tl.bfloat16, f: tl.float32, d: tl.float64, i: tl.int8):  # pyright: ignore[reportInvalidTypeForm]
    tl.store(out, h.to(tl.float64))
    tl.store(out + 1, b.to(tl.float64))
    tl.store(out + 2, f.to(tl.float64))
    tl.store(out + 3, d)
    tl.store(out + 4, i.to(tl.float64))


@pytest.mark.parametrize("number", [0.1, -1e-9, 65519.0, 1e6, -1e300, float("inf"), 2.0**-133])
def test_annotated_floats_are_rounded_to_their_type(
    make: Callable[..., JITFunction], number: float
) -> None:
    out = np.zeros(5)
    make(annotated)[(1,)](out, number, number, number, number, -7)
    wide = np.array(number)
    with np.errstate(over="ignore"):
        types = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
        expected = [float(wide.astype(t).astype(np.float64)) for t in types]
    assert out.tolist() == [*expected, -7.0]


def test_tuples_and_none_are_arguments(make: Callable[..., JITFunction]) -> None:
    out = np.zeros(2, np.float32)
    make(use_tuple)[(1,)](out, (3, 1.5), None)
    assert out.tolist() == [3, 1.5]


def test_views_are_read_through_their_address(make: Callable[..., JITFunction]) -> None:
    base = np.arange(64, dtype=np.float32).reshape(8, 8)
    kernel, out = make(copy_strided), np.zeros(8, np.float32)
    for view, stride in [(base[:, 3], 8), (base[2, 1:], 1), (base[5, ::-1], -1), (base.T[1], 8)]:
        count = min(len(view), 4)
        kernel[(1,)](view, out, stride, N=count)
        assert out[:count].tolist() == view[:count].tolist()
    strided = torch.from_numpy(base)[1:, 2]
    kernel[(1,)](strided, out, strided.stride(0), N=4)
    assert out[:4].tolist() == strided[:4].tolist()


def shift_in_place(x, y, N: tl.constexpr):
    for k in range(N):
        tl.store(y + k + 1, tl.load(x + k) + 1)


def test_stores_are_visible_through_overlapping_arguments(make: Callable[..., JITFunction]) -> None:
    kernel = make(shift_in_place)
    apart, out = np.zeros(9, np.int32), np.zeros(9, np.int32)
    kernel[(1,)](apart, out, N=8)
    assert out.tolist() == [0] + [1] * 8
    kernel[(1,)](apart, apart, N=8)
    assert apart.tolist() == list(range(9))
    assert variants(kernel) == 2


def test_read_only_array_may_be_read_and_not_written(make: Callable[..., JITFunction]) -> None:
    kernel, x, out = make(add_one), np.zeros(16, np.float32), np.zeros(16, np.float32)
    x.flags.writeable = False
    kernel[(1,)](x, out, 16, BLOCK=16)
    assert out.all()
    for _ in range(2):
        with pytest.raises(ValueError, match="argument `out` of add_one is a read-only array"):
            kernel[(1,)](out, x, 16, BLOCK=16)
    assert not x.any()


# -- variants -------------------------------------------------------------------------------------


def two(out, n):
    tl.store(out, n)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 3),
        ({"do_not_specialize": ["n"]}, 1),
        ({"do_not_specialize": [1]}, 1),
        ({"do_not_specialize_on_alignment": ["n"]}, 2),
    ],
)
def test_values_make_variants(options: dict[str, Any], count: int) -> None:
    kernel, out = jit(**options)(two), np.zeros(1, np.int32)
    for n in (1, 2, 4, 8, 16, 32):
        kernel[(1,)](out, n)
        assert out[0] == n
    assert variants(kernel) == count


def test_variants_differ_by_types_constants_and_options() -> None:
    kernel = jit(add_one)
    x, y = np.zeros(64, np.float32), np.zeros(64, np.int32)
    for arrays, block, options in [
        ((x, x), 16, {}),
        ((y, y), 16, {}),
        ((x, x), 32, {}),
        ((x, x), 16, {"num_warps": 8}),
    ]:
        kernel[(1,)](*arrays, 0, BLOCK=block, **options)
        kernel[(1,)](*arrays, 0, BLOCK=block, **options)
    assert variants(kernel) == 4


def constant(out, VALUE: tl.constexpr):
    tl.store(out, VALUE)


def test_equal_constants_of_different_types_are_different() -> None:
    kernel, out = jit(constant), np.zeros(1, np.float64)
    for value in (1, 1.0, True, 0.0, -0.0):
        kernel[(1,)](out, value)
        assert out.tobytes() == np.float64(value).tobytes()
    assert variants(kernel) == 5


def test_debug_is_a_variant() -> None:
    kernel, out = jit(fill), np.zeros(1, np.int32)
    plain = kernel[(1,)](out, 5)
    with knobs.runtime.scope():
        knobs.runtime.debug = True
        assert kernel[(1,)](out, 5).metadata.debug
    assert not plain.metadata.debug
    assert jit(debug=True)(fill)[(1,)](out, 5).metadata.debug


# -- options --------------------------------------------------------------------------------------


def with_option(out, num_warps: tl.constexpr):
    tl.store(out, num_warps)


def test_parameter_may_be_an_option_too() -> None:
    out = np.zeros(1, np.int32)
    compiled = jit(with_option)[(1,)](out, num_warps=2)
    assert out[0] == 2
    assert compiled.metadata.num_warps == 2


def test_wrong_options_are_rejected() -> None:
    kernel, out = jit(fill), np.zeros(1, np.int32)
    with pytest.raises(KeyError, match="Keyword argument num_wraps was specified but unrecog"):
        kernel[(1,)](out, 5, num_wraps=4)
    with pytest.raises(AssertionError, match="num_warps must be a power of 2"):
        kernel[(1,)](out, 5, num_warps=3)
    with pytest.raises(AssertionError, match="device option is deprecated"):
        kernel[(1,)](out, 5, device=0)


# -- wrong arguments ------------------------------------------------------------------------------


class OnGpu:
    """Looks like a tensor of a GPU."""

    dtype = "float32"
    device = "cuda:0"
    shape = (4, 4)

    def data_ptr(self) -> int:
        return 0x7000


def test_tensor_elsewhere_is_named() -> None:
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        kernel, out = jit(add_one), np.zeros(1, np.float32)
    text = (
        r"Pointer argument \(at 1\) cannot be accessed from cuda:0 \(cpu tensor\?\): argument "
        r"`\w+` is a .*ndarray of shape \(1,\) on 'cpu', while argument `x` is a .*OnGpu of "
    )
    for _ in range(2):
        with pytest.raises(ValueError, match=text):
            kernel[(1,)](OnGpu(), out, 1, BLOCK=1)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ([1.0, 2.0], r"pass numpy\.asarray"),
        (np.int64(3), r"pass int\("),
        ("text", r"tl\.constexpr"),
        (object(), r"data_ptr\(\) and dtype"),
    ],
)
def test_unsupported_argument_has_a_clear_error(value: Any, hint: str) -> None:
    kind = type(value).__name__
    text = f"failed to specialize argument of type: {kind}: argument `value` of fill.*{hint}"
    with pytest.raises(TypeError, match=text):
        jit(fill)[(1,)](np.zeros(1, np.float32), value)


def test_wrong_calls_have_the_error_messages_of_python() -> None:
    kernel, out = jit(fill), np.zeros(1, np.float32)
    with pytest.raises(TypeError, match=r"fill\(\) missing 1 required positional argument"):
        kernel[(1,)](out)
    with pytest.raises(TypeError, match=r"fill\(\) got multiple values for argument 'out'"):
        kernel[(1,)](out, 1, out=out)
    with pytest.raises(OverflowError, match="integer to be specialized too large"):
        kernel[(1,)](out, 2**64)


def test_kernel_cannot_be_called_on_the_host() -> None:
    with pytest.raises(RuntimeError, match=r"Cannot call @triton.jit'd outside of the scope"):
        jit(fill)(1, 2)


def test_kernel_without_source_is_rejected() -> None:
    scope: dict[str, Any] = {}
    exec("def kernel(x):\n    pass\n", scope)
    with pytest.raises(ValueError, match="@jit functions should be defined in a Python file"):
        jit(scope["kernel"])


def test_launches_of_kernels_with_keyword_parameters_are_rejected() -> None:
    def kernel(x, **rest):
        pass

    with pytest.raises(TypeError, match=r"cannot be launched, only called by kernels.* \*\*rest"):
        jit(kernel)[(1,)](np.zeros(1, np.float32))


def wrong(out):
    tl.store(out, undefined_name)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


def test_kernel_error_is_raised_at_each_launch(make: Callable[..., JITFunction]) -> None:
    kernel = make(wrong)
    for _ in range(2):
        with pytest.raises(tilewright.CompilationError, match="undefined_name is not defined"):
            kernel[(1,)](np.zeros(1, np.float32))
    assert variants(kernel) == 0


# -- globals --------------------------------------------------------------------------------------

FACTOR = tl.constexpr(3)


def use_global(out):
    tl.store(out, FACTOR)


def test_changed_global_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, out = jit(use_global), np.zeros(1, np.int32)
    kernel[(1,)](out)
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(4))
    text = "Global variable FACTOR has changed since we compiled this kernel, from .*3.* to .*4"
    for array in (out, np.zeros(1, np.float32)):
        with pytest.raises(RuntimeError, match=text):
            kernel[(1,)](array)
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(3))
    kernel[(1,)](out)
    assert out[0] == 3


ELEMENT = tl.int8


def cast_to_global(out, x):
    tl.store(out, x.to(ELEMENT).to(tl.int32))


def test_changed_global_type_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, out = jit(cast_to_global), np.zeros(1, np.int32)
    for _ in range(3):
        kernel[(1,)](out, 300)
    assert out[0] == 44
    monkeypatch.setitem(globals(), "ELEMENT", tl.int32)
    with pytest.raises(RuntimeError, match=r"Global variable ELEMENT has changed .* int8 to int32"):
        kernel[(1,)](out, 300)
    jit(cast_to_global)[(1,)](out, 300)  # nor is it found in the disk cache
    assert out[0] == 300


# -- caches and threads ---------------------------------------------------------------------------


def test_disk_cache_avoids_compilation(
    make: Callable[..., JITFunction], cache_dir: Path, builds: list[str]
) -> None:
    out = np.zeros(1, np.int32)
    first = make(fill)[(1,)](out, 5)
    second = make(fill)[(1,)](out, 7)
    assert out[0] == 7
    assert builds == ["fill"]
    assert second is not first
    assert second.hash == first.hash
    assert dict(second.metadata) == dict(first.metadata)


def test_damaged_cache_entry_is_compiled_again(cache_dir: Path, builds: list[str]) -> None:
    out = np.zeros(1, np.int32)
    jit(fill)[(1,)](out, 5)
    entries = list(cache_dir.glob("*/*.twc"))
    assert len(entries) == 1
    content = entries[0].read_bytes()
    for damaged in (content[: len(content) // 2], b"", content[:-1] + b"?"):
        entries[0].write_bytes(damaged)
        jit(fill)[(1,)](out, 7)
        assert out[0] == 7
        assert entries[0].read_bytes() == content
    assert len(builds) == 4


def test_unusable_cache_folder_is_reported_once(cache_dir: Path, builds: list[str]) -> None:
    cache_dir.write_text("a file is in its place")
    out = np.zeros(1, np.int32)
    with pytest.warns(RuntimeWarning, match="compiled kernels are not cached"):
        jit(fill)[(1,)](out, 7)
    jit(fill)[(1,)](out, 8)  # a second warning would be an error here
    assert out[0] == 8
    assert len(builds) == 2


def test_threads_compile_a_variant_once(
    make: Callable[..., JITFunction], cache_dir: Path, builds: list[str]
) -> None:
    knobs.compilation.always_compile = True  # so that the disk cache does not hide a second time
    kernel = make(add_one)
    outs = [np.zeros(64, np.float32) for _ in range(8)]

    def work(number: int) -> None:
        for _ in range(20):
            kernel[(4,)](outs[number], outs[number], 64, BLOCK=16)

    in_threads(work, len(outs))
    assert builds == ["add_one"]
    assert all((out == 20).all() for out in outs)


def test_interrupted_compilation_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, cache_dir: Path
) -> None:
    kernel, out = jit(fill), np.zeros(1, np.int32)
    with monkeypatch.context() as patch:

        def interrupt(*args: Any) -> Any:
            raise KeyboardInterrupt

        patch.setattr(making, "lower", interrupt)
        with pytest.raises(KeyboardInterrupt):
            kernel[(1,)](out, 5)
    assert not list(cache_dir.rglob("*.twc"))
    assert not list(cache_dir.rglob("*.lock"))
    kernel[(1,)](out, 5)
    assert out[0] == 5


# -- compiled kernels -----------------------------------------------------------------------------


def test_compiled_kernel_launches_by_itself(make: Callable[..., JITFunction]) -> None:
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    compiled = make(add_one).warmup(x, out, 64, BLOCK=32, grid=(2,))
    compiled[(2, 1, 1)](x, out, 64, 32)
    assert np.array_equal(out, x + 1)
    again = pickle.loads(pickle.dumps(compiled))
    again[(2, 1, 1)](out, x, 64, 32)
    assert np.array_equal(x, out + 1)
    with pytest.raises(ValueError, match=r"Pointer argument \(at [01]\) cannot be accessed"):
        compiled[(2,)](x, OnGpu(), 64, 32)


def test_explicit_compilation_needs_no_arguments(make: Callable[..., JITFunction]) -> None:
    source = tilewright.compiler.ASTSource(
        make(add_one), {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 32}
    )
    compiled = tilewright.compile(source, target="cpu")
    assert {"source", "ttir", "llir", "asm", "obj"} <= {
        stage for stage in ("source", "ttir", "llir", "asm", "obj") if stage in compiled.asm
    }
    out = np.zeros(32, np.float32)
    compiled[(1, 1, 1)](out, out, 32, 32)
    assert out.all()


# -- the interpreter ------------------------------------------------------------------------------


def out_of_bounds(out):
    i = tl.arange(0, 8)
    tl.store(out + i, i)


def test_environment_selects_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(jit(fill), InterpretedFunction)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = jit(fill)
    monkeypatch.delenv("TRITON_INTERPRET")
    assert isinstance(kernel, InterpretedFunction)
    out = np.zeros(1, np.int32)
    compiled = kernel[(1,)](out, 5, waves_per_eu=2)  # an option of another target
    assert compiled.metadata.target.backend == "interpreter"
    assert out[0] == 5


def test_interpreter_finds_accesses_out_of_bounds() -> None:
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        kernel = jit(out_of_bounds)
    with pytest.raises(tilewright.InterpreterError, match=r"test_jit\.py:\d+"):
        kernel[(1,)](np.zeros(5, np.int32))


# -- small functions ------------------------------------------------------------------------------


def test_host_functions() -> None:
    assert [tilewright.cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [tilewright.next_power_of_2(n) for n in (1, 2, 3, 33, 2**40 + 1)] == [
        1, 2, 4, 64, 2**41,
    ]  # fmt: skip


def cover(out, N: tl.constexpr):
    size: tl.constexpr = tilewright.next_power_of_2(N)
    tl.store(out, size + tilewright.cdiv(N, 4))


def test_host_functions_work_in_kernels() -> None:
    out = np.zeros(1, np.int32)
    jit(cover)[(1,)](out, N=33)
    assert out[0] == 64 + 9


def test_names_of_a_kernel() -> None:
    kernel = jit(version=7)(fill)
    assert str(kernel) == f"JITFunction({__name__}:fill)"
    assert kernel.version == 7
    assert kernel.module == __name__
    assert kernel.arg_names == ["out", "value"]
    assert not kernel.is_gluon()
    with pytest.raises(AttributeError):
        kernel.src = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_reinterpret_changes_the_element_type() -> None:
    bits = torch.zeros(4, dtype=torch.int8)
    wrapped = tilewright.reinterpret(bits, tl.float8e5)
    jit(fill)[(4,)](wrapped, 1.0)
    expected = np.ones(4, ml_dtypes.float8_e5m2).view(np.int8)
    assert bits.tolist() == expected.tolist()
    assert tilewright.reinterpret(wrapped, torch.int8) is bits
    with pytest.raises(TypeError, match="Cannot reinterpret a <class 'int'>"):
        tilewright.reinterpret(3, tl.int8)
