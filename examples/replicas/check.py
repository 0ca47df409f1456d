"""What a client sees of three replicas behind a load balancer, with the official Python SDK.

    python check.py [PROGRAM]        # default: the newest annex in target/

Starts a cluster of its own on free ports (see cluster.py), and kills replicas of it. Short programs, to be read in this
order. Each checks what the client was told.
"""

import asyncio
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

from cluster import Cluster, Failure, Replica, annex, free_ports

URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
STATE_FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"
GATEWAY = "https://github.com/a2aproject/a2a-samples/tree/main/extensions/agp"
LEASE = 5.0
ENDS = {TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED}


@dataclass
class Agent:
    """The agent behind the load balancer, and who of the replicas answered last."""

    cluster: Cluster
    http: httpx.AsyncClient
    served_by: list[str] = field(default_factory=list)

    async def note(self, response: httpx.Response) -> None:
        self.served_by.append(response.headers["x-replica"])

    async def client(self, streaming: bool = False) -> Client:
        card = await A2ACardResolver(self.http, self.cluster.balancer.url).get_agent_card()
        config = ClientConfig(httpx_client=self.http, streaming=streaming, supported_protocol_bindings=["JSONRPC"])
        return ClientFactory(config).create(card)

    def replica(self) -> Replica:
        """The one that gave the last answer."""
        [found] = [replica for replica in self.cluster.replicas if replica.name == self.served_by[-1]]
        return found

    async def call(self, method: str, params: dict) -> dict:
        """A method of an extension, which the SDK has no call for."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"A2A-Version": "1.0", "A2A-Extensions": GATEWAY}
        answer = await self.http.post(f"{self.cluster.balancer.url}/a2a/jsonrpc", json=body, headers=headers)
        assert "result" in answer.json(), answer.text
        return answer.json()["result"]

    async def start_again(self, replica: Replica) -> None:
        replica.start()
        await asyncio.to_thread(replica.wait_until_ready)


class Seen:
    """What a client of one task knows: what it was told in full, and what was added to that."""

    def __init__(self) -> None:
        self.id = ""
        self.state = TaskState.TASK_STATE_UNSPECIFIED
        self.text = ""

    def take(self, event: StreamResponse) -> None:
        if event.HasField("task"):
            self.id = event.task.id
            self.state = event.task.status.state
            text = text_of(event.task)
            # Nothing that was told is taken back.
            assert text.startswith(self.text), (self.text, text)
            self.text = text
        elif event.HasField("status_update"):
            self.state = event.status_update.status.state
        elif event.HasField("artifact_update"):
            update = event.artifact_update
            added = "".join(part.text for part in update.artifact.parts)
            self.text = self.text + added if update.append else added

    def is_over(self) -> bool:
        return self.state in ENDS


def text_of(task: Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def request(text: str, context_id: str = "", state: dict | None = None, wait: bool = True) -> SendMessageRequest:
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], context_id=context_id)
    if state is not None:
        message.metadata.update({STATE_FIELD: state})
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=not wait))


async def send(client: Client, message: SendMessageRequest, *extensions: str) -> Task:
    parameters = ServiceParametersFactory.create_from(None, [with_a2a_extensions(list(extensions))])
    context = ClientCallContext(service_parameters=parameters)
    [event] = [event async for event in client.send_message(message, context=context)]
    return event.task


def numbers(most: int) -> str:
    return "".join(f"{number:02} " for number in range(1, most + 1))


async def follow(seen: Seen, events: AsyncIterator[StreamResponse], until: Callable[[], bool]) -> bool:
    """Reads a stream until that is so, or the stream is lost. True if it was lost."""
    try:
        async for event in events:
            seen.take(event)
            if until():
                return False
    except A2AClientError:
        return True
    return not seen.is_over()


async def follow_to_the_end(client: Client, seen: Seen) -> int:
    """Subscribes until the task is over, and again when the stream is lost. How often it subscribed."""
    for times in range(1, 100):
        lost = await follow(seen, client.subscribe(SubscribeToTaskRequest(id=seen.id)), seen.is_over)
        if not lost:
            return times
        await asyncio.sleep(0.1)
    raise AssertionError("the stream is lost again and again")


async def card(agent: Agent) -> str:
    """Each replica has the same card, which names the load balancer."""
    texts = {(await agent.http.get(f"{agent.cluster.balancer.url}/.well-known/agent-card.json")).text for _ in range(6)}
    assert len(texts) == 1, texts
    assert f"{agent.cluster.balancer.url}/a2a/jsonrpc" in texts.pop()
    return f"from {', '.join(sorted(set(agent.served_by)))}"


async def state(agent: Agent) -> str:
    """The state of a conversation that one replica was told is known to all, and its turns are in order on all."""
    client = await agent.client()
    first = await send(client, request("Who am I?", state={"user_info": {"name": "Ada"}}), URI)
    agent.served_by.clear()
    answers = [await send(client, request("Who am I?", first.context_id), URI) for _ in range(6)]
    assert {text_of(task) for task in [first, *answers]} == {"You are Ada."}, answers
    assert set(agent.served_by) == {"one", "two", "three"}, agent.served_by
    return f"{text_of(first)} Also said by {', '.join(agent.served_by)}"


async def keys(agent: Agent) -> str:
    """Keys of extensions are the same on all: a route that is announced to one replica is found by each."""
    route = {"capability": "count", "version": "1.0", "cost": 0.5, "policy": {}, "path": "squad/counters"}
    await agent.call("agp/announce", route)
    told = agent.served_by[-1]
    agent.served_by.clear()
    routes = [await agent.call("agp/route", {"target_capability": "count", "payload": {}}) for _ in range(6)]
    assert {route["path"] for route in routes} == {"squad/counters"}, routes
    assert set(agent.served_by) == {"one", "two", "three"}, agent.served_by
    return f"announced to {told}, found by {', '.join(agent.served_by)}"


async def once(agent: Agent) -> str:
    """A message that is sent again goes to the same task, whichever replica gets it."""
    client = await agent.client()
    message = request("Count to twenty", str(uuid4()))
    agent.served_by.clear()
    tasks = await asyncio.gather(*(send(client, message) for _ in range(6)))
    assert {(task.id, text_of(task)) for task in tasks} == {(tasks[0].id, numbers(20))}, tasks
    assert set(agent.served_by) == {"one", "two", "three"}, agent.served_by
    return f"one task for 6 messages to {', '.join(sorted(set(agent.served_by)))}"


async def subscribed(agent: Agent) -> str:
    """The replica that serves a stream is killed: the client subscribes again, and has missed nothing."""
    task = await send(await agent.client(), request("Count to twenty", wait=False))
    runs = agent.replica()
    client = await agent.client(streaming=True)
    seen = Seen()
    seen.id = task.id
    while True:
        events = client.subscribe(SubscribeToTaskRequest(id=task.id))
        await follow(seen, events, lambda: bool(seen.text))
        serves = agent.replica()
        if serves is not runs:
            break
        await events.aclose()
    await follow(seen, events, lambda: len(seen.text) >= 12)
    before = seen.text
    serves.kill()
    assert await follow(seen, events, seen.is_over), "the stream went on"
    times = await follow_to_the_end(client, seen)
    assert (seen.state, seen.text) == (TaskState.TASK_STATE_COMPLETED, numbers(20)), (seen.state, seen.text)
    again = agent.replica().name
    await agent.start_again(serves)
    return f"{before}| {serves.name} killed, {runs.name} runs it, {again} serves it now ({times}) | {seen.text[len(before) :]}"


async def killed(agent: Agent) -> str:
    """The replica that runs the turn is killed: the task ends within the lease and a second, and is not left running."""
    client = await agent.client(streaming=True)
    seen = Seen()
    stream = client.send_message(request("Count to sixty"))
    await follow(seen, stream, lambda: len(seen.text) >= 6)
    runs = agent.replica()
    runs.kill()
    begin = time.monotonic()
    assert await follow(seen, stream, seen.is_over), "the stream went on"
    told = seen.text
    await follow_to_the_end(client, seen)
    took = time.monotonic() - begin
    assert took < LEASE + 1, f"{took:.1f} s"
    stored = await client.get_task(GetTaskRequest(id=seen.id))
    assert stored.status.state == seen.state and text_of(stored) == seen.text, stored
    assert numbers(60).startswith(seen.text) and seen.text.startswith(told), seen.text
    await agent.start_again(runs)
    return f"{TaskState.Name(seen.state)} {took:.1f} s after {runs.name} was killed, with {seen.text}"


async def drained(agent: Agent) -> str:
    """A replica that is told to stop ends its turns first. Meanwhile the others take what comes."""
    client = await agent.client(streaming=True)
    seen = Seen()
    stream = client.send_message(request("Count to twenty"))
    await follow(seen, stream, lambda: bool(seen.text))
    stops = agent.replica()
    # First out of the load balancer, so that no request is refused.
    agent.cluster.balancer.tell(f"set server annex/{stops.name} state drain")
    stops.signal(signal.SIGTERM)
    agent.served_by.clear()
    plain = await agent.client()
    answers = [text_of(await send(plain, request("Hello"))) for _ in range(10)]
    assert len(answers) == 10 and all(answers), answers
    assert stops.name not in agent.served_by, agent.served_by
    assert not await follow(seen, stream, seen.is_over), "the stream was lost"
    assert (seen.state, seen.text) == (TaskState.TASK_STATE_COMPLETED, numbers(20)), seen.text
    status = await asyncio.to_thread(stops.wait)
    assert status == 0, status
    agent.cluster.balancer.tell(f"set server annex/{stops.name} state ready")
    await agent.start_again(stops)
    return f"{stops.name} ended with status {status}, its stream with COMPLETED, and 10 messages went to the others"


STEPS: list[Callable[[Agent], Awaitable[str]]] = [card, state, keys, once, subscribed, killed, drained]


async def report(step: Callable[[Agent], Awaitable[str]], agent: Agent) -> bool:
    """Runs one step and says what it saw. False when it failed."""
    try:
        print(f"ok    {step.__name__}: {await step(agent)}", flush=True)
    except Exception:
        print(f"FAIL  {step.__name__}", flush=True)
        traceback.print_exc()
        return False
    return True


async def run(cluster: Cluster) -> int:
    async with httpx.AsyncClient(timeout=60) as http:
        agent = Agent(cluster, http)
        http.event_hooks = {"response": [agent.note]}
        outcomes = [await report(step, agent) for step in STEPS]
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


def main(words: list[str]) -> int:
    try:
        with Cluster(annex(words[0] if words else None), free_ports(4)) as cluster:
            return asyncio.run(run(cluster))
    except Failure as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
