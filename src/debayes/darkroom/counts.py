"""The shot in a file: a camera raw, or the counts of a sensor as a plain array.

Tested in tests/cli/test_counts.py.
"""

from pathlib import Path

from debayes.formats import pictures
from debayes.formats import raw as raws
from debayes.formats.raw import Raw
from debayes.system.errors import DebayesError
from debayes.system.log import log

_TIFF = (".tif", ".tiff")


def read_shot(
    source: Path, *, black: float | None = None, white: float | None = None, pattern: str | None = None
) -> Raw:
    """A camera raw; or, if the file is an NPY, or a TIFF and a pattern is given, the counts in it.

    `black`, `white` and `pattern` replace what a raw says; counts need all three.
    """
    suffix = source.suffix.lower()
    if suffix == ".npy" or (suffix in _TIFF and pattern is not None):
        return _read_counts(source, black, white, pattern)
    try:
        return raws.read(source, black=black, white=white, pattern=pattern)
    except DebayesError as error:
        if suffix not in _TIFF:
            raise
        raise DebayesError(
            f"{source} is not a camera raw that can be read ({error}); if it holds the counts of a sensor, give "
            "--pattern, --black and --white"
        ) from None


def _read_counts(source: Path, black: float | None, white: float | None, pattern: str | None) -> Raw:
    given = {"--pattern": pattern, "--black": black, "--white": white}
    missing = [name for name, value in given.items() if value is None]
    if black is None or white is None or pattern is None:
        raise DebayesError(
            f"{source} holds the counts of a sensor, which do not say their colour pattern and levels: "
            f"give {' and '.join(missing)}"
        )
    counts = pictures.read_mosaic(source, black=0, white=1).values[0].numpy()
    raw = Raw.from_array(counts, pattern, black=black, white=white)
    for assumption in raw.assumed:
        log.info("%s: assumed: %s", source, assumption)
    return raw
