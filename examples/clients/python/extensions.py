"""Uses extensions that other people published, from the official Python SDK: Timestamp, Traceability, Secure Passport.

    python extensions.py [URL]        # default: http://127.0.0.1:9999

Short programs, to be read in this order. Each checks what the agent answered, over every binding that A2A has.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import sys
from uuid import uuid4

from a2a.client import ClientCallContext, ClientCallInterceptor
from a2a.client.interceptors import AfterArgs, BeforeArgs
from a2a.helpers import get_artifact_text
from a2a.types import AgentCard, Artifact, Message, Part, Role, SendMessageRequest, Task, TaskState
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from calls import Agent, activating, events, refusal, run, send

TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"
TIMESTAMP_FIELD = "github.com/a2aproject/a2a-samples/extensions/timestamp/v1/timestamp"
TRACEABILITY = "https://github.com/a2aproject/a2a-samples/extensions/traceability/v1"
TRACE_FIELD = "github.com/a2aproject/a2a-samples/extensions/traceability/v1/traceability"
# Both the URI and the key of the metadata.
PASSPORT = "https://github.com/a2aproject/a2a-samples/tree/main/samples/python/extensions/secure-passport"
UNKNOWN = "https://example.com/extensions/unknown/v1"

# A client that the agent knows, with the demonstration key in examples/catalogue/orchestrator.key.
CLIENT_ID = "a2a://orchestrator.example.com"
KEY = b"a-demonstration-is-no-secret"
STATE = {"loyalty_tier": "Gold", "user_preferred_currency": "EUR"}
QUESTION = "Who am I?"


def passport(state: dict, key: bytes = KEY) -> dict:
    """A passport signed with HMAC-SHA256 over its canonical form, RFC 8785."""
    claims = {"clientId": CLIENT_ID, "state": state}
    # Right for texts, lists and objects with ASCII keys. State with numbers wants a library for RFC 8785.
    canonical = json.dumps(claims, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hmac.new(key, canonical.encode(), hashlib.sha256).digest()
    return {**claims, "signature": base64.urlsafe_b64encode(digest).decode().rstrip("=")}


class SecurePassport(ClientCallInterceptor):
    """Shows a signed passport in every call of a client that sends a message."""

    def __init__(self, state: dict) -> None:
        self.passport = passport(state)

    async def before(self, args: BeforeArgs) -> None:
        if not isinstance(args.input, SendMessageRequest):
            return
        # Add to what the caller asked for: a new context would drop the caller's timeout and other extensions.
        context = args.context or ClientCallContext()
        parameters = activating([PASSPORT], context.service_parameters)
        args.context = context.model_copy(update={"service_parameters": parameters})
        args.input.message.metadata.update({PASSPORT: self.passport})

    async def after(self, args: AfterArgs) -> None:
        """Leaves the answer as it is."""


def request(shown: dict | None = None) -> SendMessageRequest:
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=QUESTION)])
    if shown is not None:
        message.metadata.update({PASSPORT: shown})
    return SendMessageRequest(message=message)


def metadata_of(artifact: Artifact) -> dict:
    return MessageToDict(artifact.metadata)


def the_artifact(task: Task) -> Artifact:
    """The artifact of a task that went well and has one."""
    assert task.status.state == TaskState.TASK_STATE_COMPLETED, task.status
    [artifact] = task.artifacts
    return artifact


def moment(text: str) -> int:
    """Nanoseconds since 1970 of a time in RFC 3339. Without a zone it is none."""
    time = Timestamp()
    time.FromJsonString(text)
    return time.ToNanoseconds()


def check_trace(trace: dict, task_id: str) -> None:
    """A ResponseTrace: what the agent did, step by step."""
    assert set(trace) == {"trace_id", "steps"} and trace["trace_id"] == task_id, trace
    assert trace["steps"], "the agent asked a model, so there is a step"
    for step in trace["steps"]:
        assert step["step_id"] and step["trace_id"] == task_id, step
        assert step["call_type"] == "TOOL", step
        assert step["step_action"]["tool_invocation"]["tool_name"], step
        assert moment(step["start_time"]) <= moment(step["end_time"]), step
        assert step["latency"] >= 0, step


async def discovery(card: AgentCard) -> str:
    """The card says which extensions there are, insists on none, and which state a passport may have."""
    declared = {extension.uri: extension for extension in card.capabilities.extensions}
    for uri in (TIMESTAMP, TRACEABILITY, PASSPORT):
        assert uri in declared, f"the agent does not have {uri}"
        assert not declared[uri].required, f"the agent insists on {uri}"
    keys = MessageToDict(declared[PASSPORT].params)["supportedStateKeys"]
    assert set(STATE) <= set(keys), keys
    return f"a passport may have {', '.join(keys)}"


async def not_activated(agent: Agent) -> str:
    """What is not activated adds nothing and reads nothing, whatever stands in the metadata."""
    async with agent.client() as client:
        artifact = the_artifact(await send(client, request(passport(STATE))))
    assert agent.echo.extensions == set(), agent.echo.extensions
    assert not artifact.extensions and metadata_of(artifact) == {}, artifact
    assert CLIENT_ID not in get_artifact_text(artifact), artifact
    return "no header, no metadata"


async def timestamp(agent: Agent) -> str:
    """Whatever the agent makes has the time on it, in the finished task and in a stream."""
    async with agent.client() as client:
        artifact = the_artifact(await send(client, request(), TIMESTAMP))
    stamp = metadata_of(artifact)[TIMESTAMP_FIELD]
    moment(stamp)
    assert list(artifact.extensions) == [TIMESTAMP], artifact.extensions
    assert agent.echo.extensions == {TIMESTAMP}, agent.echo.extensions

    async with agent.client(streaming=True) as client:
        seen = [event async for event in events(client, request(), TIMESTAMP)]
    assert agent.echo.extensions == {TIMESTAMP}, agent.echo.extensions
    [streamed] = [event.artifact_update.artifact for event in seen if event.HasField("artifact_update")]
    moment(metadata_of(streamed)[TIMESTAMP_FIELD])
    return stamp


async def traceability(agent: Agent) -> str:
    """The answer says how it came about."""
    async with agent.client() as client:
        task = await send(client, request(), TRACEABILITY)
    assert agent.echo.extensions == {TRACEABILITY}, agent.echo.extensions
    artifact = the_artifact(task)
    assert list(artifact.extensions) == [TRACEABILITY], artifact.extensions
    trace = metadata_of(artifact)[TRACE_FIELD]
    check_trace(trace, task.id)
    return f"it called {', '.join(step['step_action']['tool_invocation']['tool_name'] for step in trace['steps'])}"


async def signed_passport(agent: Agent) -> str:
    """The agent believes what the client signed, and answers from it."""
    async with agent.client(SecurePassport(STATE)) as client:
        artifact = the_artifact(await send(client, request()))
    assert agent.echo.extensions == {PASSPORT}, agent.echo.extensions
    text = get_artifact_text(artifact)
    assert CLIENT_ID in text, text
    return text


async def forged_passport(agent: Agent) -> str:
    """A passport that was changed after it was signed, or signed with another key, is refused."""
    changed = {**passport(STATE), "state": {**STATE, "loyalty_tier": "Platinum"}}
    for forged in (changed, passport(STATE, b"a-key-that-is-not-the-client's")):
        for streaming in (False, True):
            async with agent.client(streaming=streaming) as client:
                call = anext(events(client, request(forged), PASSPORT))
                error = await refusal(call, InvalidParamsError)
            assert "/signature" in error.message, error.message
    return f"refused: {error.message}"


async def together(agent: Agent) -> str:
    """One call may activate many. The header names those that the agent has."""
    async with agent.client(SecurePassport(STATE)) as client:
        task = await send(client, request(), TRACEABILITY, UNKNOWN, TIMESTAMP)
    assert agent.echo.extensions == {TIMESTAMP, TRACEABILITY, PASSPORT}, agent.echo.extensions
    artifact = the_artifact(task)
    assert CLIENT_ID in get_artifact_text(artifact), artifact
    metadata = metadata_of(artifact)
    moment(metadata[TIMESTAMP_FIELD])
    check_trace(metadata[TRACE_FIELD], task.id)
    return f"{len(agent.echo.extensions)} of 4 active"


STEPS = [not_activated, timestamp, traceability, signed_passport, forged_passport, together]


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999", discovery, STEPS)))
