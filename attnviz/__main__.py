"""`python -m attnviz` is the `attnviz` command."""

from .cli import main

main()
