"""The registry of back ends."""

from types import SimpleNamespace

from triton.backends.toy import compiler, driver

backends = {"toy": SimpleNamespace(compiler=compiler.ToyBackend, driver=driver.ToyDriver)}
