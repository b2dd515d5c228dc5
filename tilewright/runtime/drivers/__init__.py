"""The run side of each backend, as programs ask it; each loads when it is first needed."""
