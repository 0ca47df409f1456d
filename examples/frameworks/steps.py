"""What the callers share: the extension, and a line of JSON for what each step heard."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from uuid import uuid4

URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"
STATE = {"name": "Ada"}
HELLO = "Hello"
AGAIN = "What did you say?"
WHO = "Who am I?"


def new_id() -> str:
    return str(uuid4())


def run(**steps: Callable[[str], Awaitable[str]]) -> None:
    """Runs the steps against the agent at the URL that the program was given. A step that fails says how.

    They share an event loop, as the steps of a program do: some frameworks keep connections for all calls.
    """
    with asyncio.Runner() as runner:
        for name, step in steps.items():
            try:
                heard = runner.run(step(sys.argv[1]))
            except Exception as error:
                heard = f"{type(error).__name__}: {error}"
            print(json.dumps({"step": name, "heard": heard}), flush=True)
