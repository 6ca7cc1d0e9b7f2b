"""SGLang's paths, and /tokenize and /detokenize."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from . import __version__
from .errors import Lost, Refusal
from .generate import Generate
from .http import Incoming, Reply, Stream
from .request import flag, integer, refuse_unknown, tokens
from .service import Service
from .text import Tokenizer

Route = Callable[[Incoming], Awaitable[Reply | Stream]]

#: What an update by any road may say beside its own fields.
UPDATE_FIELDS = ("weight_version", "flush_cache", "abort_all_requests", "load_format", "torch_empty_cache")
GROUP_DEFAULT = "weight_update_group"


class Routes:
    """One method for each path."""

    def __init__(self, service: Service, tokenizer: Tokenizer | None, about: dict[str, Any], incremental: bool) -> None:
        self._service, self._tokenizer, self._about = service, tokenizer, about
        self._generate = Generate(service, tokenizer, incremental)
        both, get, post = ("GET", "POST"), ("GET",), ("POST",)
        self._routes: dict[str, tuple[tuple[str, ...], Route]] = {
            "/generate": (post, self._generated), "/abort_request": (post, self._abort),
            "/pause_generation": (post, self._pause), "/continue_generation": (post, self._continue),
            "/flush_cache": (both, self._flush), "/update_weights_from_disk": (post, self._update_from_disk),
            "/init_weights_update_group": (post, self._init_group),
            "/update_weights_from_distributed": (post, self._update_from_group),
            "/destroy_weights_update_group": (post, self._destroy_group),
            "/begin_weight_update": (post, self._begin_update), "/end_weight_update": (post, self._end_update),
            "/update_weight_version": (post, self._update_version),
            "/model_info": (get, self._model), "/get_model_info": (get, self._model),
            "/get_weight_version": (get, self._version), "/server_info": (get, self._server),
            "/get_server_info": (get, self._server), "/get_load": (get, self._load), "/v1/loads": (get, self._loads),
            "/health": (get, self._health), "/health_generate": (get, self._health_generate),
            "/metrics": (get, self._metrics), "/steps": (get, self._steps), "/openapi.json": (get, self._openapi),
            "/v1/models": (get, self._models),
        }  # fmt: skip
        if tokenizer is not None:
            for prefix in ("", "/v1"):  # SGLang has both
                self._routes[prefix + "/tokenize"] = (post, self._tokenize)
                self._routes[prefix + "/detokenize"] = (post, self._detokenize)

    async def answer(self, incoming: Incoming) -> Reply | Stream:
        """The answer to any request; a refusal is one."""
        methods, route = self._routes.get(incoming.path, ((), None))
        if route is None:
            return _refused(f"there is no {incoming.path}; /openapi.json lists the paths", 404)
        if incoming.method not in methods:
            return _refused(f"{incoming.path} wants {' or '.join(methods)}", 405)
        try:
            return await route(incoming)
        except Refusal as problem:
            return _refused(str(problem), problem.status)
        except Lost:
            raise
        except Exception as problem:  # a defect is said to whom it hits
            return _refused(f"{incoming.path} failed: {problem!r}", 500)

    async def _generated(self, incoming: Incoming) -> Reply | Stream:
        return await self._generate.answer(incoming.json())

    async def _abort(self, incoming: Incoming) -> Reply:
        given = incoming.json()
        refuse_unknown(given, ("rid", "abort_all", "abort_message"), "/abort_request")
        rid, every = given.get("rid") or "", flag(given, "abort_all", False)
        # An empty rid would be the beginning of every other.
        if every or rid:
            message = given.get("abort_message") or "Aborted by /abort_request"
            await self._service.abort(None if every else rid, message)
        return Reply("", kind="text/plain")

    async def _pause(self, incoming: Incoming) -> Reply:
        given = incoming.json()
        refuse_unknown(given, ("mode",), "/pause_generation")
        await self._service.pause(given.get("mode", "abort"))
        return Reply.of({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, incoming: Incoming) -> Reply:
        refuse_unknown(incoming.json(), ("torch_empty_cache",), "/continue_generation")
        await self._service.resume()
        return Reply.of({"message": "Generation continued successfully.", "status": "ok"})

    async def _flush(self, incoming: Incoming) -> Reply:
        try:
            await self._service.flush()
        except Refusal as problem:
            return Reply(f"{problem}\n", 400, "text/plain")
        return Reply("Cache flushed.\n", kind="text/plain")

    async def _update_from_disk(self, incoming: Incoming) -> Reply:
        given = incoming.json()
        refuse_unknown(given, ("model_path", *UPDATE_FIELDS, "keep_pause", "token_step"), "/update_weights_from_disk")
        path = given.get("model_path")
        if not isinstance(path, str) or not path:
            raise Refusal("model_path: want the directory of a checkpoint")
        if given.get("load_format") not in (None, "auto", "safetensors"):
            raise Refusal(f"load_format is {given['load_format']!r}: this server reads safetensors")
        try:
            kept = await self._service.update_from_disk(Path(path), **_how(given))
        except Refusal as problem:
            return Reply.of({"success": False, "message": str(problem), "num_paused_requests": 0}, 400)
        return Reply.of({"success": True, "message": f"Loaded {path}", "num_paused_requests": kept})

    async def _init_group(self, incoming: Incoming) -> Reply:
        given = {"group_name": GROUP_DEFAULT, "backend": "nccl", **incoming.json()}
        known = ("master_address", "master_port", "rank_offset", "world_size", "group_name", "backend")
        refuse_unknown(given, known, "/init_weights_update_group")
        if not isinstance(given.get("master_address"), str):
            raise Refusal("master_address: want the host of the group's first member")
        for name in ("master_port", "rank_offset", "world_size"):
            given[name] = integer(given, name, -1, 0, 65535)
            if given[name] < 0:
                raise Refusal(f"{name} is missing")
        return await self._done(lambda: self._service.join(given), f"Joined {given['group_name']}")

    async def _update_from_group(self, incoming: Incoming) -> Reply:
        given = {"group_name": GROUP_DEFAULT, **incoming.json()}
        known = ("names", "dtypes", "shapes", "group_name", "selector", *UPDATE_FIELDS)
        refuse_unknown(given, known, "/update_weights_from_distributed")
        if given.get("load_format") is not None:
            raise Refusal(f"load_format is {given['load_format']!r}: this server takes one tensor after the other")
        for name in ("names", "dtypes", "shapes"):
            if not isinstance(given.get(name), list):
                raise Refusal(f"{name}: want a list")
        count = len(given["names"])
        how = _how(given)
        _selector(given)
        return await self._done(lambda: self._service.update_from_group(given, **how), f"Received {count} tensors")

    async def _destroy_group(self, incoming: Incoming) -> Reply:
        name = incoming.json().get("group_name", GROUP_DEFAULT)
        return await self._done(lambda: self._service.leave(name), f"Left {name}")

    async def _begin_update(self, incoming: Incoming) -> Reply:
        given = incoming.json()
        refuse_unknown(given, ("selector",), "/begin_weight_update")
        _selector(given)
        return await self._done(self._service.begin_update, "Success")

    async def _end_update(self, incoming: Incoming) -> Reply:
        refuse_unknown(incoming.json(), (), "/end_weight_update")
        return await self._done(self._service.end_update, "Success")

    async def _done(self, work: Callable[[], Awaitable[Any]], message: str) -> Reply:
        try:
            await work()
        except Refusal as problem:
            return Reply.of({"success": False, "message": str(problem)}, 400)
        return Reply.of({"success": True, "message": message})

    async def _update_version(self, incoming: Incoming) -> Reply:
        given = incoming.json()
        refuse_unknown(given, ("new_version", "abort_all_requests"), "/update_weight_version")
        label = given.get("new_version")
        if not isinstance(label, str):
            raise Refusal("new_version: want a text")
        await self._service.set_label(label, flag(given, "abort_all_requests", True))
        return Reply.of({"success": True, "message": f"Weight version updated to {label}", "new_version": label})

    async def _model(self, incoming: Incoming) -> Reply:
        a = self._service.engine.model.architecture
        return Reply.of({
            "model_path": str(self._service.directory), "served_model_name": self._about["served_model_name"],
            "tokenizer_path": self._about["tokenizer_path"], "is_generation": True, "preferred_sampling_params": None,
            "weight_version": self._service.engine.label, "architectures": [a.name],
        })  # fmt: skip

    async def _models(self, incoming: Incoming) -> Reply:
        a = self._service.engine.model.architecture
        entry = {"id": self._about["served_model_name"], "object": "model", "owned_by": "sglang", "max_model_len": a.context}
        return Reply.of({"object": "list", "data": [entry]})

    async def _version(self, incoming: Incoming) -> Reply:
        return Reply.of({"weight_version": self._service.engine.label})

    async def _server(self, incoming: Incoming) -> Reply:
        e = self._service.engine
        a = e.model.architecture
        state = {"last_gen_throughput": self._service.throughput, "paused": e.paused, "weight_updates": e.updates}
        return Reply.of({
            **self._about, "version": __version__, "context_length": a.context, "vocab_size": a.vocabulary,
            "max_running_requests": e.rows, "weight_version": e.label, "internal_states": [state],
        })  # fmt: skip

    async def _load(self, incoming: Incoming) -> Reply:
        e = self._service.engine
        used = sum(len(r.tokens) for r in e.running)
        running, waiting = len(e.running), len(e.waiting)
        load = {"dp_rank": 0, "num_reqs": running + waiting, "num_waiting_reqs": waiting, "num_tokens": used}
        return Reply.of([load])

    async def _loads(self, incoming: Incoming) -> Reply:
        e = self._service.engine
        load = {
            "dp_rank": 0, "num_running_reqs": len(e.running), "num_waiting_reqs": len(e.waiting),
            "token_usage": round(e.usage, 4), "gen_throughput": round(self._service.throughput, 2),
            "max_running_requests": e.rows,
        }  # fmt: skip
        return Reply.of({"version": __version__, "loads": [load]})

    async def _health(self, incoming: Incoming) -> Reply:
        return Reply("", 503 if self._service.closed else 200, "text/plain")

    async def _health_generate(self, incoming: Incoming) -> Reply:
        probe = {"input_ids": [0], "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        if self._service.engine.paused is None:
            await self._generate.answer(probe)
        return await self._health(incoming)

    async def _metrics(self, incoming: Incoming) -> Reply:
        e, name = self._service.engine, json.dumps(self._about["served_model_name"])
        values = {
            "num_running_reqs": len(e.running), "num_queue_reqs": len(e.waiting), "token_usage": e.usage,
            "gen_throughput": self._service.throughput, "cache_hit_rate": 0.0,
            "prompt_tokens_total": e.prompt_tokens, "generation_tokens_total": e.sampled_tokens,
        }  # fmt: skip
        lines = []
        for metric, value in values.items():
            lines.append(f"# TYPE sglang:{metric} {'counter' if metric.endswith('_total') else 'gauge'}")
            lines.append(f"sglang:{metric}{{model_name={name}}} {value}")
        return Reply("\n".join(lines) + "\n", kind="text/plain; version=0.0.4")

    async def _steps(self, incoming: Incoming) -> Reply:
        """The log of steps, for those who check this server: of one rid the version that made each of its tokens."""
        steps, rid = self._service.engine.steps, incoming.query.get("rid")
        if steps is None:
            raise Refusal("steps are not logged: start the server with --log-steps")
        if rid is None:
            return Reply.of({"steps": [{"weight_version": label, "rids": rids} for label, rids in steps]})
        return Reply.of({"versions": [label for label, rids in steps if rid in rids]})

    async def _openapi(self, incoming: Incoming) -> Reply:
        paths: dict[str, Any] = {path: {m.lower(): {} for m in methods} for path, (methods, _) in self._routes.items()}
        return Reply.of({"openapi": "3.1.0", "info": {"title": "hf_shim", "version": __version__}, "paths": paths})

    async def _tokenize(self, incoming: Incoming) -> Reply:
        assert self._tokenizer is not None
        given = incoming.json()
        known = (
            "model", "prompt", "messages", "tools", "add_special_tokens", "add_generation_prompt",
            "continue_final_message", "chat_template_kwargs",
        )  # fmt: skip
        refuse_unknown(given, known, "/tokenize")
        prompt, messages = given.get("prompt"), given.get("messages")
        if (prompt is None) == (messages is None):
            raise Refusal("want either prompt or messages")
        if messages is None:
            if not isinstance(prompt, str):
                raise Refusal("prompt: want a text")
            ids = self._tokenizer.encode(prompt, flag(given, "add_special_tokens", True))
        else:
            more = dict(given.get("chat_template_kwargs") or {})
            if flag(given, "continue_final_message", False):
                more["continue_final_message"] = True
            if not isinstance(messages, list):
                raise Refusal("messages: want a list of them")
            ids = self._tokenizer.render(messages, given.get("tools"), flag(given, "add_generation_prompt", True), more)
        context = self._service.engine.model.architecture.context
        return Reply.of({"count": len(ids), "max_model_len": context, "tokens": ids})

    async def _detokenize(self, incoming: Incoming) -> Reply:
        assert self._tokenizer is not None
        given = incoming.json()
        refuse_unknown(given, ("model", "tokens", "skip_special_tokens"), "/detokenize")
        ids = tokens(given.get("tokens"), "tokens", self._service.engine.model.architecture.vocabulary)
        text = self._tokenizer.decode(ids, flag(given, "skip_special_tokens", True))
        return Reply.of({"prompt": text, "text": text})


def _refused(message: str, status: int) -> Reply:
    return Reply.of({"error": {"message": message, "code": status}}, status)


def _selector(given: dict[str, Any]) -> None:
    """Which models a call is for: there is no draft here."""
    if given.get("selector", "all") not in ("target", "draft", "all"):
        raise Refusal(f"selector is {given['selector']!r}: want target, draft or all")


def _how(given: dict[str, Any]) -> dict[str, Any]:
    """How an update is to take place."""
    label = given.get("weight_version")
    if label is not None and not isinstance(label, str):
        raise Refusal("weight_version: want a text")
    flush, abort = flag(given, "flush_cache", True), flag(given, "abort_all_requests", False)
    return {"label": label, "flush": flush, "abort": abort}
