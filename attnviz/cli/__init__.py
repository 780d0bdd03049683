"""The command line. One module per group of commands; each adds its commands to `app` in its own `register`."""

from .entry import app, main

__all__ = ["app", "main"]
