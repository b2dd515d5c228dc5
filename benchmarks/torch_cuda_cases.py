"""Functions for torch.compile on a GPU that are measured: `benchmarks/torch_compile_cuda.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.torch_models import ConvNet, Gpt, Layer, Mlp, NormChain, ResidualBlock

Step = Callable[[], tuple[Tensor, ...]]
Steps = tuple[Step, Step]
"""The function in eager execution, if it can run so, and compiled."""

HALF = torch.bfloat16


@dataclass(frozen=True)
class Case:
    """What is compiled.

    Attributes:
        make: makes its steps, in the process that measures them.
        tolerance: the largest difference from eager execution that is accepted, relative to the
            largest element; eager execution rounds to bf16 between operators, and compiled
            functions do not.
    """

    name: str
    make: Callable[[], Steps]
    tolerance: float = 2e-2


def _function(
    function: Callable[..., Any], *inputs: Callable[[], Tensor], **options: Any
) -> Callable[[], Steps]:
    def make() -> Steps:
        tensors = [draw() for draw in inputs]
        compiled: Any = torch.compile(function, **options)

        def step(run: Callable[..., Any]) -> Step:
            return lambda: (run(*tensors),)

        return step(function), step(compiled)

    return make


def _gradient(x: Tensor) -> Tensor:
    """A copy of the gradient, as the next step may write into its memory."""
    assert x.grad is not None
    return x.grad.clone()


def _steps(module: nn.Module, x: Tensor, train: bool, **options: Any) -> Steps:
    compiled: Any = torch.compile(module, **options)

    def step(run: Any) -> Step:
        def infer() -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (run(x),)

        def learn() -> tuple[Tensor, ...]:
            module.zero_grad()
            loss = run(x).float().square().mean()
            loss.backward()
            return (loss, *(_gradient(p) for p in list(module.parameters())[:4]))

        return learn if train else infer

    return step(module), step(compiled)


def _module(
    build: Callable[[], nn.Module],
    draw: Callable[[], Tensor],
    train: bool = True,
    dtype: torch.dtype = HALF,
    **options: Any,
) -> Callable[[], Steps]:
    def make() -> Steps:
        module = build().to("cuda", dtype).train(train)
        return _steps(module, draw(), train, **options)

    return make


def _normal(*shape: int, dtype: torch.dtype = HALF) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape, device="cuda", dtype=dtype)


def _tokens(words: int, *shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, words, shape, device="cuda")


def _positive_sums(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x * y + 1).sum(-1)


def _softmax(x: Tensor) -> Tensor:
    return functional.softmax(x * 0.125, -1)


class CrossEntropy(nn.Module):
    def __init__(self, width: int = 1024, words: int = 32000) -> None:
        super().__init__()
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        labels = torch.arange(x.shape[0], device=x.device)
        return functional.cross_entropy(self.head(x).float(), labels)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ResidualBlock(64, 64, 1), ResidualBlock(64, 128, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


FLOAT = torch.float32

MODELS = (
    Case("elementwise, sum", _function(_positive_sums, _normal(8192, 4096), _normal(8192, 4096))),
    Case("softmax", _function(_softmax, _normal(8192, 4096))),
    Case("layer norm", _module(lambda: nn.LayerNorm(4096), _normal(8192, 4096))),
    Case("norm chain", _module(lambda: NormChain(1024), _normal(8192, 1024))),
    Case("GELU MLP", _module(lambda: Mlp(1024), _normal(8192, 1024))),
    Case("encoder layer", _module(lambda: Layer(512), _normal(32, 512, 512))),
    Case("small GPT", _module(lambda: Gpt(8192, 512, 512), _tokens(8192, 16, 512))),
    Case("cross-entropy", _module(CrossEntropy, _normal(4096, 1024))),
    Case("conv net", _module(ConvNet, _normal(256, 3, 64, 64, dtype=FLOAT), dtype=FLOAT)),
    Case("residual blocks", _module(Residual, _normal(64, 64, 56, 56), train=False)),
)


def _flex() -> Steps:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def near(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q >= k) & (q - k < 512)

    def slope(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score + (k - q) * 0.01

    mask = create_block_mask(near, None, None, 2048, 2048, device="cuda")
    q, k, v = (
        torch.randn(2, 8, 2048, 64, device="cuda", dtype=HALF, requires_grad=True) for _ in range(3)
    )

    def step(run: Any) -> Step:
        def learn() -> tuple[Tensor, ...]:
            q.grad = k.grad = v.grad = None
            out = run(q, k, v, score_mod=slope, block_mask=mask)
            out.float().square().mean().mul(1000).backward()
            return (out, *map(_gradient, (q, k, v)))

        return learn

    return step(flex_attention), step(torch.compile(flex_attention))


def _template() -> Steps:
    x, w = _normal(2048, 2048)(), _normal(2048, 2048)()

    def product(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(x @ w + 1)

    options: Any = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
    compiled: Any = torch.compile(product, options=options)
    return (lambda: (product(x, w),)), (lambda: (compiled(x, w),))


def _own_operator() -> Steps:
    from benchmarks.torch_cuda_kernels import scaled_sum

    x, y = _normal(1 << 22)(), _normal(1 << 22)()

    def f(x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(scaled_sum(x, y)) + 1

    compiled: Any = torch.compile(f, fullgraph=True)
    return (lambda: (f(x, y),)), (lambda: (compiled(x, y),))


def _own_kernels() -> Steps:
    from benchmarks.torch_cuda_kernels import plain_and_tuned

    x, y = _normal(1 << 22)(), _normal(1 << 22)()
    compiled: Any = torch.compile(plain_and_tuned, fullgraph=True)
    return (lambda: (plain_and_tuned(x, y),)), (lambda: (compiled(x, y),))


def _dynamic() -> Steps:
    lengths = (1000, 777, 4096)
    x = [torch.randn(16, n, device="cuda", requires_grad=True) for n in lengths]

    def f(x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:]).softmax(-1).mul(x).sum(0)

    compiled: Any = torch.compile(f, dynamic=True)

    def step(run: Any) -> Step:
        def all_lengths() -> tuple[Tensor, ...]:
            found: list[Tensor] = []
            for one in x:
                one.grad = None
                out = run(one)
                out.square().sum().backward()
                found += [out, _gradient(one)]
            return tuple(found)

        return all_lengths

    return step(f), step(compiled)


def _optimizer() -> Steps:
    def step_of(compile_it: bool) -> Step:
        torch.manual_seed(0)
        parameters = [torch.randn(512, 64 + i, device="cuda") for i in range(20)]
        for p in parameters:
            p.grad = torch.ones_like(p) * 0.1
        adam = torch.optim.AdamW(parameters, lr=1e-3, capturable=True)
        run: Any = torch.compile(adam.step) if compile_it else adam.step

        def step() -> tuple[Tensor, ...]:
            run()
            return tuple(p.clone() for p in parameters)

        return step

    return step_of(False), step_of(True)


def _small_kernel() -> Steps:
    x = torch.randn(1024, device="cuda")

    def f(x: Tensor) -> Tensor:
        return torch.relu(x * 2 + 1)

    compiled: Any = torch.compile(f)
    return (lambda: (f(x),)), (lambda: (compiled(x),))


CPP: dict[str, Any] = {
    "cpp_cache_precompile_headers": False,
    "aot_inductor.precompile_headers": False,
    "aot_inductor.compile_wrapper_opt_level": "O0",
}
"""Settings with which the C++ compiler takes seconds rather than a minute."""


def _ahead_of_time() -> Steps:
    x = _normal(1024, 1024)()

    class Softmax(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return _softmax(x)

    def step() -> tuple[Tensor, ...]:
        if not loaded:
            from torch._inductor import aoti_compile_and_package, aoti_load_package

            program = torch.export.export(Softmax(), (x,))
            package = aoti_compile_and_package(program, inductor_configs=CPP)
            loaded.append(aoti_load_package(package))
        return (loaded[0](x),)

    loaded: list[Any] = []
    return (lambda: (_softmax(x),)), step


def _cumulative(x: Tensor) -> Tensor:
    return x.cumsum(-1).sort(-1).values.amax(-1) + x.argmax(-1)


def _scattered(x: Tensor, i: Tensor) -> Tensor:
    return torch.zeros(1000, 64, device=x.device).index_add(0, i, x).relu()


GRAPHS, TUNED = "reduce-overhead", "max-autotune-no-cudagraphs"

FEATURES = (
    Case("flex attention", _flex),
    Case("template", _template),
    Case("triton_op", _own_operator),
    Case("own kernels", _own_kernels),
    Case("CUDA graphs", _module(lambda: Layer(256), _normal(8, 128, 256), mode=GRAPHS)),
    Case("dynamic shapes", _dynamic),
    Case("one small kernel", _small_kernel),
    Case("AdamW", _optimizer),
    Case("cumsum, argmax", _function(_cumulative, _normal(512, 1000, dtype=FLOAT))),
    Case("index_add", _function(_scattered, _normal(8192, 64, dtype=FLOAT), _tokens(1000, 8192))),
    Case("max-autotune", _module(lambda: Mlp(512), _normal(1024, 512), train=False, mode=TUNED)),
)

CPP_LAUNCHES = (
    Case(
        "cpp_wrapper", _function(_softmax, _normal(1024, 1024), options=CPP | {"cpp_wrapper": True})
    ),
    Case("AOTInductor", _ahead_of_time),
)

SETS: dict[str, tuple[Case, ...]] = {
    "models": MODELS,
    "features": FEATURES,
    "cpp": CPP_LAUNCHES,
}
