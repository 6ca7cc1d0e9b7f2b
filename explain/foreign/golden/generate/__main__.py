"""python -m generate TRUTH.json FOLDER: writes a framework's files into a folder."""

from __future__ import annotations

import sys

from . import clock  # noqa: F401  the clock comes before every tracker
from . import areal, nemo_rl, openrlhf, pipelinerl, prime_rl, roll, skyrl, slime, trl, truth, verl

WRITERS = {
    "verl-fa": verl.write_fully_async, "verl-v1": verl.write_v1, "prime-rl": prime_rl.write, "skyrl": skyrl.write, "areal": areal.write, "pipelinerl": pipelinerl.write, "slime": slime.write,
    "nemo-rl": nemo_rl.write_legacy, "nemo-rl-sc": nemo_rl.write_single_controller, "openrlhf": openrlhf.write, "roll": roll.write, "trl": trl.write,
}


def main(path: str, out: str) -> None:
    run = truth.load(path)
    WRITERS[run.framework](run, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
