"""Sends two models by a collective: send.py URL EVEN ODD [LAST].

Even versions are the first directory's weights, odd ones the second's, up to a last version. It ends with
its standard input.
"""

import sys
from pathlib import Path

from safetensors.numpy import load_file

from headway.torch import Sender


def main() -> None:
    """Send until nobody wants any more."""
    url, *directories = sys.argv[1:4]
    last = int(sys.argv[4])
    weights = [load_file(Path(directory) / "model.safetensors") for directory in directories]

    def source(version: int) -> dict:
        if version > last:
            raise ValueError(f"version {version} is not there: the last one is {last}")
        return weights[version % 2]

    with Sender(url, source=source):
        print("sending", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
