"""The Timestamp extension for servers with the Python SDK: the time on what an agent sends, for clients that ask."""

from collections.abc import Iterable
from datetime import datetime, timezone

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import Event, EventQueue
from a2a.types import AgentExtension, Artifact, Message, Role, Task, TaskArtifactUpdateEvent

URI = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"
FIELD = "github.com/a2aproject/a2a-samples/extensions/timestamp/v1/timestamp"

DECLARATION = AgentExtension(uri=URI, description="Adds the time to messages and artifacts.")


class Stamping(AgentExecutor):
    """Runs an agent and stamps its events in the calls that activate the extension."""

    def __init__(self, agent: AgentExecutor) -> None:
        self.agent = agent

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await self.agent.execute(context, self._queue(context, event_queue))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await self.agent.cancel(context, self._queue(context, event_queue))

    @staticmethod
    def _queue(context: RequestContext, event_queue: EventQueue) -> EventQueue:
        return _StampingQueue(event_queue) if URI in context.requested_extensions else event_queue


class _StampingQueue(EventQueue):
    def __init__(self, queue: EventQueue) -> None:
        self.queue = queue

    async def enqueue_event(self, event: Event) -> None:
        for stampable in _stampable(event):
            # Who stamped it first knew the time better.
            if FIELD not in stampable.metadata:
                stampable.metadata.update({FIELD: datetime.now(timezone.utc).isoformat()})
                stampable.extensions.append(URI)
        await self.queue.enqueue_event(event)


def _stampable(event: Event) -> Iterable[Message | Artifact]:
    """What an event has that takes a stamp: the agent's messages and the artifacts."""
    if isinstance(event, Message):
        yield event
        return
    if isinstance(event, TaskArtifactUpdateEvent):
        yield event.artifact
        return
    if isinstance(event, Task):
        yield from event.artifacts
        yield from (message for message in event.history if message.role == Role.ROLE_AGENT)
    if event.status.HasField("message"):
        yield event.status.message
