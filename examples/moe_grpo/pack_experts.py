"""vLLM 0.30 on a CPU, mended: experts are packed again when weights are replaced.

Its kernel for CPUs wants the experts' weights in an order of its own. They are brought into it when the server starts
and not when weights are reloaded, after which it computes nonsense without a word. The server imports this by
`--worker-extension-cls pack_experts.Worker`, with this directory on PYTHONPATH.
"""

from typing import Any

from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod


class Worker:
    """Adds nothing to the server's workers: they import this module."""


def mend() -> None:
    """Pack after every reload."""
    setup = UnquantizedFusedMoEMethod._setup_kernel

    def packed(self: Any, layer: Any, w13: Any, w2: Any) -> None:
        again = self.moe_kernel is not None
        setup(self, layer, w13, w2)
        if again:
            self.moe_kernel.fused_experts.process_weights_after_loading(layer)

    UnquantizedFusedMoEMethod._setup_kernel = packed


mend()
