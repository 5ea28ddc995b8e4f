"""Write the free photographs of scikit-image as files: three to train on in `photos`, one to test on in `test`.

    python free_photographs.py DATA

They are in the public domain or CC0. It needs `pip install "debayes[demo]"`.
"""

import sys
from pathlib import Path

from PIL import Image
from skimage import data

root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
for folder, names in {"photos": ("astronaut", "coffee", "rocket"), "test": ("chelsea",)}.items():
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.fromarray(getattr(data, name)()).save(root / folder / f"{name}.png")
        print(root / folder / f"{name}.png")
