"""An agent of CrewAI behind Annex, served by the official SDK of 0.3. Its model repeats what it was sent."""

import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard
from crewai import Agent, BaseLLM
from crewai.a2a.utils.task import cancel, execute


class Repeats(BaseLLM):
    def call(self, messages, *_, **__):
        texts = [messages] if isinstance(messages, str) else [m["content"] for m in messages if m["role"] == "user"]
        return "I was sent: " + " | ".join(texts)


agent = Agent(role="specialist", goal="repeat", backstory="none", llm=Repeats(model="fake"))


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        await execute(agent, context, event_queue)

    async def cancel(self, context, event_queue):
        await cancel(context, event_queue)


card = AgentCard(
    name="specialist",
    description="Repeats what it was sent",
    version="1.0.0",
    url=f"http://127.0.0.1:{sys.argv[1]}",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[],
)
handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore())
uvicorn.run(A2AStarletteApplication(card, handler).build(), port=int(sys.argv[1]), log_level="warning")
