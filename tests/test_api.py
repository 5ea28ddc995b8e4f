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


HOST = """
import gc, warnings
import numpy as np
import torch
from PIL import Image
import debayes

def settings():
    return (
        torch.get_num_threads(), torch.get_num_interop_threads(), torch.backends.cudnn.benchmark,
        torch.get_float32_matmul_precision(), torch.get_rng_state().tolist(), torch.is_grad_enabled(),
        gc.get_threshold(), gc.isenabled(), warnings.formatwarning, warnings.showwarning, Image.MAX_IMAGE_PIXELS,
        np.random.get_state()[1].tolist(),
    )

before = settings()
network, raws = debayes.load("wild-s"), debayes.load("raw-s")
mosaic = np.random.default_rng(0).random((64, 64)).astype(np.float32)
for method in (network, debayes.prepare(network, "eager"), debayes.prepare(network)):
    debayes.restore(method, mosaic)
    debayes.restore_image(method, mosaic)
debayes.adapt(network, mosaic, steps=1, side=32, whole=True)
debayes.develop(raws, debayes.Raw.from_array(mosaic, "GRBG", black=0, white=1), strength=0.5)
debayes.evaluate(network, [np.stack([mosaic] * 3, 2)], [5.0])
for one, other in zip(before, settings(), strict=True):
    assert one == other, (one, other)
"""


def test_the_host_program_keeps_its_settings() -> None:
    """Threads, random numbers, garbage collection, warnings, and the settings of PyTorch and Pillow."""
    subprocess.run([sys.executable, "-c", HOST], check=True)
