"""Writes a model that says more: sharp.py FROM TO copies a model of tiny.py with its last normalization scaled.

The log-probs of random weights lie close together, and an adapter, which changes neither that normalization nor the
last layer, could not make any token likely. Of this model it can.
"""

import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

SCALE = 6.0


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    part = target.with_name(target.name + ".part")
    shutil.copytree(source, part, dirs_exist_ok=True)
    weights = load_file(source / "model.safetensors")
    weights["model.norm.weight"] *= SCALE
    save_file(weights, part / "model.safetensors", metadata={"format": "pt"})
    part.rename(target)


if __name__ == "__main__":
    main()
