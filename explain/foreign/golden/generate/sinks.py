"""The trackers that frameworks hand their figures to: the real libraries, on a simulated clock."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from typing import Any

from . import clock

import tensorboardX
import wandb
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter


class Wandb:
    """A W&B run in offline mode: it leaves a .wandb file, and nothing of this machine in it."""

    def __init__(self, path: str, config: Any, project: str, name: str, **init: Any) -> None:
        self.path, self.folder = path, tempfile.mkdtemp()
        settings = wandb.Settings(
            mode="offline", console="off", host="node-0", disable_git=True, disable_code=True, save_code=False, silent=True,
            x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True, x_save_requirements=False)
        self.run = wandb.init(project=project, name=name, id=name, dir=self.folder, config=config, settings=settings, reinit="create_new", **init)

    def log(self, values: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        self.run.log(values, step=step, commit=commit)

    def finish(self) -> None:
        self.run.finish()
        (written,) = glob.glob(os.path.join(self.folder, "wandb", "offline-run-*", "*.wandb"))
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        shutil.move(written, self.path)
        shutil.rmtree(self.folder)


class TorchWriter:
    """What torch.utils.tensorboard.SummaryWriter does for add_scalar: one event a value, through tensorboard's writer."""

    def __init__(self, path: str) -> None:
        self.path, self.folder = path, tempfile.mkdtemp()
        self.writer = EventFileWriter(self.folder)

    def add_scalar(self, tag: str, value: Any, step: int | None) -> None:
        event = Event(wall_time=clock.now(), step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=float(value))]))
        self.writer.add_event(event)

    def close(self) -> None:
        self.writer.close()
        _take(self.folder, self.path)


class TensorboardX:
    """tensorboardX's own writer."""

    def __init__(self, path: str) -> None:
        self.path, self.folder = path, tempfile.mkdtemp()
        self.writer = tensorboardX.SummaryWriter(log_dir=self.folder)

    def add_scalar(self, tag: str, value: Any, step: int | None) -> None:
        self.writer.add_scalar(tag, value, step)

    def close(self) -> None:
        self.writer.close()
        _take(self.folder, self.path)


def _take(folder: str, path: str) -> None:
    (written,) = glob.glob(os.path.join(folder, "events.out.tfevents.*"))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.move(written, path)
    shutil.rmtree(folder)


class Console:
    """Text as a terminal saved to a file has it."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.file = open(path, "w", encoding="utf-8", newline="")

    def print(self, text: str, actor: str = "", pid: int = 4242, end: str = "\n") -> None:
        """Prints as ray does for an actor: its name and pid before every line, in colour."""
        before = f"\x1b[36m({actor} pid={pid})\x1b[0m " if actor else ""
        self.file.write("".join(before + line + end for line in text.split("\n")))

    def bar(self, done: int, total: int, desc: str, actor: str = "", pid: int = 4242) -> None:
        """A progress bar that overwrites itself."""
        before = f"\x1b[36m({actor} pid={pid})\x1b[0m " if actor else ""
        width = 10 * done // total
        self.file.write(f"\r{before}{desc}: {100 * done // total:3d}%|{'█' * width}{' ' * (10 - width)}| {done}/{total} [00:{done % 60:02d}<00:{total - done:02d},  1.00s/it]")
        if done == total:
            self.file.write("\n")

    def close(self) -> None:
        self.file.close()
