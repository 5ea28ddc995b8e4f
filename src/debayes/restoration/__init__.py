"""Restoring a mosaic with a network or an engine."""

from debayes.restoration.checked import restore as restore
from debayes.restoration.checked import restore_image as restore_image
from debayes.restoration.checked import restore_tiles as restore_tiles
