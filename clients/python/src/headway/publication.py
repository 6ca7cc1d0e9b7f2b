"""What a publish sends: a manifest, beside it files of safetensors, or where they lie, or who holds the weights."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import errors, tensors
from .batch import Batch
from .transport import Transport

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
#: For how long a publish may copy. A control plane that stands still for ever must not hold the trainer.
_COPY_S = 3600.0


def send(
    transport: Transport, manifest: Mapping[str, Any], *, state_dict: Mapping[str, Any] | None = None,
    weights_dir: str | Path | None = None, rendezvous: str | None = None, optimizer: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Publish a version and return the server's reply. Its weights come from one of the first three."""
    message, files = dict(manifest), _files(state_dict, optimizer)
    if state_dict is None and files:
        source = "weights_dir" if rendezvous is None else "rendezvous"
        raise errors.Invalid(f"with {source} the optimizer's state cannot be sent along: put it in weights_dir")
    if weights_dir is not None:
        directory = Path(os.path.abspath(weights_dir))  # links stay: the server compares names
        found = sorted(directory.glob("*.safetensors"))
        if not found:
            raise errors.Invalid(f"{directory} has no *.safetensors to publish")
        if (adapter := directory / "adapter_config.json").is_file():  # else engines would look for a model
            found.append(adapter)
        message["directory"] = str(directory)
        message["files"] = [{"name": p.name, "size": p.stat().st_size} for p in found]
    if rendezvous is not None:
        message["rendezvous"] = rendezvous
    if not files:  # the lease is held while the server copies, or engines take, what may be many bytes
        return transport.post("/api/v1/weights", message, timeout_s=_COPY_S)
    message["files"] = [{"name": f.name, "size": f.size, "hash": f.hash()} for f in files]
    body = _Multipart(message, files)
    headers = {"Content-Type": body.content_type, "Content-Length": str(body.size)}
    response = transport.call("POST", "/api/v1/weights", body=body.chunks, headers=headers, timeout_s=600.0)
    reply = response.json()
    if not isinstance(reply, dict):
        raise errors.Internal(f"a publish was answered with {reply!r}", status=response.status_code)
    return reply


def _files(state_dict: Mapping[str, Any] | None, optimizer: Mapping[str, Any] | None) -> list[tensors.File]:
    """The files that are sent along. Weights that cannot be served are refused."""
    files: list[tensors.File] = []
    if state_dict is not None:
        if not state_dict:
            raise errors.Invalid("the state_dict is empty: nothing would be served")
        files.append(tensors.File(MODEL, state_dict))
        tensors.check_finite(files[0].arrays, "model")
    if optimizer:
        files.append(tensors.File(OPTIMIZER, optimizer))
        tensors.check_finite(files[-1].arrays, "optimizer")
    return files


class _Multipart:
    """multipart/form-data of a manifest and files, streamed, of a length that is known before."""

    def __init__(self, manifest: Mapping[str, Any], files: Sequence[tensors.File]) -> None:
        boundary = "headway-" + uuid.uuid4().hex
        self.content_type = f"multipart/form-data; boundary={boundary}"
        try:
            text = json.dumps(manifest, allow_nan=False, separators=(",", ":")).encode()
        except ValueError as error:
            raise errors.Invalid(f"the manifest has a number that is not finite: {error}") from None
        start = f'--{boundary}\r\nContent-Disposition: form-data; name="'
        parts: list[tuple[bytes, tensors.File | None]] = []
        parts.append((f'{start}manifest"\r\nContent-Type: application/json\r\n\r\n'.encode() + text, None))
        for file in files:
            head = f'\r\n{start}{file.name}"; filename="{file.name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
            parts.append((head.encode(), file))
        self._parts, self._end = parts, f"\r\n--{boundary}--\r\n".encode()
        self.size = sum(len(head) + (file.size if file else 0) for head, file in parts) + len(self._end)

    def chunks(self) -> Iterator[bytes]:
        """The body."""
        for head, file in self._parts:
            yield head
            if file is not None:
                yield from file.chunks()
        yield self._end


def stamps(batch: Batch | None) -> dict[str, int]:
    """The versions of the weights that the forward pass used and that the optimizer changed; -1 unstamped."""
    if batch is None or batch.forward_version < 0:
        return {"forward_version": -1, "step_version": -1}
    step = batch.step_version if batch.step_version >= 0 else batch._held_version
    return {"forward_version": batch.forward_version, "step_version": step}


def measured(metrics: Mapping[str, float] | None) -> dict[str, dict[str, float]]:
    """The part of a message that says a step's metrics: finite numbers by name."""
    if not metrics:
        return {}
    out: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            # So it is for a tensor of torch, on whatever device. float() of one with a gradient has torch warn.
            number = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # torch's, of a tensor with several numbers
            raise errors.Invalid(
                f"the metric {name!r} is {value!r:.80}: metrics are numbers", detail={"metric": name}
            ) from None
        if not math.isfinite(number):
            raise errors.Invalid(f"the metric {name!r} is {number}: metrics are finite", detail={"metric": name})
        out[name] = number
    return {"metrics": out}
