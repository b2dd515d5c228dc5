"""Access to the devices that run kernels: loading of machine code, memory, streams, launches.

A module here is imported lazily, by the first kernel that is launched on its device.
"""
