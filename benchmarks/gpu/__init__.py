"""The same kernels under tilewright, Triton and torch on one GPU: ``python -m benchmarks.gpu``.

`kernels/` are kernels as users of Triton write them. `work/` says what is done with them: sizes,
configurations, torch's way to do the same, exact results, and the ratios that are aimed at.
`dialect` loads a kernel for one module or the other, `case` checks results, `clock` takes times,
`measure` puts these together. `worker` does one case after another in a process of its own, which
`supervisor` starts again when a kernel takes it down. `report` and `page` show the results.
"""
