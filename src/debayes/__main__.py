"""`python -m debayes`. Tested in tests/cli/test_cli.py."""

from debayes.cli import main

main()
