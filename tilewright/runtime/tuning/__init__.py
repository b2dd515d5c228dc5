"""The autotuner: measurement, protection of arguments, parallel compilation, results, reports."""
