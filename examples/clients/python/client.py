"""Sends session state to an A2A agent with the official Python SDK.

    python client.py [URL]        # default: http://127.0.0.1:9999

Six short programs, to be read in this order. Each checks what the agent answered.
"""

import asyncio
import json
import sys
import traceback
from collections.abc import Sequence
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientCallInterceptor, ClientConfig, ClientFactory
from a2a.client.interceptors import AfterArgs, BeforeArgs
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.extensions.common import find_extension_by_uri
from a2a.helpers import get_artifact_text
from a2a.types import AgentCard, Artifact, Message, Part, Role, SendMessageRequest, Task, TaskState
from a2a.utils.errors import ExtensionSupportRequiredError, InvalidParamsError
from google.protobuf.json_format import MessageToDict

# The URI names the extension. The key, which has no scheme, says where in the metadata the state lies.
URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
STATE_FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"
TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"

STATE = {"user_info": {"name": "Ada Lovelace", "role": "AI Specialist", "email": "ada@example.com"}}
QUESTION = "Who am I and what is my email?"


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


def activating(uris: Sequence[str], parameters: dict[str, str] | None = None) -> dict[str, str]:
    """Service parameters that activate extensions beside those already in there: the header A2A-Extensions."""
    return ServiceParametersFactory.create_from(parameters, [with_a2a_extensions(list(uris))])


def request(text: str, state: dict | None = None, context_id: str = "") -> SendMessageRequest:
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], context_id=context_id)
    if state is not None:
        message.metadata.update({STATE_FIELD: state})
    return SendMessageRequest(message=message)


async def send(client: Client, request: SendMessageRequest, *extensions: str) -> Task:
    """Sends one message without streaming and returns the finished task."""
    context = ClientCallContext(service_parameters=activating(extensions))
    [response] = [event async for event in client.send_message(request, context=context)]
    return response.task


def state_of(artifact: Artifact) -> dict:
    return MessageToDict(artifact.metadata)[STATE_FIELD]


def client_of(
    card: AgentCard, http: httpx.AsyncClient, *interceptors: ClientCallInterceptor, streaming: bool = False
) -> Client:
    config = ClientConfig(httpx_client=http, streaming=streaming)
    return ClientFactory(config).create(card, list(interceptors))


def check_answer(artifact: Artifact, extensions: Sequence[str] = (URI,)) -> None:
    """The agent knows the user, says which extensions took part, and returns the state after the turn."""
    text = get_artifact_text(artifact)
    assert STATE["user_info"]["name"] in text and STATE["user_info"]["email"] in text, text
    assert set(artifact.extensions) == set(extensions), artifact.extensions
    assert state_of(artifact) == {**STATE, "last_answer": text}, state_of(artifact)


async def discovery(card: AgentCard, http: httpx.AsyncClient) -> str:
    """The card says whether the agent has the extension, insists on it, and what the state must look like."""
    extension = find_extension_by_uri(card, URI)
    assert extension is not None, "the agent does not have the extension"
    assert extension.required, "the agent does not insist on it"
    schema = MessageToDict(extension.params)["state_schema"]
    assert schema["required"] == ["user_info"], schema
    return json.dumps(schema["properties"]["user_info"]["properties"])


async def naive_call(card: AgentCard, http: httpx.AsyncClient) -> str:
    """State in the metadata activates nothing, and a required extension that is not active is an error."""
    client = client_of(card, http)
    try:
        task = await send(client, request(QUESTION, STATE))
    except ExtensionSupportRequiredError as error:
        assert URI in error.data["extensions"], error.data
        return f"refused: {error.message}"
    raise AssertionError(f"accepted: {task}")


async def explicit_activation(card: AgentCard, http: httpx.AsyncClient) -> str:
    """One call: the URI in the service parameters, the state in the metadata of the message."""
    client = client_of(card, http)
    task = await send(client, request(QUESTION, STATE), URI)
    assert task.status.state == TaskState.TASK_STATE_COMPLETED, task.status
    check_answer(task.artifacts[0])
    return f"{get_artifact_text(task.artifacts[0])} State returned: {', '.join(state_of(task.artifacts[0]))}"


async def interceptor(card: AgentCard, http: httpx.AsyncClient) -> str:
    """Every call: the caller sends text only, and may activate other extensions beside this one."""
    client = client_of(card, http, StateInjection(STATE))
    first = await send(client, request(QUESTION))
    check_answer(first.artifacts[0])

    second = await send(client, request(QUESTION, context_id=first.context_id), TIMESTAMP)
    assert second.context_id == first.context_id, second.context_id
    check_answer(second.artifacts[0], [URI, TIMESTAMP])
    return f"two turns in context {first.context_id}, the second with {len(second.artifacts[0].extensions)} extensions"


async def streaming(card: AgentCard, http: httpx.AsyncClient) -> str:
    """The same as a stream: the task, its states, the artifact as soon as there is one."""
    client = client_of(card, http, StateInjection(STATE), streaming=True)
    seen = []
    async for event in client.send_message(request(QUESTION)):
        kind = event.WhichOneof("payload")
        if kind == "task":
            seen.append("task")
        elif kind == "status_update":
            seen.append(TaskState.Name(event.status_update.status.state).removeprefix("TASK_STATE_"))
        elif kind == "artifact_update":
            seen.append("artifact")
            check_answer(event.artifact_update.artifact)
    assert seen == ["task", "WORKING", "artifact", "COMPLETED"], seen
    return " → ".join(seen)


async def invalid_state(card: AgentCard, http: httpx.AsyncClient) -> str:
    """State that violates the schema is refused before a task exists. The error says where it is wrong."""
    client = client_of(card, http)
    wrong = {"user_info": {**STATE["user_info"], "email": "not an address"}}
    try:
        task = await send(client, request(QUESTION, wrong), URI)
    except InvalidParamsError as error:
        # The answer has a google.rpc.BadRequest with field and description; this SDK keeps only the message.
        assert "/user_info/email" in error.message, error.message
        return f"refused: {error.message}"
    raise AssertionError(f"accepted: {task}")


async def main(url: str) -> int:
    steps = [discovery, naive_call, explicit_activation, interceptor, streaming, invalid_state]
    failed = 0
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        for step in steps:
            try:
                print(f"ok    {step.__name__}: {await step(card, http)}", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL  {step.__name__}", flush=True)
                traceback.print_exc()
    print(f"{len(steps) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999")))
