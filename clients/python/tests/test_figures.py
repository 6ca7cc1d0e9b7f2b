"""Figures by lines, as the control plane writes them to a program."""

from __future__ import annotations

import io
import pathlib

import pytest

from headway import errors, figures


def test_lines_reach_every_sink() -> None:
    seen: list[tuple[int, dict[str, float]]] = []
    source = ['{"step":1,"figures":{"loss":0.5,"off_policy":{"a":1}}}\n', "\n", '{"step":2,"figures":{}}\n']
    assert figures.lines(source, lambda step, said: seen.append((step, said))) == 2
    assert seen == [(1, {"loss": 0.5, "off_policy/a": 1.0}), (2, {})]


@pytest.mark.parametrize("line", ["{", "[]", '{"step":1}', '{"step":1,"figures":3}', '{"figures":{}}'])
def test_what_is_no_step_is_named(line: str) -> None:
    with pytest.raises(errors.Invalid, match="line 2 is no train step"):
        figures.lines(['{"step":1,"figures":{}}', line], lambda step, said: None)


def test_wandb_has_the_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    source = io.StringIO("".join(f'{{"step":{n},"figures":{{"loss":{1 / n}}}}}\n' for n in range(1, 6)))
    assert figures.main(["--wandb", "headway-tests"], source) == 0
    files = list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 1 and files[0].stat().st_size > 0


def test_a_destination_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        figures.main([])
    assert "name a destination" in capsys.readouterr().err
