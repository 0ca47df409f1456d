"""Pays an agent by x402, with the official SDK of A2A and the published library `x402`.

    python client.py [URL]        # default: http://127.0.0.1:9999

Short programs, to be read in this order. Each checks what the agent answered. The facilitator runs in this program.
"""

import asyncio
import sys
import traceback
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.helpers import get_artifact_text
from a2a.types import AgentCard, Message, Part, Role, SendMessageRequest, Task, TaskState
from a2a.utils.errors import ExtensionSupportRequiredError
from eth_account import Account
from google.protobuf.json_format import MessageToDict
from x402.mechanisms.evm.exact.v1.client import ExactEvmSchemeV1
from x402.schemas import SettleResponse
from x402.schemas.v1 import PaymentPayloadV1, PaymentRequiredV1

from facilitator import Facilitator

URI = "https://github.com/google-agentic-commerce/a2a-x402/blob/main/spec/v0.2"
STATUS, REQUIRED, PAYLOAD, RECEIPTS, ERROR = (
    f"x402.payment.{name}" for name in ("status", "required", "payload", "receipts", "error")
)
QUESTION = "When is the next flight to Rome?"
ANSWER = "A flight to Rome leaves at nine."
FACILITATOR_PORT = 9402

WALLET = Account.create()


class Agent:
    """The agent, called by a client that knows the extension."""

    def __init__(self, client: Client, card: AgentCard, facilitator: Facilitator) -> None:
        self.client, self.card, self.facilitator = client, card, facilitator

    async def send(self, text: str, task: Task | None = None, metadata: dict | None = None, uris: tuple = (URI,)) -> Task:
        message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
        if task is not None:
            message.task_id, message.context_id = task.id, task.context_id
        message.metadata.update(metadata or {})
        parameters = ServiceParametersFactory.create_from(None, [with_a2a_extensions(list(uris))])
        context = ClientCallContext(service_parameters=parameters)
        [response] = [
            event async for event in self.client.send_message(SendMessageRequest(message=message), context=context)
        ]
        return response.task

    async def pay(self, task: Task, payment: dict) -> Task:
        return await self.send("Here is the payment.", task, {STATUS: "payment-submitted", PAYLOAD: payment})


def told(task: Task) -> dict:
    """The metadata of the status message."""
    return MessageToDict(task.status.message.metadata)


def sign(task: Task) -> dict:
    """A `PaymentPayload` for the first way to pay that the agent offers."""
    required = told(task)[REQUIRED]
    # Numbers of a protobuf Struct are floats.
    required["x402Version"] = int(required["x402Version"])
    [requirements] = PaymentRequiredV1.model_validate(required).accepts
    payload = ExactEvmSchemeV1(WALLET).create_payment_payload(requirements)
    signed = PaymentPayloadV1(scheme=requirements.scheme, network=requirements.network, payload=payload)
    return signed.model_dump(by_alias=True)


def refused(task: Task, code: str) -> str:
    """Checks that the payment failed with this code, and that the agent did not run."""
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED and not task.artifacts, task
    assert (told(task)[STATUS], told(task)[ERROR]) == ("payment-failed", code), told(task)
    return task.status.message.parts[0].text


async def discovery(agent: Agent) -> str:
    """The card declares the extension, and the agent insists on it."""
    [declared] = [extension for extension in agent.card.capabilities.extensions if extension.uri == URI]
    assert declared.required
    try:
        await agent.send(QUESTION, uris=())
    except ExtensionSupportRequiredError:
        return "a client that does not know the extension is refused"
    raise AssertionError("accepted")


async def unpaid(agent: Agent) -> str:
    """The task waits for a payment."""
    task = await agent.send(QUESTION)
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED and not task.artifacts, task
    assert told(task)[STATUS] == "payment-required" and agent.facilitator.asked == [], told(task)
    [accepted] = told(task)[REQUIRED]["accepts"]
    return f"{accepted['maxAmountRequired']} of {accepted['asset']} on {accepted['network']}"


async def paid(agent: Agent) -> str:
    """A payment that the library signs is verified and settled, and the agent answers the question from before."""
    task = await agent.send(QUESTION)
    done = await agent.pay(task, sign(task))
    assert done.status.state == TaskState.TASK_STATE_COMPLETED, done
    assert get_artifact_text(done.artifacts[0]) == ANSWER, done
    [receipt] = told(done)[RECEIPTS]
    settled = SettleResponse.model_validate(receipt)
    assert settled.success and settled.network == "base-sepolia" and settled.payer == WALLET.address, settled
    assert MessageToDict(done.metadata)[RECEIPTS] == [receipt], "the task has the receipts too"
    assert agent.facilitator.asked == ["/verify", "/settle"], agent.facilitator.asked
    return f"{told(done)[STATUS]} by {settled.transaction[:10]}…"


async def twice(agent: Agent) -> str:
    """One payment pays for one task."""
    first, second = await agent.send(QUESTION), await agent.send(QUESTION)
    payment = sign(first)
    assert (await agent.pay(first, payment)).status.state == TaskState.TASK_STATE_COMPLETED
    return refused(await agent.pay(second, payment), "DUPLICATE_NONCE")


async def forged(agent: Agent) -> str:
    """A payment that another key has signed is refused. The right payment is taken afterwards."""
    task = await agent.send(QUESTION)
    payment = sign(task)
    payment["payload"]["authorization"]["from"] = Account.create().address
    text = refused(await agent.pay(task, payment), "INVALID_SIGNATURE")
    done = await agent.pay(task, sign(task))
    assert [receipt["success"] for receipt in told(done)[RECEIPTS]] == [False, True], told(done)
    return text


async def cheaper(agent: Agent) -> str:
    """A payment of another amount is refused, and the facilitator is not asked."""
    task = await agent.send(QUESTION)
    required = told(task)
    required[REQUIRED]["accepts"][0]["maxAmountRequired"] = "1"
    task.status.message.metadata.update(required)
    text = refused(await agent.pay(task, sign(task)), "INVALID_AMOUNT")
    assert agent.facilitator.asked == [], agent.facilitator.asked
    return text


async def rejected(agent: Agent) -> str:
    """A client that does not pay ends the task."""
    task = await agent.send(QUESTION)
    ended = await agent.send("No.", task, {STATUS: "payment-rejected"})
    assert ended.status.state == TaskState.TASK_STATE_REJECTED and told(ended)[STATUS] == "payment-rejected", ended
    return ended.status.message.parts[0].text


STEPS = [discovery, unpaid, paid, twice, forged, cheaper, rejected]


async def run(url: str) -> int:
    facilitator = Facilitator(FACILITATOR_PORT)
    passed = 0
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        for step in STEPS:
            facilitator.asked = []
            try:
                print(f"ok      {step.__name__}: {await step(Agent(client, card, facilitator))}")
                passed += 1
            except Exception:
                print(f"FAILED  {step.__name__}\n{traceback.format_exc()}")
    print(f"{passed} of {len(STEPS)} passed")
    return 0 if passed == len(STEPS) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999")))
