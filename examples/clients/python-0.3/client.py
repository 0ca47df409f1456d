"""Sends session state to an A2A agent with the official Python SDK for A2A 0.3.

    python client.py [URL]        # default: http://127.0.0.1:9999

For programs that have not moved on to A2A 1.0.
Short programs, to be read in this order. Each checks what the agent answered, over JSON-RPC, HTTP+JSON and gRPC.
"""

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from functools import cache
from urllib.parse import urlsplit
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientEvent, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.extensions.common import find_extension_by_uri
from a2a.types import (
    AgentCard,
    AgentInterface,
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
    TransportProtocol,
)
from a2a.utils.artifact import get_artifact_text

# The URI names the extension. The key, which has no scheme, says where in the metadata the state lies.
URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
STATE_FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"
TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"

BINDINGS = [TransportProtocol.jsonrpc, TransportProtocol.http_json, TransportProtocol.grpc]
STATE = {"user_info": {"name": "Ada Lovelace", "role": "AI Specialist", "email": "ada@example.com"}}
QUESTION = "Who am I and what is my email?"
SLOW_QUESTION = "Tell me a story"

# What this SDK keeps of an error: over JSON-RPC its code, over HTTP+JSON the status of HTTP, over gRPC the whole status.
EXTENSION_REQUIRED = dict(zip(BINDINGS, (-32008, 400, grpc.StatusCode.FAILED_PRECONDITION)))
INVALID_PARAMS = dict(zip(BINDINGS, (-32602, 400, grpc.StatusCode.INVALID_ARGUMENT)))
TASK_NOT_FOUND = dict(zip(BINDINGS, (-32001, 404, grpc.StatusCode.NOT_FOUND)))
TASK_NOT_CANCELABLE = dict(zip(BINDINGS, (-32002, 400, grpc.StatusCode.UNIMPLEMENTED)))

# One connection for all clients over gRPC.
channel = cache(grpc.aio.insecure_channel)


def message(text: str, state: dict = STATE, context_id: str | None = None) -> Message:
    return Message(
        message_id=str(uuid4()),
        role=Role.user,
        parts=[Part(root=TextPart(text=text))],
        context_id=context_id,
        metadata={STATE_FIELD: state},
    )


def events(client: Client, message: Message, *extensions: str) -> AsyncIterator[ClientEvent]:
    """Sends one message. Extensions named here take the place of those that the client activates in every call."""
    return client.send_message(message, extensions=list(extensions) or None)


async def send(client: Client, message: Message, *extensions: str) -> Task:
    """Sends one message without streaming and returns the finished task."""
    [(task, _)] = [event async for event in events(client, message, *extensions)]
    return task


async def check_refused(call: Awaitable, config: ClientConfig, expected: dict) -> str:
    """Checks the error that a call must end with, and returns its message."""
    [binding] = config.supported_transports
    try:
        answer = await call
    except A2AClientJSONRPCError as error:
        assert error.error.code == expected[binding], error
        return error.error.message
    except A2AClientHTTPError as error:
        assert error.status_code == expected[binding], error
        return error.message.splitlines()[0]
    except grpc.aio.AioRpcError as error:
        assert error.code() == expected[binding], error
        return error.details()
    raise AssertionError(f"accepted: {answer}")


def name_of(event: ClientEvent) -> str:
    """What an event of a stream is: a task, an artifact, or the state that the task is in now."""
    _, update = event
    if isinstance(update, TaskStatusUpdateEvent):
        return update.status.state.value
    return "artifact" if update else "task"


def client_of(card: AgentCard, config: ClientConfig, *extensions: str, streaming: bool = False) -> Client:
    """A client that activates the extensions in every call."""
    return ClientFactory(replace(config, streaming=streaming, extensions=list(extensions))).create(card)


def check_answer(artifact: Artifact, extensions: Sequence[str] = (URI,)) -> None:
    """The agent knows the user, says which extensions took part, and returns the state after the turn."""
    text = get_artifact_text(artifact)
    assert STATE["user_info"]["name"] in text and STATE["user_info"]["email"] in text, text
    assert set(artifact.extensions) == set(extensions), artifact.extensions
    assert artifact.metadata[STATE_FIELD] == {**STATE, "last_answer": text}, artifact.metadata


async def discovery(card: AgentCard) -> str:
    """The card has the shape of 0.3 too. It says which extension the agent has, and what the state must look like."""
    assert card.protocol_version.startswith("0.3"), card.protocol_version
    extension = find_extension_by_uri(card, URI)
    assert extension is not None, "the agent does not have the extension"
    assert extension.required, "the agent does not insist on it"
    schema = extension.params["state_schema"]
    assert schema["required"] == ["user_info"], schema
    return json.dumps(schema["properties"]["user_info"]["properties"])


async def naive_call(card: AgentCard, config: ClientConfig) -> str:
    """State in the metadata activates nothing, and a required extension that is not active is an error."""
    client = client_of(card, config, streaming=True)
    await check_refused(anext(events(client, message(QUESTION))), config, EXTENSION_REQUIRED)
    client = client_of(card, config)
    reason = await check_refused(send(client, message(QUESTION)), config, EXTENSION_REQUIRED)
    return f"refused: {reason}"


async def explicit_activation(card: AgentCard, config: ClientConfig) -> str:
    """One call: the URI in the header X-A2A-Extensions, the state in the metadata of the message."""
    client = client_of(card, config)
    task = await send(client, message(QUESTION), URI)
    assert task.status.state == TaskState.completed, task.status
    check_answer(task.artifacts[0])
    return get_artifact_text(task.artifacts[0])


async def every_call(card: AgentCard, config: ClientConfig) -> str:
    """The client activates the extension in every call; a call may name others beside it."""
    client = client_of(card, config, URI)
    first = await send(client, message(QUESTION))
    check_answer(first.artifacts[0])

    second = await send(client, message(QUESTION, context_id=first.context_id), URI, TIMESTAMP)
    assert second.context_id == first.context_id, second.context_id
    check_answer(second.artifacts[0], [URI, TIMESTAMP])
    return f"two turns in context {first.context_id}, the second with {len(second.artifacts[0].extensions)} extensions"


async def streaming(card: AgentCard, config: ClientConfig) -> str:
    """The same as a stream: the task, its states, the artifact as soon as there is one."""
    client = client_of(card, config, URI, streaming=True)
    seen = []
    async for task, update in events(client, message(QUESTION)):
        seen.append(name_of((task, update)))
        if isinstance(update, TaskArtifactUpdateEvent):
            check_answer(update.artifact)
    assert seen == ["task", "working", "artifact", "completed"], seen
    return " → ".join(seen)


async def invalid_state(card: AgentCard, config: ClientConfig) -> str:
    """State that violates the schema is refused before a task exists."""
    client = client_of(card, config, URI)
    wrong = {"user_info": {**STATE["user_info"], "email": "not an address"}}
    reason = await check_refused(send(client, message(QUESTION, wrong)), config, INVALID_PARAMS)
    return f"refused: {reason}"


async def finished_task(card: AgentCard, config: ClientConfig) -> str:
    """A task that is over can be read, and not cancelled."""
    client = client_of(card, config, URI)
    sent = await send(client, message(QUESTION))
    read = await client.get_task(TaskQueryParams(id=sent.id))
    assert read.status.state == TaskState.completed, read.status
    check_answer(read.artifacts[0])

    await check_refused(client.cancel_task(TaskIdParams(id=sent.id)), config, TASK_NOT_CANCELABLE)
    await check_refused(client.get_task(TaskQueryParams(id=str(uuid4()))), config, TASK_NOT_FOUND)
    return f"task {read.id} read"


async def running_task(card: AgentCard, config: ClientConfig) -> str:
    """A task that runs can be followed by a second reader, and cancelled: both streams end with that."""
    client = client_of(card, config, URI, streaming=True)
    first_reader = events(client, message(SLOW_QUESTION))
    task, _ = await anext(first_reader)
    second_reader = client.resubscribe(TaskIdParams(id=task.id))
    seen = [name_of(await anext(second_reader))]
    await client.cancel_task(TaskIdParams(id=task.id))
    seen += [name_of(event) async for event in second_reader]
    rest = [name_of(event) async for event in first_reader]
    assert (seen[0], seen[-1], rest[-1]) == ("task", "canceled", "canceled"), (seen, rest)
    return " → ".join(seen)


STEPS = [naive_call, explicit_activation, every_call, streaming, invalid_state, finished_task, running_task]


async def report(name: str, step: Awaitable[str]) -> bool:
    """Runs one step and says what it saw. False when it failed."""
    try:
        print(f"ok    {name}: {await step}", flush=True)
    except Exception:
        print(f"FAIL  {name}", flush=True)
        traceback.print_exc()
        return False
    return True


async def main(url: str) -> int:
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        outcomes = [await report("discovery", discovery(card))]
        # The card of the example does not name gRPC, which is served at the same port.
        address = AgentInterface(transport=TransportProtocol.grpc, url=urlsplit(url).netloc)
        if all(interface.transport != address.transport for interface in card.additional_interfaces or []):
            card.additional_interfaces = [*(card.additional_interfaces or []), address]
        for binding in BINDINGS:
            config = ClientConfig(httpx_client=http, supported_transports=[binding], grpc_channel_factory=channel)
            for step in STEPS:
                outcomes.append(await report(f"{step.__name__} over {binding.value}", step(card, config)))
        await channel(address.url).close()
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999")))
