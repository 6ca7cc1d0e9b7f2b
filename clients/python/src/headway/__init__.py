"""Train against a Headway control plane; predict, simulate, plan and understand runs.

    import headway, headway.torch

    hw = headway.connect("http://127.0.0.1:7070")
    model.load_state_dict(headway.torch.tensors(hw.load()))
    for batch in hw.batches():                  # leased, renewed in the background
        train_step(model, batch)                # calls batch.compare(its log-probs): do they agree with the engine's?
        hw.publish(batch, model.state_dict())   # the next version; acknowledges the batch

    headway.simulate("run.yaml", queue__factor=2).staleness.mean
    headway.plan(model="qwen3-8b", gpu="h100-sxm", gpus=16, budget=2).recommended

`headway.torch`, `headway.jax` and `headway.metrics` are imported by name and need what they are called after.
"""

from .agent import OpenAI
from .agreement import Agreement
from .analysis import compare, diagnose, doctor, grid, plan, predict, resimulate, simulate
from .batch import Batch, GroupStamp, Metadata, Rollout
from .claims import work
from .client import Client, connect
from .errors import (
    Busy,
    Conflict,
    Died,
    DiskFull,
    Failed,
    Forbidden,
    HeadwayError,
    HeadwayWarning,
    Internal,
    Invalid,
    LeaseExpired,
    MissingLibrary,
    NotFound,
    NotSettled,
    ProgramError,
    ProgramMissing,
    Refused,
    RunEnded,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from .meeting import RendezvousReply, rendezvous
from .play import DataFailure, Environment, InfraFailure, Result, Sampled, Task, Unwanted, environment
from .runs import Run, load
from .serving import Plane, serve
from .single_turn import Question, VerifierCrash, VerifierProtocol, VerifierTimeout, single_turn
from .tensors import BFloat16, bfloat16, narrow, widen

__version__ = "0.1.0"


__all__ = [
    "Agreement", "BFloat16", "Batch", "Busy", "Client", "Conflict", "DataFailure", "Died", "DiskFull",
    "Environment", "Failed", "Forbidden", "GroupStamp", "HeadwayError", "HeadwayWarning", "InfraFailure",
    "Internal", "Invalid", "LeaseExpired", "Metadata", "MissingLibrary", "NotFound", "NotSettled", "OpenAI",
    "Plane", "ProgramError", "ProgramMissing", "Question", "Refused", "RendezvousReply", "Result", "Rollout", "Run",
    "RunEnded", "Sampled", "Task", "TooLarge", "Unauthorized", "Unavailable", "Unwanted", "VerifierCrash",
    "VerifierProtocol", "VerifierTimeout", "bfloat16", "compare", "connect", "diagnose", "doctor", "environment",
    "grid", "load", "narrow", "plan", "predict", "rendezvous", "resimulate", "serve", "simulate", "single_turn",
    "widen", "work",
]  # fmt: skip
