"""The command line."""

from debayes.cli.app import main as main
