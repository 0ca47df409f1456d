"""Calls an A2A agent that wants session state from an agent of Google's Agent Development Kit.

    python client.py [URL]        # default: http://127.0.0.1:9999

Short programs, to be read in this order. Each checks what the user of the calling agent gets, over JSON-RPC, which is
what ADK uses by itself, and over HTTP+JSON. No model is asked: the agent that delegates has one of its own, which
always does so.
"""

import asyncio
import logging
import sys
import traceback
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

import httpx
from a2a.client import ClientCallContext, ClientConfig, ClientFactory
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types import Message
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH, TransportProtocol
from google.adk.a2a.agent.config import A2aRemoteAgentConfig, ParametersConfig, RequestInterceptor
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

# The URI names the extension. The key, which has no scheme, says where in the metadata the state lies.
URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
STATE_FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"

ADA = {"name": "Ada Lovelace", "role": "AI Specialist", "email": "ada@example.com"}
QUESTION = "Who am I and what is my email?"
USER = "user"

# Makes a remote agent out of what is special about it.
Remote = Callable[..., RemoteA2aAgent]


async def inject_state(
    context: InvocationContext, message: Message, parameters: ParametersConfig
) -> tuple[Message, ParametersConfig]:
    """Activates the extension for a call and gives it what the caller's session knows of the user."""
    # Add to what is there: other interceptors may have asked for extensions or set header fields.
    call = parameters.client_call_context or ClientCallContext()
    wanted = ServiceParametersFactory.create_from(call.service_parameters, [with_a2a_extensions([URI])])
    parameters.client_call_context = call.model_copy(update={"service_parameters": wanted})
    message.metadata.update({STATE_FIELD: {"user_info": context.session.state["user_info"]}})
    return message, parameters


def injecting(**settings: object) -> A2aRemoteAgentConfig:
    return A2aRemoteAgentConfig(request_interceptors=[RequestInterceptor(before_request=inject_state)], **settings)


class Delegating(BaseLlm):
    """A model for a dispatcher: it knows one thing to do, which is to hand over to the specialist."""

    model: str = "delegating"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        call = types.Part.from_function_call(name="transfer_to_agent", args={"agent_name": "specialist"})
        yield LlmResponse(content=types.Content(role="model", parts=[call]))


class Conversation:
    """A user's conversation with an agent of ADK, whose session has the user's data."""

    def __init__(self, agent: BaseAgent) -> None:
        self.runner = InMemoryRunner(agent)
        self.session_id = ""

    async def say(self, text: str, user_info: dict = ADA) -> Event:
        """One turn with the session's state as given: the answer of the remote agent, or its error."""
        await self.begin()
        events = self.runner.run_async(
            user_id=USER,
            session_id=self.session_id,
            new_message=types.UserContent(text),
            state_delta={"user_info": user_info},
        )
        said = [event async for event in events if event.author == "specialist"]
        [answer] = [event for event in said if event.content or event.error_message]
        return answer

    async def begin(self) -> None:
        if not self.session_id:
            session = await self.runner.session_service.create_session(app_name=self.runner.app_name, user_id=USER)
            self.session_id = session.id

    async def state(self) -> dict:
        """What the session of the calling agent knows now."""
        session = await self.runner.session_service.get_session(
            app_name=self.runner.app_name, user_id=USER, session_id=self.session_id
        )
        return session.state


def text_of(event: Event) -> str:
    return "".join(part.text or "" for part in event.content.parts)


def context_of(event: Event) -> str:
    return event.custom_metadata["a2a:context_id"]


def check_answer(event: Event, user_info: dict = ADA) -> str:
    """The remote agent answered, and knows the user."""
    assert event.error_message is None, event.error_message
    text = text_of(event)
    assert user_info["name"] in text and user_info["email"] in text, text
    return text


def check_refusal(event: Event) -> str:
    """The remote agent refused, and the error says which extension it wants."""
    assert event.content is None, event.content
    assert event.error_message.startswith("A2A request failed:") and URI in event.error_message, event.error_message
    return f"refused: {event.error_message}"


async def default_call(remote: Remote) -> str:
    """ADK sends no state and activates nothing. The remote agent requires both, and says so."""
    return check_refusal(await Conversation(remote()).say(QUESTION))


async def meta_provider(remote: Remote) -> str:
    """ADK's provider of metadata does not do either: state activates nothing, wherever it is."""
    agent = remote(a2a_request_meta_provider=lambda context, message: {STATE_FIELD: {"user_info": ADA}})
    return check_refusal(await Conversation(agent).say(QUESTION))


async def interceptor(remote: Remote) -> str:
    """Two turns in one context. Each answers from what the caller's session knows at that time."""
    conversation = Conversation(remote(config=injecting()))
    first = await conversation.say(QUESTION)
    check_answer(first)

    moved = {**ADA, "email": "ada@new.example.com"}
    second = await conversation.say(QUESTION, moved)
    assert context_of(second) == context_of(first), (context_of(first), context_of(second))
    return f"two turns in context {context_of(first)}: {check_answer(second, moved)}"


async def own_session(remote: Remote) -> str:
    """The caller's session names the context. What the remote agent made of the state stays on its side."""
    conversation = Conversation(remote(config=injecting(forward_session_id_as_context_id=True)))
    for _ in range(2):
        answer = await conversation.say(QUESTION)
        check_answer(answer)
        assert context_of(answer) == conversation.session_id, context_of(answer)
    assert await conversation.state() == {"user_info": ADA}, await conversation.state()
    return f"two turns in the context of session {conversation.session_id}"


async def delegation(remote: Remote) -> str:
    """An agent with a model hands over: ADK sends the user's words and a transcript of that in several parts."""
    specialist = remote(config=injecting())
    conversation = Conversation(LlmAgent(name="dispatcher", model=Delegating(), sub_agents=[specialist]))
    first, second = await conversation.say(QUESTION), await conversation.say(QUESTION)
    check_answer(first)
    check_answer(second)
    assert context_of(second) == context_of(first), (context_of(first), context_of(second))
    parts = first.custom_metadata["a2a:request"]["parts"]
    assert len(parts) > 1, parts
    return f"two turns in context {context_of(first)}, the first with {len(parts)} parts"


STEPS = [default_call, meta_provider, interceptor, own_session, delegation]


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
    outcomes = []
    async with httpx.AsyncClient(timeout=30) as http:
        rest = ClientConfig(httpx_client=http, supported_protocol_bindings=[TransportProtocol.HTTP_JSON])
        as_it_comes = partial(RemoteA2aAgent, "specialist", url.rstrip("/") + AGENT_CARD_WELL_KNOWN_PATH)
        remotes = {
            TransportProtocol.JSONRPC: as_it_comes,
            TransportProtocol.HTTP_JSON: partial(as_it_comes, a2a_client_factory=ClientFactory(rest)),
        }
        for binding, remote in remotes.items():
            for step in STEPS:
                outcomes.append(await report(f"{step.__name__} over {binding.value}", step(remote)))
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    # ADK logs each refused call and warns that its A2A part is experimental.
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"\[EXPERIMENTAL\]")
    sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999")))
