"""A runnable of BeeAI behind Annex. It repeats what it was sent."""

import sys

from beeai_framework.adapters.a2a import A2AServer, A2AServerConfig
from beeai_framework.backend import AssistantMessage, UserMessage
from beeai_framework.emitter import Emitter
from beeai_framework.memory import UnconstrainedMemory
from beeai_framework.runnable import Runnable, RunnableOutput, runnable_entry
from beeai_framework.serve.utils import LRUMemoryManager


class Repeats(Runnable[RunnableOutput]):
    name = "specialist"
    description = "Repeats what it was sent"

    @runnable_entry
    async def run(self, input, /, **_):
        texts = [message.text for message in input if isinstance(message, UserMessage)]
        return RunnableOutput(output=[AssistantMessage("I was sent: " + " | ".join(texts))])

    @property
    def emitter(self) -> Emitter:
        return Emitter.root().child(namespace=["specialist"])


config = A2AServerConfig(host="127.0.0.1", port=int(sys.argv[1]))
A2AServer(config=config, memory_manager=LRUMemoryManager(maxsize=100)).register(
    Repeats(), name="specialist", description="Repeats what it was sent"
).serve()
