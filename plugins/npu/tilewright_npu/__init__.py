"""A reference NPU: the target, the launcher and the driver of a device that is simulated."""
