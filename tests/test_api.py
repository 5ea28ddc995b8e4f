"""The public names: these, imported when first used."""

import re
import rlcompleter
import subprocess
import sys

import pytest

import debayes


def test_public_names() -> None:
    """All public names are listed here; removing one or adding one changes this test."""
    assert debayes.__all__ == [
        "Config",
        "DebayesError",
        "Developed",
        "Network",
        "NormalInverseGamma",
        "Pattern",
        "Raw",
        "Recipe",
        "adapt",
        "develop",
        "develop_file",
        "evaluate",
        "load",
        "mosaic",
        "prepare",
        "read",
        "read_recipe",
        "restore",
        "restore_image",
        "restore_tiles",
        "train",
    ]


def test_shells_complete_them() -> None:
    """`debayes.` and the Tab key list every public name, and no other of the package."""
    completer = rlcompleter.Completer({"debayes": debayes})
    found = {name.removeprefix("debayes.").rstrip("()") for name in completer.attr_matches("debayes.")}
    assert {name for name in found if not name.startswith("_")} == set(debayes.__all__)


def test_help_fits_a_screen() -> None:
    """It names everything public, and loads no torch."""
    code = "import debayes, pydoc, sys\nprint(pydoc.render_doc(debayes))\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) < 60
    assert set(debayes.__all__) <= set(re.findall(r"\w+", done.stdout))


def test_names_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a test of another program does."""
    with monkeypatch.context() as patch:
        patch.setattr(debayes, "load", None)
        assert debayes.load is None
    assert callable(debayes.load)


@pytest.mark.parametrize("name", debayes.__all__)
def test_each_is_there(name: str) -> None:
    """It can be called, and says what it does."""
    value = getattr(debayes, name)
    assert callable(value) and value.__doc__


def test_what_a_user_can_put_right_is_a_value_error() -> None:
    """So a program that does not know debayes' own error catches it all the same."""
    assert issubclass(debayes.DebayesError, ValueError)


def test_unknown_names_are_attribute_errors() -> None:
    """A typo fails as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'restroe'"):
        debayes.restroe  # noqa: B018


def test_import_loads_nothing_heavy() -> None:
    """`import debayes` loads no torch; using a name does."""
    code = (
        "import sys, debayes\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "debayes.DebayesError\nassert 'torch' not in sys.modules\n"
        "debayes.Network\nassert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
