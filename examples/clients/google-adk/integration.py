"""Calls an agent that has ADK's integration extension, from an agent of Google's Agent Development Kit.

    python integration.py [URL]        # default: http://127.0.0.1:9999

ADK reads an answer in one of two ways. It takes the newer way if the metadata of the task has the extension's mark.
"""

import asyncio
import logging
import sys
import warnings

from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent

from client import Conversation, report, text_of

URI = "https://google.github.io/adk-docs/a2a/a2a-extension/"
ANSWER = "A flight to Rome leaves at nine."


class Watched(RemoteA2aAgent):
    """Notes for each event in which of the two ways ADK reads it."""

    async def _handle_a2a_response(self, *arguments):
        WAYS.append("older")
        return await super()._handle_a2a_response(*arguments)

    async def _handle_a2a_response_v2(self, *arguments):
        WAYS.append("newer")
        return await super()._handle_a2a_response_v2(*arguments)


WAYS: list[str] = []


async def marked(url: str) -> str:
    """The task has the mark."""
    answer = await Conversation(Watched("specialist", url)).say("When is the next flight?")
    mark = answer.custom_metadata["a2a:response"]["metadata"][URI]
    assert mark == {"adk_agent_executor_v2": True}, mark
    return str(mark)


async def newer_way(url: str) -> str:
    """The task is created before an extension runs. From the first status on, ADK reads each event in the newer way."""
    WAYS.clear()
    answer = await Conversation(Watched("specialist", url)).say("When is the next flight?")
    assert text_of(answer) == ANSWER, answer
    assert WAYS[0] == "older" and set(WAYS[1:]) == {"newer"}, WAYS
    assert not any(part.thought for part in answer.content.parts), answer
    return ", ".join(WAYS)


STEPS = [marked, newer_way]


async def main(url: str) -> int:
    card = url.rstrip("/") + AGENT_CARD_WELL_KNOWN_PATH
    outcomes = [await report(step.__name__, step(card)) for step in STEPS]
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"\[EXPERIMENTAL\]")
    sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999")))
