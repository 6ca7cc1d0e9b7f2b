"""What the tests run against, by the environment that cmd/lab/bench/engines gives them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from engine import Engine, Truth

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def directories() -> list[str]:
    return os.environ["HEADWAY_TEST_WEIGHTS"].split(":")


@pytest.fixture(scope="session")
def truth(directories: list[str]) -> Truth:
    return Truth(directories)


@pytest.fixture
def engine(directories: list[str]) -> Iterator[Engine]:
    """The server that samples in single precision, with the first weights."""
    found = Engine(os.environ["HEADWAY_TEST_VLLM_ROUTING"])
    yield found
    found.call("/resume")
    found.load(directories[0])
    found.reset()


@pytest.fixture
def half() -> Engine:
    """The server that samples in half precision, with the first weights."""
    return Engine(os.environ["HEADWAY_TEST_VLLM_ROUTING_PEER"])
