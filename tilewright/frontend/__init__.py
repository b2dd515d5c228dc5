"""The front end: translates the Python source of a kernel to tile IR (`build.build_module`)."""
