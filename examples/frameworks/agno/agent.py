"""An agent of Agno behind Annex. Its model repeats what it was sent."""

import sys
from dataclasses import dataclass

import uvicorn
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS
from agno.os.interfaces.a2a import A2A


@dataclass
class Repeats(Model):
    id: str = "repeats"

    def answer(self, messages) -> ModelResponse:
        texts = [str(message.content) for message in messages if message.role == "user"]
        return ModelResponse(role="assistant", content="I was sent: " + " | ".join(texts))

    def invoke(self, messages, *_, **__):
        return self.answer(messages)

    async def ainvoke(self, messages, *_, **__):
        return self.answer(messages)

    def invoke_stream(self, messages, *_, **__):
        yield self.answer(messages)

    async def ainvoke_stream(self, messages, *_, **__):
        yield self.answer(messages)

    def _parse_provider_response(self, response, **_):
        return response

    def _parse_provider_response_delta(self, response):
        return response


agent = Agent(id="specialist", name="specialist", model=Repeats(), db=InMemoryDb(), add_history_to_context=True)
app = AgentOS(agents=[agent], interfaces=[A2A(agents=[agent])], telemetry=False).get_app()
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
