"""An agent in Python that repeats what it hears, with the Timestamp extension.

    python server.py [PORT]        # default: a free one

It prints its URL when it is ready, and serves JSON-RPC and HTTP+JSON.
"""

import socket
import sys

import uvicorn
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from a2a.utils.constants import TransportProtocol
from starlette.applications import Starlette

import timestamp


class Echo(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await event_queue.enqueue_event(context.current_task or new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work(updater.new_agent_message([Part(text="I listen.")]))
        await updater.add_artifact([Part(text=f"You said: {context.get_user_input()}")], last_chunk=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(url: str) -> AgentCard:
    def interface(binding: TransportProtocol, path: str) -> AgentInterface:
        return AgentInterface(url=url + path, protocol_binding=binding, protocol_version="1.0")

    return AgentCard(
        name="Echo",
        description="Repeats what it hears",
        version="1.0.0",
        supported_interfaces=[
            interface(TransportProtocol.JSONRPC, "/jsonrpc"),
            interface(TransportProtocol.HTTP_JSON, "/rest"),
        ],
        capabilities=AgentCapabilities(streaming=True, extensions=[timestamp.DECLARATION]),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="Echo", description="Repeats what it hears", tags=["test"])],
    )


def main(port: int) -> None:
    # The socket first: the card has the port in its URLs.
    listener = socket.create_server(("127.0.0.1", port))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    agent = card(url)
    handler = DefaultRequestHandler(timestamp.Stamping(Echo()), InMemoryTaskStore(), agent)
    routes = [
        *create_agent_card_routes(agent),
        *create_jsonrpc_routes(handler, "/jsonrpc"),
        *create_rest_routes(handler, path_prefix="/rest"),
    ]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning"))
    # Who connects before the server runs waits in the socket's queue.
    print(url, flush=True)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
