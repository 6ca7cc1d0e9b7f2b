"""Where the program is looked for: by a Python of its own, over files that are really there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "headway"
ASK = """
import sys
sys.path.insert(0, sys.argv[1])
from headway import program
from headway.errors import ProgramMissing
try:
    print(program.program())
except ProgramMissing as error:
    print("missing:", error.message)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package where it is part of no checkout, as a wheel installs it; without what needs other packages."""
    folder = tmp_path_factory.mktemp("site-packages")
    (folder / "headway").mkdir()
    (folder / "headway" / "__init__.py").touch()
    for name in ("errors.py", "program.py"):
        shutil.copy(PACKAGE / name, folder / "headway" / name)
    return folder


def ask(folder: Path, *path: Path, named: str = "") -> str:
    """What a new process finds."""
    environment = {"PATH": os.pathsep.join(map(str, path)), "HOME": str(folder), "HEADWAY_PROGRAM": named}
    done = subprocess.run([sys.executable, "-c", ASK, str(folder)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def put(folder: Path, content: str = "\x7fELF") -> Path:
    """A file that can be run, as far as its mode says."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "headway").write_text(content)
    (folder / "headway").chmod(0o755)
    return folder / "headway"


def test_the_variable_comes_first(installed: Path, tmp_path: Path) -> None:
    named = put(tmp_path / "named")
    assert ask(installed, put(tmp_path / "path").parent, named=str(named)) == str(named)


def test_a_variable_without_a_program_is_an_error(installed: Path, tmp_path: Path) -> None:
    answer = ask(installed, put(tmp_path).parent, named=str(tmp_path / "other"))
    assert answer == f"missing: HEADWAY_PROGRAM={tmp_path}/other is no file that can be run; name the program headway, or unset the variable"


def test_the_package_comes_before_the_path(installed: Path, tmp_path: Path) -> None:
    elsewhere = put(tmp_path)
    assert ask(installed, tmp_path) == str(elsewhere)
    inside = put(installed / "headway" / "bin")
    assert ask(installed, tmp_path) == str(inside)
    shutil.rmtree(inside.parent)
    beside = put(installed / "bin")
    assert ask(installed, tmp_path) == str(beside)
    shutil.rmtree(beside.parent)


def test_a_script_is_not_the_program(installed: Path, tmp_path: Path) -> None:
    script, later = put(tmp_path / "script", "#!/usr/bin/python3\n"), put(tmp_path / "later")
    assert ask(installed, script.parent, later.parent) == str(later)


def test_nothing_found_names_the_places_and_the_remedy(installed: Path, tmp_path: Path) -> None:
    answer = ask(installed, tmp_path)
    assert answer.startswith("missing: the program headway is neither in ")
    assert str(installed / "bin") in answer
    assert "pip install headway" in answer
    assert "HEADWAY_PROGRAM" in answer


def test_a_checkout_without_go_says_so(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "cmd" / "headway").mkdir(parents=True)
    (checkout / "cmd" / "headway" / "main.go").touch()
    (checkout / "go.mod").touch()
    shutil.copytree(PACKAGE, checkout / "clients" / "headway")
    (checkout / "clients" / "headway" / "__init__.py").write_text("")
    assert "needs Go" in ask(checkout / "clients", tmp_path)


def test_a_checkout_is_built_once_for_its_sources(tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    checkout = tmp_path / "checkout"
    (checkout / "cmd" / "headway").mkdir(parents=True)
    (checkout / "go.mod").write_text("module example\n\ngo 1.20\n")
    main = checkout / "cmd" / "headway" / "main.go"
    main.write_text('package main\n\nfunc main() { println("one") }\n')
    shutil.copytree(PACKAGE, checkout / "clients" / "headway")
    (checkout / "clients" / "headway" / "__init__.py").write_text("")

    compiled = subprocess.run([go, "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()

    def build() -> tuple[str, str]:
        environment = os.environ | {
            "XDG_CACHE_HOME": str(tmp_path / "cache"), "GOCACHE": compiled, "PATH": str(Path(go).parent),
            "HEADWAY_PROGRAM": "",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", ASK, str(checkout / "clients")], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip(), done.stderr

    first, said = build()
    assert "building the program" in said
    assert build() == (first, "")
    main.write_text('package main\n\nfunc main() { println("two!") }\n')
    second, said = build()
    assert "building the program" in said
    assert second != first
    assert subprocess.run([second], capture_output=True, text=True, check=True).stderr == "two!\n"
    assert not Path(first).exists()

    main.write_text("package main\n\nfunc main() { broken }\n")
    assert "undefined: broken" in build()[0]
