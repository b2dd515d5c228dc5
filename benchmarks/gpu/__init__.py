"""The same kernels under tilewright, Triton and torch on one GPU: ``python -m benchmarks.gpu``.

`kernels/` has kernels as users of Triton write them. `work/` defines the cases: sizes,
configurations, torch's implementation, exact results and target ratios. `dialect` loads a kernel
for one compiler or the other, `case` checks results, `clock` measures times, `measure` combines
these. `worker` runs the cases in a process of its own, which `supervisor` restarts if a kernel
crashes it. `report` and `page` format the results.
"""
