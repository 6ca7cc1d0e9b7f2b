"""Put the program `headway` into the wheel: `go build` for the platform that GOOS and GOARCH name, by default this one.

The wheel has the program among its scripts, a bill of its materials (`sboms`), and a statement of how it was built
(`extra_metadata/provenance.json`). This file says all that decides the program's bytes, and takes none of it from the
environment: one commit, Go version and hatchling give one wheel.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The variable that leaves the program out.
CLIENT_ONLY = "HEADWAY_CLIENT_ONLY"
MODULE = "github.com/headway-rl/headway"
#: The tag of each platform, by Go's name for it. Without cgo the program needs no C library: the tags of Linux name the
#: oldest ones that installers know. Go 1.26 needs macOS 12.
TAGS = {
    "linux/amd64": "py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64",
    "linux/arm64": "py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64",
    "darwin/arm64": "py3-none-macosx_12_0_arm64",
    "darwin/amd64": "py3-none-macosx_12_0_x86_64",
}
#: Beside sources, platform and Go's version, this and the arguments of `go build` decide the bytes.
ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOAMD64": "v1",
    "GOARM64": "v8.0",
    "GOFLAGS": "-trimpath -buildvcs=false -gcflags=all=-dwarf=false",
    "GOWORK": "off",
}


class ProgramHook(BuildHookInterface[Any]):
    """hatchling calls `initialize` before it writes a wheel, and `finalize` after it."""

    PLUGIN_NAME = "custom"

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Build the program, and name for hatchling what the wheel gets of it."""
        if os.environ.get(CLIENT_ONLY):
            return
        root = Path(self.root).parents[1]
        if not (root / "go.mod").is_file() or not (root / "cmd" / "headway").is_dir():
            raise _refusal(
                "these sources are the Python client's alone, without the program's: "
                "install a wheel, or from a clone of the repository (pip install ./clients/python)"
            )
        go = shutil.which("go")
        if go is None:
            raise _refusal("building the program needs Go 1.26, and no go is on the PATH: install Go, or a wheel")
        build = Build(root, go, self.metadata.version)
        self.folder = Path(tempfile.mkdtemp(prefix="headway-wheel-"))
        try:
            build.into(self.folder)
        except BaseException:
            shutil.rmtree(self.folder)
            raise
        build_data["pure_python"] = False
        build_data["tag"] = TAGS[build.platform]
        build_data["shared_scripts"][str(self.folder / "headway")] = "headway"
        build_data["sbom_files"].append(str(self.folder / "headway.cdx.json"))
        build_data["extra_metadata"][str(self.folder / "provenance.json")] = "provenance.json"

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Remove the files that are in the wheel now."""
        if folder := getattr(self, "folder", None):
            shutil.rmtree(folder)


class Build:
    """One build of the program from the repository `root`, with Go's command `go`, as `version`."""

    def __init__(self, root: Path, go: str, version: str) -> None:
        self.root, self.go, self.version = root, go, version
        self.environment = os.environ | ENVIRONMENT
        said = json.loads(self.run(go, "env", "-json", "GOOS", "GOARCH", "GOHOSTOS", "GOHOSTARCH", "GOVERSION"))
        self.platform = f"{said['GOOS']}/{said['GOARCH']}"
        self.host = {"GOOS": said["GOHOSTOS"], "GOARCH": said["GOHOSTARCH"]}
        self.compiler = said["GOVERSION"]
        if self.platform not in TAGS:
            raise _refusal(f"the program does not run on {self.platform}, but on {', '.join(TAGS)}")
        self.environment |= {"GOOS": said["GOOS"], "GOARCH": said["GOARCH"]}
        self.commit, self.modified = self._commit()

    def into(self, folder: Path) -> None:
        """Write the program, its bill of materials and its provenance into a folder."""
        program, bill = folder / "headway", folder / "headway.cdx.json"
        command = ["build", "-ldflags", self._ldflags(), "-o", str(program), "./cmd/headway"]
        self.run(self.go, *command)
        self.run(
            self.go, "run", "./cmd/lab/supply", "sbom", str(program), str(bill), self.version,
            environment=self.environment | self.host,
        )  # fmt: skip
        sum256 = hashlib.sha256(program.read_bytes()).hexdigest()
        command[command.index(str(program))] = "headway"
        statement = json.dumps(self._statement(["go", *command], sum256), indent=2)
        (folder / "provenance.json").write_text(statement + "\n")

    def run(self, *command: str, environment: dict[str, str] | None = None) -> str:
        """The output of a command in the repository. What it says on stderr is shown as it comes."""
        done = subprocess.run(
            command, cwd=self.root, env=environment or self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise _refusal(f"{Path(command[0]).name} {' '.join(command[1:3])} ended with {done.returncode}, see above")
        return done.stdout

    def _commit(self) -> tuple[str, bool]:
        """The commit of the sources, "" where git does not know it, and whether files differ from it."""
        if not (self.root / ".git").exists() or shutil.which("git") is None:
            return "", False
        commit = self.run("git", "rev-parse", "HEAD").strip()
        return commit, self.run("git", "status", "--porcelain") != ""

    def _ldflags(self) -> str:
        linked = {"version": self.version, "revision": self.commit, "origin": "wheel"}
        if self.modified:
            linked["modified"] = "true"
        return "-s -w" + "".join(f" -X {MODULE}/app/command.{name}={value}" for name, value in linked.items())

    def _statement(self, command: list[str], sum256: str) -> dict[str, Any]:
        """An in-toto statement with SLSA's provenance. It is not signed, and has no time: it must not differ by it."""
        source: dict[str, Any] = {"uri": f"git+https://{MODULE}"}
        if self.commit:
            source["digest"] = {"gitCommit": self.commit}
        if self.modified:
            source["annotations"] = {"modified": True}
        platform = {name: self.environment[name] for name in ("GOOS", "GOARCH")}
        return {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": "headway", "digest": {"sha256": sum256}}],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": f"https://{MODULE}/clients/python/hatch_build.py",
                    "externalParameters": {"command": command, "environment": ENVIRONMENT | platform},
                    "internalParameters": {"go": self.compiler, "version": self.version},
                    "resolvedDependencies": [source],
                },
                "runDetails": {"builder": {"id": f"https://{MODULE}/clients/python/hatch_build.py"}},
            },
        }


def _refusal(why: str) -> SystemExit:
    """The end of a build, with the reason and what else can be done."""
    return SystemExit(f"headway: {why}. {CLIENT_ONLY}=1 pip install ... installs the client without the program")
