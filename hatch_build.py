"""Build hook: compiles `winograd.c` when debayes is built, once for each kind of vector unit.

Without a C compiler the build succeeds with a warning, and the engine `winograd` is missing.
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

# By the name that `torch.backends.cpu.get_cpu_capability` gives the vector units: floats in a vector, tiles
# computed at once, compiler flags. So many tiles that their products fill most registers: 16 of 8 floats, or 32
# of 16.
X86 = {"AVX2": (8, 6, "-mavx2 -mfma"), "AVX512": (16, 12, "-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma")}
OTHERS = {"DEFAULT": (8, 6, "")}


class Compiler(BuildHookInterface):  # type: ignore[misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile for all vector units that the machine's processors may have, and add the results to the wheel."""
        if self.target_name != "wheel":
            return
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        kinds = X86 if platform.machine() in ("x86_64", "AMD64") else OTHERS
        for name, (lanes, tiles, flags) in kinds.items() if compiler and sys.platform != "win32" else ():
            target = Path(self.root, SOURCE.with_name(f"winograd-{name}.so"))
            options = [*OPTIONS, *flags.split(), f"-DLANES={lanes}", f"-DTILES={tiles}", "-o", str(target)]
            try:
                subprocess.run([*compiler.split(), *options, SOURCE], cwd=self.root, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                self.app.display_warning(f"could not compile winograd.c for {name}: {error}")
                continue
            build_data["artifacts"].append(str(target.relative_to(self.root)))
            build_data["pure_python"], build_data["tag"] = False, self.tag()
        if build_data["pure_python"]:
            self.app.display_warning("no C compiler works (set CC): debayes is built without the engine winograd")

    def tag(self) -> str:
        """The platform's tag for any Python 3: ctypes loads the library, which does not link Python."""
        platform = self.build_config.builder.get_best_matching_tag().rpartition("-")[2]
        return f"py3-none-{platform}"
