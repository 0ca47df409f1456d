"""Approves and rejects calls of tools with agentstack's client, over A2A 0.3.

    python approval.py [URL]
"""

import asyncio
import sys
import traceback
import uuid

import a2a.types as types
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from agentstack_sdk.a2a.extensions import ApprovalExtensionClient, ApprovalExtensionSpec
from agentstack_sdk.a2a.extensions.interactions.approval import ApprovalResponse

SPEC = ApprovalExtensionSpec(None)
APPROVAL = ApprovalExtensionClient(SPEC)


class Agent:
    """The agent behind the official client of A2A 0.3."""

    def __init__(self, client):
        self.client = client

    async def send(self, message):
        """The task after the message."""
        task = None
        async for event in self.client.send_message(message):
            task = event[0]
        return task

    async def ask(self, text):
        """Begins a task with a text."""
        part = types.Part(root=types.TextPart(text=text))
        metadata = APPROVAL.metadata()
        message = types.Message(
            message_id=str(uuid.uuid4()), role=types.Role.user, parts=[part], metadata=metadata
        )
        return await self.send(message)

    async def decide(self, task, decision):
        """Answers the request of a task."""
        response = ApprovalResponse(decision=decision)
        return await self.send(APPROVAL.create_response_message(response=response, task_id=task.id))


def words(task):
    return " ".join(part.root.text for artifact in task.artifacts or [] for part in artifact.parts)


async def declared(agent):
    """The card declares the extension as agentstack reads it."""
    card = await agent.client.get_card()
    assert ApprovalExtensionSpec.from_agent_card(card), card.capabilities
    return "the card declares the extension"


async def approved(agent):
    """A call waits with its arguments, and is made once it is approved by a message without parts."""
    task = await agent.ask("Pay Bob 5")
    assert task.status.state == types.TaskState.input_required, task
    request = APPROVAL.parse_request(message=task.status.message)
    assert (request.action, request.name, request.input) == ("tool-call", "pay", {"to": "Bob", "amount": 5}), request
    done = await agent.decide(task, "approve")
    assert done.status.state == types.TaskState.completed, done
    assert "5 paid to Bob" in words(done), words(done)
    return words(done)


async def rejected(agent):
    """A rejected call is not made, and the model is told."""
    task = await agent.ask("Pay Eve 500")
    done = await agent.decide(task, "reject")
    assert done.status.state == types.TaskState.completed, done
    assert "rejected" in words(done) and "paid" not in words(done), words(done)
    return words(done)


async def twice(agent):
    """A decision about a task that has ended is refused."""
    task = await agent.ask("Pay Bob 7")
    await agent.decide(task, "approve")
    try:
        again = await agent.decide(task, "approve")
    except A2AClientJSONRPCError as error:
        return f"refused: {str(error)[:90]}"
    raise AssertionError(again)


async def main(url):
    passed = 0
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        agent = Agent(ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card))
        steps = [declared, approved, rejected, twice]
        for step in steps:
            try:
                print(f"ok      {step.__name__}: {await step(agent)}")
                passed += 1
            except Exception:
                print(f"FAILED  {step.__name__}\n{traceback.format_exc()}")
    print(f"{passed} of {len(steps)} passed")
    return 0 if passed == len(steps) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999")))
