"""attnviz: the microscope for attention."""

__version__ = "0.1.0"
