"""The wheel as users have it, in an environment of its own without Go; and what a build says that cannot be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from conftest import ROOT

CLIENT = ROOT / "clients" / "python"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"]
    needed = CLIENT / "requirements" / "client.txt"
    subprocess.run([*pip, "--require-hashes", "-r", str(needed)], check=True, timeout=600)
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, timeout=60)
    return folder


def call(environment: Path, folder: Path, *command: str) -> str:
    """The output of a command that has this environment's programs on its path, and no others."""
    alone = {"PATH": str(environment / "bin"), "HOME": str(folder)}
    program = str(environment / "bin" / command[0])
    done = subprocess.run(
        [program, *command[1:]], cwd=folder, env=alone, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_trains_where_nothing_else_is(installed: Path, tmp_path: Path) -> None:
    """README's main job, with fewer steps."""
    call(installed, tmp_path, "headway", "run", "--steps", "3", "--name", "first", "--dir", "runs")
    last = json.loads((tmp_path / "runs" / "first" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 3
    assert (tmp_path / "runs" / "first" / "report.html").exists()


def test_program_and_package_are_one(installed: Path, tmp_path: Path) -> None:
    said = call(installed, tmp_path, "headway", "version", "--json")
    assert call(installed, tmp_path, "python", "-m", "headway", "version", "--json") == said
    build = json.loads(said)
    package = call(installed, tmp_path, "python", "-c", "import headway; print(headway.__version__, headway.__file__)")
    version, file = package.split()
    distribution = Distribution.at(next(Path(file).parents[1].glob("headway-*.dist-info")))
    assert build["origin"] == "wheel"
    assert build["version"] == version == distribution.version
    provenance = json.loads(distribution.read_text("extra_metadata/provenance.json") or "")
    source = provenance["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    assert source.get("digest", {}).get("gitCommit", "") == build["revision"]
    bill = json.loads(distribution.read_text("sboms/headway.cdx.json") or "")
    sums = {bill["metadata"]["component"]["hashes"][0]["content"], provenance["subject"][0]["digest"]["sha256"]}
    assert len(sums) == 1


def test_its_parts_agree(wheel: Path) -> None:
    """By the check that `make wheels` makes of every wheel."""
    done = subprocess.run(
        ["go", "run", "./cmd/lab/supply", "wheels", str(wheel)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "; run: it says version" in done.stdout


def hatchling(folder: Path, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A build of the package in a folder, as an installation from source starts it."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder / "dist")],
        cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a source distribution has: the package alone."""
    folder = tmp_path_factory.mktemp("sdist")
    copy = folder / "copy"
    shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns(".*", "tests", "dist"))
    assert hatchling(copy, "sdist").returncode == 0
    with tarfile.open(next(copy.glob("dist/*.tar.gz"))) as files:
        files.extractall(folder, filter="data")
    return next(folder.glob("headway-*"))


def test_source_distributions_have_no_program(unpacked: Path) -> None:
    done = hatchling(unpacked, "wheel")
    assert done.returncode == 1
    assert done.stderr.startswith("headway: these sources are the Python client's alone")
    assert "Traceback" not in done.stderr


def test_the_client_alone_needs_no_go(unpacked: Path) -> None:
    done = hatchling(unpacked, "wheel", HEADWAY_CLIENT_ONLY="1", PATH="")
    assert done.returncode == 0, done.stderr
    assert [path.name.split("-", 2)[2] for path in unpacked.glob("dist/*.whl")] == ["py3-none-any.whl"]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"PATH": ""}, "building the program needs Go"),
        ({"GOOS": "plan9", "GOARCH": "386"}, "the program does not run on plan9/386, but on linux/amd64"),
        ({"GOROOT": "/nowhere"}, "go env -json ended with 2, see above"),
    ],
)
def test_a_build_that_cannot_be_says_why(environment: dict[str, str], reason: str) -> None:
    done = hatchling(CLIENT, "wheel", **environment)
    assert done.returncode == 1
    assert reason in done.stderr
    assert "HEADWAY_CLIENT_ONLY=1 pip install" in done.stderr
    assert "Traceback" not in done.stderr
