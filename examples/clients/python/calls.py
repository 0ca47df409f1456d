"""What the programs in this folder share: how they call an agent, and how they report what they saw."""

import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientCallInterceptor, ClientConfig, ClientFactory
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.types import AgentCard, AgentInterface, SendMessageRequest, StreamResponse, Task, TaskState
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import A2AError

BINDINGS = [TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON, TransportProtocol.GRPC]


class Echo:
    """The extensions that the agent named in the header of its last answer: those that were active."""

    def __init__(self) -> None:
        self.extensions: set[str] = set()

    def take(self, values: Sequence[str]) -> None:
        self.extensions = get_requested_extensions(list(values))

    async def take_http(self, response: httpx.Response) -> None:
        self.take(response.headers.get_list(HTTP_EXTENSION_HEADER))

    def channel(self, address: str) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, interceptors=[_UnaryEcho(self), _StreamEcho(self)])


class _GrpcEcho:
    def __init__(self, echo: Echo) -> None:
        self.echo = echo

    async def take(self, proceed: Callable, details: grpc.aio.ClientCallDetails, request: object) -> grpc.aio.Call:
        call = await proceed(details, request)
        metadata = await call.initial_metadata()
        self.echo.take(metadata.get_all(HTTP_EXTENSION_HEADER.lower()))
        return call


class _UnaryEcho(_GrpcEcho, grpc.aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary = _GrpcEcho.take


class _StreamEcho(_GrpcEcho, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream = _GrpcEcho.take


@dataclass
class Agent:
    """An agent to be called over one binding."""

    card: AgentCard
    config: ClientConfig
    echo: Echo

    def client(self, *interceptors: ClientCallInterceptor, streaming: bool = False) -> Client:
        return ClientFactory(replace(self.config, streaming=streaming)).create(self.card, list(interceptors))


def with_grpc(card: AgentCard, url: str) -> AgentCard:
    """The card with gRPC on it. The specialist serves it at its port without naming it: ADK refuses such cards."""
    if all(interface.protocol_binding != TransportProtocol.GRPC for interface in card.supported_interfaces):
        address = AgentInterface(
            url=httpx.URL(url).netloc.decode(), protocol_binding=TransportProtocol.GRPC, protocol_version="1.0"
        )
        card.supported_interfaces.append(address)
    return card


def activating(uris: Sequence[str], parameters: dict[str, str] | None = None) -> dict[str, str]:
    """Service parameters that activate extensions beside those already in there: the header A2A-Extensions."""
    return ServiceParametersFactory.create_from(parameters, [with_a2a_extensions(list(uris))])


def events(client: Client, request: SendMessageRequest, *extensions: str) -> AsyncIterator[StreamResponse]:
    """Sends one message. A client that streams gets events, one that does not gets the finished task."""
    context = ClientCallContext(service_parameters=activating(extensions))
    return client.send_message(request, context=context)


async def send(client: Client, request: SendMessageRequest, *extensions: str) -> Task:
    """Sends one message without streaming and returns the finished task."""
    [response] = [event async for event in events(client, request, *extensions)]
    return response.task


async def refusal(call: Awaitable, kind: type[A2AError]) -> A2AError:
    """The error that a call must end with."""
    try:
        answer = await call
    except kind as error:
        return error
    raise AssertionError(f"accepted: {answer}")


def name_of(event: StreamResponse) -> str:
    """What an event of a stream is: a task, an artifact, or the state that the task is in now."""
    if event.HasField("status_update"):
        return TaskState.Name(event.status_update.status.state).removeprefix("TASK_STATE_")
    return event.WhichOneof("payload").removesuffix("_update")


async def run(
    url: str,
    discovery: Callable[[AgentCard], Awaitable[str]],
    steps: Sequence[Callable[[Agent], Awaitable[str]]],
) -> int:
    """Runs the discovery once and the steps over every binding. The exit code: 0 when all passed."""
    echo = Echo()
    async with httpx.AsyncClient(timeout=30, event_hooks={"response": [echo.take_http]}) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        outcomes = [await report("discovery", discovery(card))]
        card = with_grpc(card, url)
        for binding in BINDINGS:
            config = ClientConfig(
                httpx_client=http, grpc_channel_factory=echo.channel, supported_protocol_bindings=[binding]
            )
            agent = Agent(card, config, echo)
            for step in steps:
                outcomes.append(await report(f"{step.__name__} over {binding.value}", step(agent)))
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


async def report(name: str, step: Awaitable[str]) -> bool:
    """Runs one step and says what it saw. False when it failed."""
    try:
        print(f"ok    {name}: {await step}", flush=True)
    except Exception:
        print(f"FAIL  {name}", flush=True)
        traceback.print_exc()
        return False
    return True
