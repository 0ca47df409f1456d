"""An agent of AG2 behind Annex. Its model repeats what it was sent."""

import sys

import uvicorn
from ag2 import Agent
from ag2.a2a import A2AServer
from ag2.config import ModelConfig
from ag2.events import ModelMessage, ModelRequest, ModelResponse


class Repeats:
    async def __call__(self, messages, context, **_):
        texts = [part.content for event in messages if isinstance(event, ModelRequest) for part in event.parts]
        message = ModelMessage("I was sent: " + " | ".join(texts))
        await context.send(message)
        return ModelResponse(message)


class Model(ModelConfig):
    provider = "fake"
    model = "fake"

    def copy(self):
        return self

    def create(self):
        return Repeats()


port = int(sys.argv[1])
server = A2AServer(Agent("specialist", config=Model()))
uvicorn.run(server.build_jsonrpc(url=f"http://127.0.0.1:{port}"), port=port, log_level="warning")
