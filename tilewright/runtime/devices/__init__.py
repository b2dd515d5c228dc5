"""Where kernels run. Each module is loaded by the first kernel that needs its device."""
