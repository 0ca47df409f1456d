"""An agent of Strands behind Annex. Its model repeats what it was sent."""

import sys

from strands import Agent
from strands.models import Model
from strands.multiagent.a2a import A2AServer


class Repeats(Model):
    def update_config(self, **_):
        pass

    def get_config(self):
        return {}

    def structured_output(self, *_, **__):
        raise NotImplementedError

    async def stream(self, messages, *_, **__):
        texts = [block["text"] for message in messages if message["role"] == "user" for block in message["content"]]
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": "I was sent: " + " | ".join(texts)}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def specialist(_context: str) -> Agent:
    return Agent(model=Repeats(), name="specialist", description="Repeats what it was sent", callback_handler=None)


A2AServer(agent_factory=specialist, port=int(sys.argv[1]), enable_a2a_compliant_streaming=True).serve()
