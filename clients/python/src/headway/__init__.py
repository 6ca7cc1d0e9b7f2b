"""Train against a Headway control plane.

    import headway, headway.torch

    hw = headway.connect("http://127.0.0.1:7070")
    model.load_state_dict(headway.torch.tensors(hw.load()))
    for batch in hw.batches():                  # leased, renewed in the background
        train_step(model, batch)
        hw.publish(batch, model.state_dict())   # the next version; acknowledges the batch

`headway.torch`, `headway.jax` and `headway.metrics` are imported by name and need what they are called after.
"""

from .agent import OpenAI
from .batch import Batch, GroupStamp, Metadata, Rollout
from .claims import work
from .client import Client, connect
from .errors import (
    Busy,
    Conflict,
    DiskFull,
    Forbidden,
    HeadwayError,
    Internal,
    Invalid,
    LeaseExpired,
    NotFound,
    ProgramMissing,
    RunEnded,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from .meeting import RendezvousReply, rendezvous
from .play import Environment, Result, Sampled, Task, Unwanted, environment
from .single_turn import Question, VerifierCrash, VerifierProtocol, VerifierTimeout, single_turn
from .tensors import BFloat16, bfloat16, narrow, widen

__version__ = "0.1.0"


__all__ = [
    "BFloat16", "Batch", "Busy", "Client", "Conflict", "DiskFull", "Environment", "Forbidden", "GroupStamp",
    "HeadwayError", "Internal", "Invalid", "LeaseExpired", "Metadata", "NotFound", "OpenAI", "ProgramMissing",
    "Question", "RendezvousReply", "Result", "Rollout", "RunEnded", "Sampled", "Task", "TooLarge", "Unauthorized",
    "Unavailable", "Unwanted", "VerifierCrash", "VerifierProtocol", "VerifierTimeout", "bfloat16", "connect",
    "environment", "narrow", "rendezvous", "single_turn", "widen", "work",
]  # fmt: skip
