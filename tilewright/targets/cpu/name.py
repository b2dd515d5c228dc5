"""The name of the target, under which it may override lowerings."""

from tilewright.base.target_names import declare_target

NAME = declare_target("cpu")
