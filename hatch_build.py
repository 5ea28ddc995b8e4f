"""What is compiled when debayes is built: `winograd.c`, once for each kind of vector units.

Without a C compiler debayes is built all the same, and lacks the engine `winograd`.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src", "debayes", "winograd.c")

# By what `torch.backends.cpu.get_cpu_capability` calls the units: floats of a vector, tiles at once, what else the
# compiler is told. Products fill most of the registers: 16 of 8 floats, or 32 of 16.
X86 = {"AVX2": (8, 6, "-mavx2 -mfma"), "AVX512": (16, 12, "-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma")}
OTHERS = {"DEFAULT": (8, 6, "")}


class Compiler(BuildHookInterface):  # type: ignore[misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile for all units that the machine's processors may have, and have the wheel hold it."""
        if self.target_name != "wheel":
            return
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None or sys.platform == "win32":
            self.app.display_warning("no C compiler was found: debayes is built without the engine winograd")
            return
        for name, (lanes, tiles, flags) in (X86 if platform.machine() in ("x86_64", "AMD64") else OTHERS).items():
            target = Path(self.root, SOURCE.with_name(f"winograd-{name}.so"))
            command = [
                *compiler.split(),
                "-O3",
                "-ffp-contract=fast",
                "-shared",
                "-fPIC",
                "-fvisibility=hidden",
                *flags.split(),
            ]
            command += [f"-DLANES={lanes}", f"-DTILES={tiles}", str(Path(self.root, SOURCE)), "-o", str(target)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                self.app.display_warning(f"debayes is built without the engine winograd: {done.stderr}")
                return
            build_data["artifacts"].append(str(target.relative_to(self.root)))
        build_data["pure_python"], build_data["infer_tag"] = False, True
