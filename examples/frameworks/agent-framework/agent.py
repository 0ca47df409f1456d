"""An agent of Microsoft's Agent Framework behind Annex. It repeats what it was sent, and keeps no history."""

import sys

import uvicorn
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from agent_framework import Agent, BaseChatClient, ChatResponse, Content, Message
from agent_framework.a2a import A2AExecutor
from starlette.applications import Starlette


class Repeats(BaseChatClient):
    def _inner_get_response(self, *, messages, stream, options, **_):
        async def answer():
            texts = [message.text for message in messages if message.role == "user"]
            said = Content.from_text("I was sent: " + " | ".join(texts))
            return ChatResponse(messages=[Message("assistant", [said])])

        return answer()


url = f"http://127.0.0.1:{sys.argv[1]}"
card = AgentCard(
    name="specialist",
    description="Repeats what it was sent",
    version="1.0.0",
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    capabilities=AgentCapabilities(streaming=True),
    supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
)
agent = Agent(client=Repeats(), name="specialist")
handler = DefaultRequestHandler(agent_executor=A2AExecutor(agent), task_store=InMemoryTaskStore(), agent_card=card)
routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]
uvicorn.run(Starlette(routes=routes), port=int(sys.argv[1]), log_level="warning")
