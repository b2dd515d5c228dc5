"""The active driver."""

from types import SimpleNamespace

from triton.backends.toy.driver import ToyDriver

driver = SimpleNamespace(active=ToyDriver())
