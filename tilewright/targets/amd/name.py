"""The name of the target, under which it overrides lowerings and emitters."""

from tilewright.base.target_names import declare_target

NAME = declare_target("hip")
