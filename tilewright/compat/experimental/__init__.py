"""The package `triton.experimental`."""
