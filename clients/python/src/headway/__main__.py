"""`python -m headway` is the program `headway`."""

from __future__ import annotations

import os
import sys

from .errors import ProgramMissing
from .program import program


def main() -> None:
    """Become the program, with this call's arguments."""
    try:
        found = program()
    except ProgramMissing as missing:
        sys.exit(f"headway: {missing}")
    os.execv(found, [str(found), *sys.argv[1:]])


if __name__ == "__main__":
    main()
