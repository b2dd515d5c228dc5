"""The runtime drivers of the backends (`tilewright.runtime.driver`), imported lazily."""
