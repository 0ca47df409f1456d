"""Reads what an agent says to the user interface of agentstack, with agentstack's SDK over A2A 0.3.

    python client.py [URL]        # default: http://127.0.0.1:9999

Short programs, to be read in this order. Each checks what the agent answered.
"""

import asyncio
import re
import sys
import traceback
import warnings
from urllib.parse import parse_qs
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import AgentCard, Message, Part, Role, Task, TaskState, TaskStatusUpdateEvent, TextPart, TransportProtocol

warnings.filterwarnings("ignore", category=DeprecationWarning)

from agentstack_sdk.a2a.extensions import (  # noqa: E402
    AgentDetailExtensionSpec,
    CitationExtensionClient,
    CitationExtensionSpec,
    ErrorExtensionClient,
    ErrorExtensionSpec,
    FormRequestExtensionClient,
    FormRequestExtensionSpec,
    FormServiceExtensionClient,
    FormServiceExtensionSpec,
    OAuthExtensionClient,
    OAuthExtensionSpec,
    SecretFulfillment,
    SecretsExtensionSpec,
    SecretsServiceExtensionMetadata,
    SecretsServiceExtensionParams,
    TrajectoryExtensionClient,
    TrajectoryExtensionSpec,
)
from agentstack_sdk.a2a.extensions.common.form import (  # noqa: E402
    FormResponse,
    SettingsFormResponse,
    SingleSelectFieldValue,
    TextFieldValue,
)
from agentstack_sdk.util.pydantic import REVEAL_SECRETS  # noqa: E402

FORM = FormServiceExtensionSpec.URI
ADA = FormResponse(values={"name": TextFieldValue(value="Ada")})
KIND = SettingsFormResponse(values={"tone": SingleSelectFieldValue(value="kind")})
CALLBACK = "https://client.example.com/callback"


class Agent:
    """The agent, called by a client of A2A 0.3."""

    def __init__(self, http: httpx.AsyncClient, card: AgentCard) -> None:
        self.http, self.card = http, card

    async def events(self, text: str, *uris: str, metadata: dict | None = None, task: Task | None = None):
        """The task, and the messages of its statuses."""
        transports = [TransportProtocol.jsonrpc]
        config = ClientConfig(httpx_client=self.http, supported_transports=transports, extensions=list(uris))
        message = Message(
            message_id=str(uuid4()),
            role=Role.user,
            parts=[Part(root=TextPart(text=text))],
            metadata=metadata,
            task_id=task and task.id,
            context_id=task and task.context_id,
        )
        told, last = [], None
        async for last, update in ClientFactory(config).create(self.card).send_message(message):
            if isinstance(update, TaskStatusUpdateEvent) and update.status.message is not None:
                told.append(update.status.message)
        return last, told


def filled(**forms) -> dict:
    """Metadata with the values of forms, as agentstack's SDK writes it."""
    client = FormServiceExtensionClient(FormServiceExtensionSpec.demand(None))
    return client.fulfillment_metadata(form_fulfillments=forms)


async def discovery(agent: Agent) -> str:
    """The card says what the agent can do, and which form it wants."""
    detail = AgentDetailExtensionSpec.from_agent_card(agent.card).params
    assert detail.user_greeting == "Ask about the engine.", detail
    demands = FormServiceExtensionSpec.from_agent_card(agent.card).params.form_demands
    assert demands["initial_form"].fields[0].label == "Name", demands
    assert demands["settings_form"].fields[0].options[0].id == "kind", demands
    assert ErrorExtensionSpec.from_agent_card(agent.card).params.include_stacktrace is False
    return f"{detail.tools[0].name}, {demands['initial_form'].title}"


async def form(agent: Agent) -> str:
    """The values of the form are in the agent's instruction, and a form that does not fit is refused."""
    task, _ = await agent.events("Who am I?", FORM, metadata=filled(initial_form=ADA, settings_form=KIND))
    text = task.artifacts[0].parts[0].root.text
    assert text == "You are Ada.", text
    unknown = FormResponse(values={"age": TextFieldValue(value="36")})
    try:
        await agent.events("Who am I?", FORM, metadata=filled(initial_form=unknown))
    except Exception as error:
        assert "a field that the form does not have" in str(error), error
        return text
    raise AssertionError("the form is accepted")


async def form_request(agent: Agent) -> str:
    """A new task waits for the form. The answer to it has the values, and the agent runs."""
    uri = FormRequestExtensionSpec.URI
    task, told = await agent.events("Who am I?", uri)
    assert task.status.state == TaskState.input_required, task
    asked = FormRequestExtensionClient(FormRequestExtensionSpec()).parse_server_metadata(told[-1])
    assert asked.fields[0].id == "name", asked
    answer = {uri: ADA.model_dump(mode="json")}
    task, _ = await agent.events("Who am I?", uri, metadata=answer, task=task)
    assert task.status.state == TaskState.completed, task
    assert task.artifacts[0].parts[0].root.text == "You are Ada.", task
    return asked.title


async def citation(agent: Agent) -> str:
    """A link of the answer is a citation with its place in the text."""
    task, _ = await agent.events("Sources?", FORM, CitationExtensionSpec.URI, metadata=filled(initial_form=ADA))
    [artifact] = task.artifacts
    text = "".join(part.root.text for part in artifact.parts)
    # An artifact has metadata as a message has, which is all that the SDK reads.
    [found] = CitationExtensionClient(CitationExtensionSpec()).parse_server_metadata(artifact).citations
    assert text[found.start_index : found.end_index] == f"[{found.title}]({found.url})", (text, found)
    return found.url


async def trajectory(agent: Agent) -> str:
    """Each step is a message while the agent works."""
    client = TrajectoryExtensionClient(TrajectoryExtensionSpec())
    _, told = await agent.events("Sources?", FORM, TrajectoryExtensionSpec.URI, metadata=filled(initial_form=ADA))
    steps = [step for message in told if (step := client.parse_server_metadata(message))]
    assert len(steps) == 1 and steps[0].title.startswith("Calls the model"), steps
    return steps[0].title


async def error(agent: Agent) -> str:
    """A task that fails says so with an error. Without the form, the agent's instruction lacks its values."""
    task, _ = await agent.events("Sources?", ErrorExtensionSpec.URI)
    assert task.status.state == TaskState.failed, task
    client = ErrorExtensionClient(ErrorExtensionSpec.from_agent_card(agent.card))
    told = client.parse_server_metadata(task.status.message).error
    assert told.title == "Error" and told.message, told
    return told.message


async def secrets(agent: Agent) -> str:
    """A new task waits for a secret. The agent gets it with the answer, and no task has it."""
    uri = SecretsExtensionSpec.URI
    declared = SecretsExtensionSpec.from_agent_card(agent.card).params.secret_demands
    task, told = await agent.events("Check the key", FORM, uri, metadata=filled(initial_form=ADA))
    assert task.status.state == TaskState.auth_required, task
    asked = SecretsServiceExtensionParams.model_validate(told[-1].metadata[uri])
    assert asked.secret_demands == declared, (asked, declared)
    fulfilled = SecretsServiceExtensionMetadata(secret_fulfillments={"default": SecretFulfillment(secret="plum-4711")})
    answer = {uri: fulfilled.model_dump(mode="json", context={REVEAL_SECRETS: True})}
    task, _ = await agent.events("Check the key", FORM, uri, metadata={**filled(initial_form=ADA), **answer}, task=task)
    assert task.status.state == TaskState.completed, task
    assert task.artifacts[0].parts[0].root.text == "The key begins with p.", task
    assert "plum-4711" not in task.model_dump_json(), task
    return asked.secret_demands["default"].name


async def token_endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Gives a token for the code of `oauth`, as the authorization server in the agent's config."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])
    form = parse_qs((await reader.readexactly(length)).decode())
    status, body = b"400 Bad Request", b'{"error": "invalid_grant"}'
    if form["code"] == ["c0de"] and form["redirect_uri"] == [CALLBACK] and form["code_verifier"]:
        status, body = b"200 OK", b'{"access_token": "t-0k3n", "token_type": "Bearer"}'
    writer.write(b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % (status, len(body)))
    writer.write(b"connection: close\r\n\r\n" + body)
    await writer.drain()
    writer.close()


async def oauth(agent: Agent) -> str:
    """A new task waits until a person has granted access. The agent gets the token, and no task has the code."""
    uri = OAuthExtensionSpec.URI
    client = OAuthExtensionClient(OAuthExtensionSpec.from_agent_card(agent.card))
    callback = client.fulfillment_metadata(oauth_fulfillments={"default": {"redirect_uri": CALLBACK}})
    task, told = await agent.events("Check the token", FORM, uri, metadata={**filled(initial_form=ADA), **callback})
    assert task.status.state == TaskState.auth_required, task
    asked = parse_qs(client.parse_auth_request(message=told[-1]).authorization_endpoint_url.query)
    # The person logs in, and the authorization server sends them back with a code.
    redirected = f"{CALLBACK}?code=c0de&state={asked['state'][0]}"
    answer = client.create_auth_response(task_id=task.id, redirect_uri=redirected).metadata
    async with await asyncio.start_server(token_endpoint, "127.0.0.1", 9997):
        metadata = {**filled(initial_form=ADA), **answer}
        task, _ = await agent.events("Check the token", FORM, uri, metadata=metadata, task=task)
    assert task.status.state == TaskState.completed, task
    assert task.artifacts[0].parts[0].root.text == "The token begins with t.", task
    assert "c0de" not in task.model_dump_json() and "t-0k3n" not in task.model_dump_json(), task
    return f"{asked['client_id'][0]}, {asked['code_challenge_method'][0]}"


STEPS = [discovery, form, form_request, citation, trajectory, error, secrets, oauth]


async def main(url: str) -> int:
    passed = 0
    async with httpx.AsyncClient(timeout=30) as http:
        agent = Agent(http, await A2ACardResolver(http, url).get_agent_card())
        for step in STEPS:
            try:
                print(f"ok      {step.__name__}: {await step(agent)}")
                passed += 1
            except Exception:
                print(f"FAILED  {step.__name__}\n{traceback.format_exc()}")
    print(f"{passed} of {len(STEPS)} passed")
    return int(passed != len(STEPS))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999")))
