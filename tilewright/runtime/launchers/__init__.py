"""How kernels of each target are loaded and started; each loads with the first such kernel."""
