"""Sends session state to an A2A agent with the official Python SDK.

    python client.py [URL]        # default: http://127.0.0.1:9999

Short programs, to be read in this order. Each checks what the agent answered, over every binding that A2A has.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from uuid import uuid4

from a2a.client import ClientCallContext, ClientCallInterceptor
from a2a.client.interceptors import AfterArgs, BeforeArgs
from a2a.extensions.common import find_extension_by_uri
from a2a.helpers import get_artifact_text
from a2a.types import (
    AgentCard,
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import (
    ExtensionSupportRequiredError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from calls import Agent, activating, events, name_of, refusal, run, send

# The URI names the extension. The key, which has no scheme, says where in the metadata the state lies.
URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
STATE_FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"
TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"

STATE = {"user_info": {"name": "Ada Lovelace", "role": "AI Specialist", "email": "ada@example.com"}}
QUESTION = "Who am I and what is my email?"
SLOW_QUESTION = "Tell me a story"


class StateInjection(ClientCallInterceptor):
    """Activates the extension and adds the state in every call of a client that sends a message."""

    def __init__(self, state: dict) -> None:
        self.state = state

    async def before(self, args: BeforeArgs) -> None:
        if not isinstance(args.input, SendMessageRequest):
            return
        # Add to what the caller asked for: a new context would drop the caller's timeout and other extensions.
        context = args.context or ClientCallContext()
        parameters = activating([URI], context.service_parameters)
        args.context = context.model_copy(update={"service_parameters": parameters})
        args.input.message.metadata.update({STATE_FIELD: self.state})

    async def after(self, args: AfterArgs) -> None:
        """Leaves the answer as it is."""


def request(text: str, state: dict | None = None, context_id: str = "") -> SendMessageRequest:
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], context_id=context_id)
    if state is not None:
        message.metadata.update({STATE_FIELD: state})
    return SendMessageRequest(message=message)


def state_of(artifact: Artifact) -> dict:
    return MessageToDict(artifact.metadata)[STATE_FIELD]


def check_answer(artifact: Artifact, extensions: Sequence[str] = (URI,)) -> None:
    """The agent knows the user, says which extensions took part, and returns the state after the turn."""
    text = get_artifact_text(artifact)
    assert STATE["user_info"]["name"] in text and STATE["user_info"]["email"] in text, text
    assert set(artifact.extensions) == set(extensions), artifact.extensions
    assert state_of(artifact) == {**STATE, "last_answer": text}, state_of(artifact)


async def discovery(card: AgentCard) -> str:
    """The card says whether the agent has the extension, insists on it, and what the state must look like."""
    extension = find_extension_by_uri(card, URI)
    assert extension is not None, "the agent does not have the extension"
    assert extension.required, "the agent does not insist on it"
    schema = MessageToDict(extension.params)["state_schema"]
    assert schema["required"] == ["user_info"], schema
    return json.dumps(schema["properties"]["user_info"]["properties"])


async def naive_call(agent: Agent) -> str:
    """State in the metadata activates nothing, and a required extension that is not active is an error."""
    for streaming in (False, True):
        async with agent.client(streaming=streaming) as client:
            call = anext(events(client, request(QUESTION, STATE)))
            error = await refusal(call, ExtensionSupportRequiredError)
            assert URI in error.message, error.message
    return f"refused: {error.message}"


async def explicit_activation(agent: Agent) -> str:
    """One call: the URI in the service parameters, the state in the metadata of the message."""
    async with agent.client() as client:
        task = await send(client, request(QUESTION, STATE), URI)
    assert task.status.state == TaskState.TASK_STATE_COMPLETED, task.status
    check_answer(task.artifacts[0])
    return f"{get_artifact_text(task.artifacts[0])} State returned: {', '.join(state_of(task.artifacts[0]))}"


async def interceptor(agent: Agent) -> str:
    """Every call: the caller sends text only, and may activate other extensions beside this one."""
    async with agent.client(StateInjection(STATE)) as client:
        first = await send(client, request(QUESTION))
        second = await send(client, request(QUESTION, context_id=first.context_id), TIMESTAMP)
    check_answer(first.artifacts[0])
    assert second.context_id == first.context_id, second.context_id
    check_answer(second.artifacts[0], [URI, TIMESTAMP])
    return f"two turns in context {first.context_id}, the second with {len(second.artifacts[0].extensions)} extensions"


async def streaming(agent: Agent) -> str:
    """The same as a stream: the task, its states, the artifact as soon as there is one."""
    seen = []
    async with agent.client(StateInjection(STATE), streaming=True) as client:
        async for event in events(client, request(QUESTION), TIMESTAMP):
            seen.append(name_of(event))
            if event.HasField("artifact_update"):
                check_answer(event.artifact_update.artifact, [URI, TIMESTAMP])
    assert seen == ["task", "WORKING", "artifact", "COMPLETED"], seen
    return " → ".join(seen)


async def invalid_state(agent: Agent) -> str:
    """State that violates the schema is refused before a task exists. The error says where it is wrong."""
    wrong = {"user_info": {**STATE["user_info"], "email": "not an address"}}
    async with agent.client() as client:
        error = await refusal(send(client, request(QUESTION, wrong), URI), InvalidParamsError)
    # The answer has a google.rpc.BadRequest with field and description; this SDK keeps it over gRPC only.
    assert "/user_info/email" in error.message, error.message
    return f"refused: {error.message}"


async def finished_task(agent: Agent) -> str:
    """A task that is over can be read and listed, and neither cancelled nor subscribed to."""
    async with agent.client(StateInjection(STATE), streaming=True) as client:
        sent = [event async for event in events(client, request(QUESTION))][0].task
        read = await client.get_task(GetTaskRequest(id=sent.id))
        assert read.status.state == TaskState.TASK_STATE_COMPLETED, read.status
        check_answer(read.artifacts[0])
        listed = await client.list_tasks(ListTasksRequest(context_id=sent.context_id, include_artifacts=True))
        assert [(task.id, task.artifacts) for task in listed.tasks] == [(read.id, read.artifacts)], listed

        await refusal(client.cancel_task(CancelTaskRequest(id=sent.id)), TaskNotCancelableError)
        await refusal(anext(client.subscribe(SubscribeToTaskRequest(id=sent.id))), UnsupportedOperationError)
        await refusal(client.get_task(GetTaskRequest(id=str(uuid4()))), TaskNotFoundError)
    return f"task {read.id} read, {listed.total_size} listed"


async def running_task(agent: Agent) -> str:
    """A task that runs can be followed by a second reader, and cancelled: both streams end with that."""
    async with agent.client(StateInjection(STATE), streaming=True) as client:
        first_reader = events(client, request(SLOW_QUESTION))
        task = (await anext(first_reader)).task
        second_reader = client.subscribe(SubscribeToTaskRequest(id=task.id))
        seen = [name_of(await anext(second_reader))]
        await client.cancel_task(CancelTaskRequest(id=task.id))
        seen += [name_of(event) async for event in second_reader]
        rest = [name_of(event) async for event in first_reader]
    assert (seen[0], seen[-1], rest[-1]) == ("task", "CANCELED", "CANCELED"), (seen, rest)
    return " → ".join(seen)


STEPS = [naive_call, explicit_activation, interceptor, streaming, invalid_state, finished_task, running_task]


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999", discovery, STEPS)))
