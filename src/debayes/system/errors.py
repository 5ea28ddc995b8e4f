"""The error for what a user can put right."""


class DebayesError(ValueError):
    """A file, an option or an array that debayes cannot work with.

    The message says what was expected, what came, and what to do. The command line prints it as one line and exits
    with code 2; any other error, but for those of the system and lack of memory, is a bug of debayes.
    """
