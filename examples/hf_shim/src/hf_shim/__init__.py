"""A small rollout server over torch that speaks SGLang's HTTP: real weights, real updates, on a CPU."""

__version__ = "0.1.0"
