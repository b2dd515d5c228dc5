"""What every test shares: a check for the device, a temporary cache, reproducible randomness.

Fuzz tests take the fixture `fuzz_seed` and run once for each seed:

    def test_passes_preserve_the_semantics_of_random_kernels(fuzz_seed: int) -> None:
        rng = np.random.default_rng(fuzz_seed)

    pytest tests/fuzz --fuzz-count=500                      # 500 seeds from the default one on
    pytest tests/fuzz --fuzz-seed=random --fuzz-count=500   # 500 seeds never tried before
    pytest 'tests/fuzz/test_passes.py::test_passes…[seed=123]' --fuzz-seed=123 --fuzz-count=1
"""

import ctypes
import gc
import os
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from functools import cache
from typing import Any

import hypothesis
import pytest

# A pure function of the tests, so that a failure is reproducible; random seeds are an option.
DEFAULT_FUZZ_SEED = 0
DEFAULT_FUZZ_COUNT = 4


def _load_hypothesis_profile() -> None:
    """Without deadlines, as time depends on the machine; deterministic except when exploring."""
    slow_machine = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile(
        "tilewright", deadline=None, suppress_health_check=slow_machine
    )
    hypothesis.settings.register_profile(
        "tilewright-ci",
        deadline=None,
        max_examples=40,  # always the same ones
        suppress_health_check=slow_machine,
        derandomize=True,
        database=None,
        print_blob=True,
    )
    in_ci = bool(os.environ.get("CI"))
    hypothesis.settings.load_profile("tilewright-ci" if in_ci else "tilewright")


# Programs that tests start would start torch's compile workers, which import torch, but for a few
# kernels; tests that need workers start them.
os.environ.setdefault("TORCH_WARM_POOL", "0")

# At import: pytest's option --hypothesis-profile is applied later and so still wins.
_load_hypothesis_profile()


def _seed_option(text: str) -> int:
    if text == "random":
        return secrets.randbelow(2**31)
    return int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fuzz", "fuzz tests")
    group.addoption(
        "--fuzz-seed",
        type=_seed_option,
        default=DEFAULT_FUZZ_SEED,
        metavar="N|random",
        help=f"first seed of each fuzz test (default {DEFAULT_FUZZ_SEED})",
    )
    group.addoption(
        "--fuzz-count",
        type=int,
        default=DEFAULT_FUZZ_COUNT,
        metavar="N",
        help=f"how many seeds each fuzz test tries (default {DEFAULT_FUZZ_COUNT})",
    )
    parser.addoption(
        "--all-cases",
        action="store_true",
        help="run all cases of each test; by default one in n of those marked sampled(n)",
    )
    parser.addoption(
        "--kills",
        type=int,
        default=4,
        metavar="N",
        help="how many processes at work on the disk cache are killed (default 4)",
    )
    parser.addoption(
        "--bless",
        action="store_true",
        help="write the present results into the files of expected results; runs without workers",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """With --bless, run all tests in this process: workers would overwrite each other's results.

    Each test that blesses reads a file, replaces its own part and writes the file. Runs before
    xdist's function of this name, which starts workers as its options say.
    """
    if config.option.bless:
        config.option.numprocesses = 0
        config.option.distload = False


def pytest_configure(config: pytest.Config) -> None:
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        _use_temporary_cache(config)
        _verify_after_each_pass(config)
        _reject_slow_products(config)
    else:
        config.option.fuzz_seed = worker["fuzz_seed"]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give an xdist worker this process's seed: it would draw another from --fuzz-seed=random."""
    node.workerinput["fuzz_seed"] = node.config.option.fuzz_seed


def _use_temporary_cache(config: pytest.Config) -> None:
    """Point the kernel cache at a temporary folder, one for all workers of the session.

    The workers share it on purpose: a cache that many processes may use is what users have. They
    inherit the variable from the process that started them, which alone makes and removes it.
    """
    folder = tempfile.mkdtemp(prefix="tilewright-test-cache-")
    _set_for_the_session(config, "TILEWRIGHT_CACHE_DIR", folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def _verify_after_each_pass(config: pytest.Config) -> None:
    """Have the verifier name the pass that breaks a rule, whichever test meets it."""
    _set_for_the_session(config, "TILEWRIGHT_VERIFY", "1")


def _reject_slow_products(config: pytest.Config) -> None:
    """Have a kernel fail whose products ptxas serialises, whichever test compiles it."""
    _set_for_the_session(config, "TILEWRIGHT_STRICT_PRODUCTS", "1")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a part of the cases of tests that are marked so, out of those that are selected by name;
    and without a device one case of each test that needs one, which reports why it is skipped."""
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    cases: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        number = cases[test]
        cases[test] += 1
        (dropped if number % _one_in(config, item) else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=dropped)


def _one_in(config: pytest.Config, item: pytest.Item) -> int:
    """n if one in n cases of a test runs."""
    if item.get_closest_marker("gpu") is not None and missing_cuda_device() is not None:
        return sys.maxsize
    sampled = item.get_closest_marker("sampled")
    return 1 if sampled is None or config.option.all_cases else sampled.args[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: there is hardly any, and the collector takes a
    fifth of the processor time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep the garbage collector from traversing all tests and modules again and again.

    They are never garbage. Compilations make many objects that live for a while, so that with
    Python's threshold of 700 collections take a twentieth of the time or more.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def _set_for_the_session(config: pytest.Config, name: str, value: str) -> None:
    """Set an environment variable, for the workers too, until the session ends."""
    before = os.environ.get(name)
    os.environ[name] = value

    def restore() -> None:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before

    config.add_cleanup(restore)


def _fuzz_seeds(config: pytest.Config) -> range:
    first: int = config.option.fuzz_seed
    count: int = config.option.fuzz_count
    return range(first, first + count)


def pytest_report_header(config: pytest.Config) -> str:
    seeds = _fuzz_seeds(config)
    return f"fuzz: --fuzz-seed={seeds.start} --fuzz-count={len(seeds)}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fuzz_seed" in metafunc.fixturenames:
        seeds = _fuzz_seeds(metafunc.config)
        metafunc.parametrize("fuzz_seed", seeds, ids=lambda seed: f"seed={seed}", indirect=True)


@pytest.fixture
def fuzz_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this case; a failure shows the command that runs the case again."""
    seed: int = request.param
    print(f"rerun: pytest '{request.node.nodeid}' --fuzz-seed={seed} --fuzz-count=1")
    return seed


@cache
def missing_cuda_device() -> str | None:
    """Why no CUDA device can be used, or None where one can; queries the driver, not torch."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "needs a CUDA device: libcuda.so.1 cannot be loaded"
    status = driver.cuInit(0)
    if status != 0:
        return f"needs a CUDA device: cuInit failed with CUDA error {status}"
    count = ctypes.c_int(0)
    status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        return f"needs a CUDA device: the driver sees none (CUDA error {status})"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    reason = missing_cuda_device()
    if reason is not None:
        pytest.skip(reason)
