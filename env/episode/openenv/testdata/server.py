"""Environments of OpenEnv's own library, for the tests: `server.py KIND PORT`."""

import os
import random
import sys
import time
from typing import Any, Optional

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    number: int
    why: str = ""


class Say(Action):
    message: str


class Seen(Observation):
    text: str
    steps: int = 0


class Guessing(Environment[Guess, Seen, State]):
    """A number is to be guessed; the reward of the right one is 1 / steps."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()
        self.secret = 0

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, high: int = 100, **_: Any) -> Seen:
        self.secret = random.Random(seed).randint(1, high)
        self._state = State(episode_id=episode_id, step_count=0)
        return Seen(text=f"Guess a number from 1 to {high}.")

    def step(self, action: Guess, timeout_s: Optional[float] = None, **_: Any) -> Seen:
        self._state.step_count += 1
        steps = self._state.step_count
        if action.why == "exit":
            os._exit(3)
        if action.why == "raise":
            raise RuntimeError("the environment is broken")
        if action.why == "sleep":
            time.sleep(3600)
        if action.why == "nan":
            return Seen(text="?", reward=float("nan"), steps=steps)
        if action.why == "long":
            return Seen(text="x" * (2 << 20), steps=steps)
        if action.number == self.secret:
            return Seen(text="Right.", reward=1 / steps, done=True, steps=steps)
        return Seen(text="Higher." if action.number < self.secret else "Lower.", reward=0, steps=steps)

    @property
    def state(self) -> State:
        return self._state


class Echo(Environment[Say, Seen, State]):
    """What is said is said again."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **_: Any) -> Seen:
        self._state = State(episode_id=episode_id)
        return Seen(text=f"episode {episode_id} with seed {seed}")

    def step(self, action: Say, timeout_s: Optional[float] = None, **_: Any) -> Seen:
        self._state.step_count += 1
        return Seen(text=action.message, steps=self._state.step_count)

    @property
    def state(self) -> State:
        return self._state


def tools() -> Any:
    """An environment whose actions are calls of MCP tools."""
    from fastmcp import FastMCP
    from openenv.core.env_server.mcp_environment import MCPEnvironment
    from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

    class Calculator(MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            server = FastMCP("calculator")

            @server.tool()
            def add(a: int, b: int) -> int:
                """Add two numbers."""
                return a + b

            super().__init__(server)
            self._state = State()

        def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **_: Any) -> Observation:
            self._state = State(episode_id=episode_id)
            return Observation()

        def _step_impl(self, action: Action, timeout_s: Optional[float] = None, **_: Any) -> Observation:
            raise ValueError("only tools")

        @property
        def state(self) -> State:
            return self._state

    return create_fastapi_app(Calculator, CallToolAction, CallToolObservation, max_concurrent_envs=2)


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "guess":
        app = create_fastapi_app(Guessing, Guess, Seen, max_concurrent_envs=2)
    elif kind == "echo":
        app = create_fastapi_app(Echo, Say, Seen, max_concurrent_envs=64)
    else:
        app = tools()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
