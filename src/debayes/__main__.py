"""`python -m debayes`."""

from debayes.cli import main

main()
