"""Everything attnviz raises on purpose: one line that gives the rule, the value and the remedy.

AttnvizError
    UsageError          an argument is wrong: layer, head, format, option (exit code 2)
    ModelError          a model cannot be found, fetched or loaded
    RecordingError      attention could not be recorded, or not exactly
    BudgetError         the result would not fit into the memory it may use
    TraceFileError      a trace file is damaged, foreign or of another version
    DataError           annotated text (clusters, links, dependencies) does not hold together
"""


class AttnvizError(Exception):
    """The base of the family; `exit_code` is what the command line ends with."""

    exit_code = 1


class UsageError(AttnvizError):
    """An argument is wrong; the message names it and what is allowed."""

    exit_code = 2


class ModelError(AttnvizError):
    """A model cannot be found, fetched or loaded."""


class RecordingError(AttnvizError):
    """Attention could not be recorded, or not exactly."""


class BudgetError(AttnvizError):
    """The result would not fit into the memory it may use."""


class TraceFileError(AttnvizError):
    """A trace file is damaged, foreign or of another version."""


class DataError(AttnvizError):
    """Annotated text does not hold together; the message names the place."""
