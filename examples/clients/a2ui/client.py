"""Shows a form of an A2A agent with the Python packages of A2UI.

    python client.py [URL]        # default: http://127.0.0.1:9999
"""

import asyncio
import sys
import traceback
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from a2a.extensions.common import find_extension_by_uri
from a2a.types import AgentCard, Message, Part, Role, Task, TaskState, TextPart
from a2ui.a2a import create_a2ui_part, get_a2ui_extension_uri, is_a2ui_part
from a2ui.core.basic_catalog.v0_9 import BasicCatalog
from a2ui.core.processing.message_processor import MessageProcessor, MessageProcessorOptions
from a2ui.core.validation.payload_validator import STRICT_VALIDATION

VERSION = "0.9.1"
URI = get_a2ui_extension_uri(VERSION)
BASIC = BasicCatalog().id
ACTION = {
    "name": "submit",
    "surfaceId": "form",
    "sourceComponentId": "send",
    "timestamp": "2026-01-01T00:00:00Z",
    "context": {"name": "Ada"},
}


def message(*parts: Part) -> Message:
    """A message of a client that can show the basic catalogue."""
    metadata = {"a2uiClientCapabilities": {"v0.9": {"supportedCatalogIds": [BASIC]}}}
    return Message(message_id=uuid4().hex, role=Role.user, parts=list(parts), metadata=metadata)


def text(words: str) -> Part:
    return Part(root=TextPart(text=words))


def action(body: dict) -> Part:
    return create_a2ui_part({"version": "v0.9.1", "action": body}, VERSION)


async def send(client: Client, sent: Message) -> Task:
    """Sends one message without the header of the extension, and returns the finished task."""
    [(task, _)] = [event async for event in client.send_message(sent)]
    return task


async def discovery(card: AgentCard, _client: Client) -> str:
    extension = find_extension_by_uri(card, URI)
    assert extension is not None, "the agent does not have the extension"
    assert extension.params["supportedCatalogIds"] == [BASIC], extension.params
    return f"{URI} with {BASIC}"


async def form(_card: AgentCard, client: Client) -> str:
    task = await send(client, message(text("form, please")))
    assert task.status.state == TaskState.completed, task.status
    [artifact] = task.artifacts
    assert artifact.extensions == [URI], artifact.extensions
    # A part of A2A 0.3 has no media type, so the server puts it into the metadata, where the package looks for it.
    data = [part for part in artifact.parts if part.root.kind == "data"]
    assert data and all(is_a2ui_part(part) for part in data), artifact.parts
    processor = MessageProcessor([BasicCatalog()], options=MessageProcessorOptions(validation_config=STRICT_VALIDATION))
    processor.process_messages([part.root.data for part in data])
    surface = processor.model.get_surface("form")
    assert surface is not None, "the processor has no surface"
    return f"a surface of {artifact.parts[0].root.text!r}"


async def taken_action(_card: AgentCard, client: Client) -> str:
    task = await send(client, message(action(ACTION)))
    assert task.status.state == TaskState.completed, task.status
    return task.status.message.parts[0].root.text


async def wrong_action(_card: AgentCard, client: Client) -> str:
    body = {key: value for key, value in ACTION.items() if key != "context"}
    try:
        task = await send(client, message(action(body)))
    except A2AClientJSONRPCError as error:
        assert error.error.code == -32602 and "/message/parts/0/data/action" in error.error.message, error
        return error.error.message
    raise AssertionError(f"accepted: {task}")


async def wrong_answer(_card: AgentCard, client: Client) -> str:
    task = await send(client, message(text("script, please")))
    assert task.status.state == TaskState.failed and not task.artifacts, task
    reason = task.status.message.parts[0].root.text
    assert "/updateComponents/components/0/component" in reason, reason
    return reason


async def main(url: str) -> int:
    passed = 0
    steps = (discovery, form, taken_action, wrong_action, wrong_answer)
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        for step in steps:
            name = step.__name__
            try:
                print(f"ok      {name}: {await step(card, client)}")
                passed += 1
            except Exception:
                print(f"FAILED  {name}\n{traceback.format_exc()}")
    print(f"{passed} of {len(steps)} passed")
    return 0 if passed == len(steps) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*(sys.argv[1:] or ["http://127.0.0.1:9999"]))))
