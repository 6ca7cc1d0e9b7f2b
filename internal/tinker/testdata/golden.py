"""Writes golden.json: messages of Tinker's API as its own client writes and reads them.

    pip install tinker==0.38.0
    python golden.py > golden.json

Requests are made by the client's conversion, results by its message classes, and what results mean is what the
client's conversion reads in them.
"""

import base64
import json
import struct

from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import (
    deserialize_forward_backward_output,
    deserialize_sample_response,
)
from tinker.types.forward_backward_request import ForwardBackwardRequest


def written(message):
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def request(model, seq, loss, config, data, forward_only):
    made = []
    for d in data:
        inputs = {"target_tokens": types.TensorData(data=d["Targets"], dtype="int64", shape=[len(d["Targets"])])}
        for ours, theirs in (("Weights", "weights"), ("Logprobs", "logprobs"), ("Advantages", "advantages")):
            if ours in d:
                inputs[theirs] = types.TensorData(data=d[ours], dtype="float32", shape=[len(d[ours])])
        made.append(types.Datum(model_input=types.ModelInput.from_ints(d["Tokens"]), loss_fn_inputs=inputs))
    message = forward_backward_request_to_proto(
        ForwardBackwardRequest(
            forward_backward_input=types.ForwardBackwardInput(data=made, loss_fn=loss, loss_fn_config=config),
            model_id=model,
            seq_id=seq,
        )
    )
    if forward_only:
        message.forward_only = True
    return {
        "model": model, "seq": seq, "loss": loss, "config": config, "data": data,
        "forward_only": forward_only, "bytes": written(message),
    }


def floats(values, width=4):
    packed = [struct.pack("<f", v) for v in values]
    return b"".join(p[4 - width:] for p in packed)


def record(rows, dtype=pb.DTYPE_FLOAT32, others=()):
    width = 2 if dtype == pb.DTYPE_BFLOAT16 else 4
    made = pb.ArrayRecord(type_tag="record", num_datums=len(rows))
    for name in ("logprobs", *others):
        tensor = made.fields[name]
        tensor.dtype = dtype
        offsets = [0]
        for row in rows:
            tensor.data += floats(row, width)
            offsets.append(len(tensor.data))
        tensor.offsets = struct.pack(f"<{len(offsets)}q", *offsets)
    return made


def output(records, metrics):
    message = pb.ForwardBackwardOutput(loss_fn_output_type="module:ArrayRecord", loss_fn_outputs=records)
    for name, value in metrics.items():
        message.metrics[name] = value
    read = deserialize_forward_backward_output(message.SerializeToString())
    return {
        "bytes": written(message),
        "metrics": read.metrics,
        "logprobs": [[float(v) for v in one["logprobs"].data] for one in read.loss_fn_outputs],
    }


def sample(sequences, cache_hit=0):
    message = pb.SampleResponse(prompt_cache_hit_tokens=cache_hit)
    for tokens, logprobs, reason in sequences:
        one = message.sequences.add(stop_reason=reason, tokens=struct.pack(f"<{len(tokens)}i", *tokens))
        if logprobs is not None:
            one.logprobs = floats(logprobs)
    read = deserialize_sample_response(message.SerializeToString())
    return {
        "bytes": written(message),
        "sequences": [
            {"tokens": [int(t) for t in s.tokens], "logprobs": [float(v) for v in s.logprobs or []], "stopped": s.stop_reason == "stop"}
            for s in read.sequences
        ],
    }


print(json.dumps({
    "requests": [
        request("run:train:0", 1, "cross_entropy", None, [
            {"Tokens": [5, 6, 7], "Targets": [6, 7, 8], "Weights": [0.0, 1.0, 0.5]},
        ], False),
        request("model_4ac10c7f", 300, "ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}, [
            {"Tokens": [151643, 2147483647, 0], "Targets": [151644, 1, 2], "Logprobs": [0.0, -0.125, -17.5], "Advantages": [0.0, 1.5, -2.25]},
            {"Tokens": [9], "Targets": [10], "Logprobs": [-1e-7], "Advantages": [3.0]},
        ], False),
        request("m", 2, "importance_sampling", None, [
            {"Tokens": list(range(200)), "Targets": list(range(1, 201)), "Logprobs": [-0.5] * 200, "Advantages": [0.25] * 200},
        ], True),
    ],
    "outputs": [
        output([record([[-0.5, -1.25], [-3.0], []])], {"loss:sum": 1.5, "clock:mean": 0.0, "negative:min": -2.0}),
        output([record([[-0.5]], others=("elementwise_loss",)), record([[-1.0, -2.0], [-4.0]], pb.DTYPE_BFLOAT16, ("elementwise_loss",))], {}),
        output([], {"loss:sum": 0.25}),
    ],
    "samples": [
        sample([([7, 8, 2], [-0.5, -1.5, -0.125], pb.STOP_REASON_STOP)]),
        sample([([7, 151645], [-0.5, -2.5], pb.STOP_REASON_LENGTH), ([], None, pb.STOP_REASON_STOP)], 12),
    ],
}, indent=1))
