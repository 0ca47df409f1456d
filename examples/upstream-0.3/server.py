"""An agent made with the official Python SDK of A2A 0.3: it speaks nothing else, and has no extension.

    python server.py [PORT]        # default: 9996

With A2A_TRANSPORT=HTTP+JSON it speaks HTTP+JSON, and otherwise JSON-RPC.
"""

import os
import re
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task


class Reading(AgentExecutor):
    """Knows of the user what the message says."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task or new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        told = context.get_user_input()
        known = {key: re.findall(rf'"{key}"\s*:\s*"([^"]*)"', told) for key in ("name", "email")}
        answer = "I do not know who you are."
        if all(known.values()):
            answer = f"You are {known['name'][-1]} and your email is {known['email'][-1]}."
        await updater.add_artifact([Part(root=TextPart(text=answer))], last_chunk=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main(port: int, transport: str) -> None:
    skill = AgentSkill(id="specialist", name="Specialist", description="Answers about the user", tags=["support"])
    card = AgentCard(
        name="Specialist of 0.3",
        description="Answers questions about the user and their work",
        version="1.0.0",
        url=f"http://127.0.0.1:{port}/",
        preferred_transport=transport,
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )
    application = A2ARESTFastAPIApplication if transport == "HTTP+JSON" else A2AStarletteApplication
    app = application(card, DefaultRequestHandler(Reading(), InMemoryTaskStore()))
    uvicorn.run(app.build(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9996, os.environ.get("A2A_TRANSPORT", "JSONRPC"))
