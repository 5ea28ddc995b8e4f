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

SOURCE = Path("src", "debayes", "engine", "winograd.c")

OPTIONS = ("-O3", "-ffp-contract=fast", "-shared", "-fPIC", "-fvisibility=hidden")

# By what `torch.backends.cpu.get_cpu_capability` calls the units: floats of a vector, tiles at once, what else the
# compiler is told. Products fill most of the registers: 16 of 8 floats, or 32 of 16.
X86 = {"AVX2": (8, 6, "-mavx2 -mfma"), "AVX512": (16, 12, "-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma")}
OTHERS = {"DEFAULT": (8, 6, "")}


class Compiler(BuildHookInterface):  # type: ignore[misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile for all units that the machine's processors may have, and have the wheel hold it."""
        if self.target_name != "wheel":
            return
        found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        kinds = X86 if platform.machine() in ("x86_64", "AMD64") else OTHERS
        for name, (lanes, tiles, flags) in kinds.items() if found and sys.platform != "win32" else ():
            target = Path(self.root, SOURCE.with_name(f"winograd-{name}.so"))
            options = [*OPTIONS, *flags.split(), f"-DLANES={lanes}", f"-DTILES={tiles}", "-o", str(target)]
            try:
                subprocess.run([*found.split(), *options, SOURCE], cwd=self.root, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                self.app.display_warning(f"winograd.c is not compiled for {name}: {error}")
                continue
            build_data["artifacts"].append(str(target.relative_to(self.root)))
            build_data["pure_python"], build_data["tag"] = False, self.tag()
        if build_data["pure_python"]:
            self.app.display_warning("no C compiler made winograd.c: debayes is built without the engine winograd")

    def tag(self) -> str:
        """The platform's tag for any Python 3: ctypes loads the library, which does not link Python."""
        platform = self.build_config.builder.get_best_matching_tag().rpartition("-")[2]
        return f"py3-none-{platform}"
