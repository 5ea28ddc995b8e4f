"""What `develop` prints: one line for each file, and a summary with the exit code.

Tested in tests/cli/test_cli_raws.py.
"""

from typing import TYPE_CHECKING

import typer

from debayes.cli.options import show
from debayes.system import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from debayes.darkroom.batch import Outcome


def describe(outcome: "Outcome") -> str:
    """One line about one developed file."""
    if outcome.error:
        return ""
    if outcome.answer is None:
        return f"{outcome.job.target} was there already (--overwrite develops it again)"
    answer = outcome.answer
    kind = "stored" if answer["profile"]["stored"] else "estimated"
    level = (answer["profile"]["gain"] * 0.18 + answer["profile"]["floor"]) ** 0.5
    line = f"{', '.join(answer['written'])}  {answer['width']}x{answer['height']} {answer['pattern']}"
    line += f", noise {100 * level:.2g} % of white at middle grey ({kind})"
    if "adapted" in answer:
        line += f", adapted {answer['adapted']['steps']} steps ({answer['adapted']['reason']})"
    return "; ".join((line, *answer["assumed"]))


def summarise(outcomes: "Sequence[Outcome]", as_json: bool) -> None:
    """Print what was done and what failed, and exit with 1, 2 or 70 if something did."""
    failed = [outcome.error for outcome in outcomes if outcome.error]
    bugs = [outcome.bug for outcome in outcomes if outcome.bug is not None]
    if as_json:
        answers = [
            {"source": str(o.job.source), "written": [], "skipped": o.skipped, "error": o.error} | (o.answer or {})
            for o in outcomes
        ]
        show(answers, True, "")
    elif len(outcomes) > 1:
        skipped = sum(outcome.skipped for outcome in outcomes)
        done = len(outcomes) - skipped - len(failed)
        again = " (--overwrite develops them again)" if skipped else ""
        typer.echo(f"{done} developed, {skipped} were there already{again}, {len(failed)} failed")
    for error in failed:
        typer.echo(f"debayes: {error}", err=True)
    if bugs:
        raise bugs[0]
    if failed:
        raise typer.Exit(errors.SOME_FAILED if len(failed) < len(outcomes) else errors.FAILED)
