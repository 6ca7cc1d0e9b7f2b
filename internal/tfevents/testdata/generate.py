"""Writes an event file as one of the libraries does: python generate.py DIRECTORY tensorboard|tensorboardX|torch

Run by hand; the files beside this one are from tensorboard 2.21.0, tensorboardX 2.6 and torch 2.13.0.
"""

import sys

out, library = sys.argv[1:]
if library == "tensorboard":
    import numpy as np
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar import metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util

    writer = EventFileWriter(out)
    for i in range(4):
        tensor = tensor_util.make_tensor_proto(np.float32(1.5 + i))  # as TensorFlow 2 does
        value = Summary.Value(tag="timing/step", tensor=tensor, metadata=metadata.create_summary_metadata("", ""))
        writer.add_event(Event(step=i, wall_time=1000.0 + i, summary=Summary(value=[value])))
        value = Summary.Value(tag="async/staleness_mean", simple_value=0.25 * i)
        writer.add_event(Event(step=i, wall_time=1000.5 + i, summary=Summary(value=[value])))
else:
    if library == "torch":
        from torch.utils.tensorboard import SummaryWriter
    else:
        from tensorboardX import SummaryWriter
    new = {"new_style": True} if library == "torch" else {}
    writer = SummaryWriter(out)
    for i in range(4):
        writer.add_scalar("timing/step", 1.5 + i, i)
        writer.add_scalar("async/staleness_mean", 0.25 * i, i, **new)
        if new:
            writer.add_scalar("double", 0.1 * i, i, **new, double_precision=True)
    if not new:
        writer.add_scalar("async/nan", float("nan"), 3)
        writer.add_text("note", "hello", 0)
writer.close()
