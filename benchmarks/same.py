"""Show that a change of the code keeps its results.

    python benchmarks/same.py write before.npz --raws RAWS --pictures PICTURES       # with the code as it was
    python benchmarks/same.py compare before.npz --raws RAWS --pictures PICTURES     # with the code of now

`write` stores four kinds of results, `compare` computes them again and prints a table of the differences:

- engine: posteriors of a drawn mosaic, of every shipped network with every installed engine. PyTorch in single
  precision (eager) must give the same bits; the others must agree as closely as each must with the network itself
  (`debayes.engine.selftest`).
- develop: the 16-bit counts of every camera file under RAWS, at two strengths of noise reduction. The same bits.
- evaluate: the scores of `debayes evaluate` on the first three pictures of PICTURES. The same bits.
- train: the weights after 20 steps of a small recipe on drawn tiles. The same bits.

Both runs must be on one machine with the same libraries. Only the public API and the command line are used, so that
older and newer versions of the code can be compared: set PYTHONPATH to the `src` folder of each. The exit code is 1
if anything differs.
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import rawpy
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load_file

import debayes
from debayes.engine import prepare

Results = dict[str, NDArray[Any]]

ENGINES = ("eager", "half", "winograd", "compile", "ncnn", "onnxruntime", "openvino")
KINDS = ("engine", "develop", "evaluate", "train")

# The endings of camera files.
CAMERA_FILES = (".arw", ".cr2", ".cr3", ".crw", ".dng", ".kdc", ".nef", ".orf", ".pef", ".raf", ".rw2")

# Shares of the noise that are taken out.
STRENGTHS = ("1.0", "0.6")

# The pictures that `debayes evaluate` scores.
PICTURES = 3

# Limits of the difference between engines, as in `debayes.engine.selftest`: of the largest difference in single
# precision, of the root mean square in half precision.
SINGLE, HALF = 1e-4, 1e-3

RECIPE = """
[data]
train = ["tiles"]
tile = 64

[network]
widths = [16, 24]
blocks = 1
bottom_blocks = 1
tail = 8
tail_blocks = 0

[noise]
high = 20.0

[loss]
count = 100.0
window = 9
gain = 5000.0

[optimizer]
rate = 4e-3
muon = 1.0
warmup = 20
batch = 8
patch = 32
average = 0.95
steps = 20
"""


def main() -> int:
    """Write results, or compare with what was written."""
    summary, details = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("results", type=Path, help="the NPZ file that `write` makes and `compare` reads")
    parser.add_argument("--raws", type=Path, help="a folder of camera files, searched through; default: none")
    parser.add_argument("--pictures", type=Path, help="a folder of pictures to score; default: none")
    parser.add_argument("--engines", nargs="*", default=ENGINES, help="engines to compare; default: all installed")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="kinds of results; default: all")
    options = parser.parse_args()
    if options.action == "compare" and not options.results.is_file():
        parser.error(f"there is no file {options.results}: make it with `write` first")
    results: Results = {}
    if "engine" in options.only:
        results |= run_engines(options.engines)
    if "develop" in options.only and options.raws:
        results |= develop(options.raws)
    if "evaluate" in options.only and options.pictures:
        results |= evaluate(options.pictures)
    if "train" in options.only:
        results |= train()
    if options.action == "write":
        np.savez(options.results, **results)  # type: ignore[arg-type]
        print(f"{len(results)} results written to {options.results}")
        return 0
    with np.load(options.results) as stored:
        wanted = {name: stored[name] for name in stored.files if name.split("/")[0] in options.only}
    return compare(wanted, results)


def run_engines(engines: list[str]) -> Results:
    """Means and standard deviations that each shipped network gives with each engine on the CPU."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:272, :340]
    scene = 0.5 + 0.4 * np.sin(x * y / 2500) * np.cos(x / 17)
    mosaic = torch.from_numpy((scene + 0.04 * generator.standard_normal(scene.shape)).astype(np.float32))[None]
    results: Results = {}
    for weights in sorted((Path(debayes.__file__).parent / "pretrained").glob("*.safetensors")):
        network = debayes.load(weights.stem)
        for name in engines:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    engine = prepare(network, name)
                except ValueError as error:
                    print(f"{weights.stem}, {name}: {error}")
                    continue
                posterior = debayes.restore(engine, mosaic, "RGGB")
            if engine.name != name:
                print(f"{weights.stem}, {name}: rejected by the self-test")
                continue
            results[f"engine/{weights.stem}/{name}/mean"] = posterior.mean.numpy()
            for kind in ("noise", "doubt"):
                variance = posterior.noise_variance if kind == "noise" else posterior.mean_variance
                results[f"engine/{weights.stem}/{name}/{kind}"] = variance.sqrt().numpy()
    return results


def develop(folder: Path) -> Results:
    """The counts of the DNG files that `debayes develop` writes; none for a file that it cannot develop."""
    raws = sorted(path for path in folder.rglob("*") if path.suffix.lower() in CAMERA_FILES)
    results: Results = {}
    with tempfile.TemporaryDirectory() as name:
        copies = {path: Path(name, f"{i:03}-{path.name}") for i, path in enumerate(raws)}
        for path, copy in copies.items():
            copy.symlink_to(path.resolve())
        for strength in STRENGTHS:
            output = Path(name, strength)
            command = ["develop", *map(str, copies.values()), "-o", str(output), "--strength", strength]
            run(*command, "--model", "raw-s", "--engine", "eager", "--device", "cpu", allowed=(0, 1))
            for path, copy in copies.items():
                developed = output / f"{copy.stem}-debayes.dng"
                counts = np.zeros(0, np.uint16)
                if developed.exists():
                    with rawpy.imread(str(developed)) as file:
                        counts = file.raw_image_visible.copy()
                results[f"develop/{path.relative_to(folder)}/{strength}"] = counts
    return results


def evaluate(folder: Path) -> Results:
    """The scores that `debayes evaluate` gives pictures, by method, picture and noise level."""
    pictures = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".png", ".tif", ".tiff", ".jpg"))
    results: Results = {}
    with tempfile.TemporaryDirectory() as name:
        for path in pictures[:PICTURES]:
            shutil.copy(path, Path(name, path.name))
        table = Path(name, "scores.csv")
        models = ["-m", "wild-s", "paper", "--baseline", "bilinear", "malvar"]
        run("evaluate", "--data", name, *models, "--device", "cpu", "--csv", str(table))
        with table.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                scores = [float(row[key] or "nan") for key in ("psnr", "ssim", "noise_error")]
                results["/".join(("evaluate", row["method"], row["name"], row["sigma"]))] = np.array(scores)
    return results


def train() -> Results:
    """The weights after a short training."""
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        tiles = Path(name, "tiles")
        tiles.mkdir()
        y, x = np.mgrid[:64, :64]
        for i in range(12):
            phase, down, across = generator.uniform(0, 3, (3, 3))  # of three colours each
            wave = 127.5 + 100 * np.sin(phase + y[..., None] * down / 6 + x[..., None] * across / 6)
            Image.fromarray(wave.astype(np.uint8)).save(tiles / f"{i:02}.png")
        recipe = Path(name, "small.toml")
        recipe.write_text(RECIPE, encoding="utf-8")
        run("train", str(recipe), "-o", str(Path(name, "run")), "--data", name, "--device", "cpu")
        weights = load_file(Path(name, "run", "weights.safetensors"))
    return {f"train/{key}": value for key, value in weights.items()}


def run(*arguments: str, allowed: tuple[int, ...] = (0,)) -> None:
    """Run `debayes` in a separate process, with the code that this process uses."""
    path = os.pathsep.join((str(Path(debayes.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, "-m", "debayes", *arguments]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode not in allowed:
        sys.exit(f"debayes {arguments[0]} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")


def compare(before: Results, after: Results) -> int:
    """Print a line for each kind of result, and each result that differs too much. 1 if there are any."""
    print("| results | count | identical | largest difference | too different |\n|---|---|---|---|---|")
    groups: dict[str, list[str]] = {}
    for name in sorted(before.keys() | after.keys()):
        parts = name.split("/")
        groups.setdefault(f"engine {parts[2]}" if parts[0] == "engine" else parts[0], []).append(name)
    problems: list[str] = []
    for group, names in groups.items():
        both = [name for name in names if name in before and name in after]
        problems += [f"{name}: only {'before' if name in before else 'now'}" for name in names if name not in both]
        identical, largest, wrong = 0, 0.0, len(names) - len(both)
        for name in both:
            difference, problem = differ(name, before[name], after[name])
            identical += difference == 0
            largest = max(largest, difference)
            if problem:
                wrong += 1
                problems.append(f"{name}: {problem}")
        print(f"| {group} | {len(names)} | {identical} | {largest:.3g} | {wrong} |")
    print("\n".join(problems) if problems else "the results are the same")
    return int(bool(problems))


def differ(name: str, before: NDArray[Any], after: NDArray[Any]) -> tuple[float, str]:
    """The largest difference of two results, and what is wrong if it is too large."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return np.inf, f"{before.dtype} {before.shape} before, {after.dtype} {after.shape} now"
    error = np.abs(before.astype(np.float64) - after.astype(np.float64))
    error[np.isnan(before) & np.isnan(after)] = 0
    largest = float(error.max(initial=0))
    kind, _, engine, *_ = *name.split("/"), ""
    if kind != "engine" or engine == "eager":
        same = before.tobytes() == after.tobytes()
        return largest, "" if same else f"not the same bits, differs by up to {largest:.3g}"
    if engine == "half":
        error_rms = float(np.sqrt(np.mean(error**2)))
        return largest, "" if error_rms <= HALF else f"differs by {error_rms:.3g} (RMS), limit {HALF:g}"
    return largest, "" if largest <= SINGLE else f"differs by up to {largest:.3g}, limit {SINGLE:g}"


if __name__ == "__main__":
    sys.exit(main())
