"""Buys from an agent by AP2 v0.2, with the official SDK of A2A. `mandates.py` makes the mandates.

    python client.py [URL]        # default: http://127.0.0.1:9999

Short programs, to be read in this order. Each checks what the agent answered. No money moves.
"""

import asyncio
import base64
import sys
import traceback
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types import AgentCard, Message, Part, Role, SendMessageRequest, TaskState
from a2a.utils.errors import ExtensionSupportRequiredError, InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value

from mandates import OTHER, SHOES, SHOP, checkout, checkout_mandate, closed, opened, payment_mandate, seen, sha256

URI = "https://github.com/google-agentic-commerce/ap2/v1"
CHECKOUT, PAYMENT = "ap2.mandates.CheckoutMandateSdJwt", "ap2.mandates.PaymentMandateSdJwt"


class Agent:
    """The agent, called by a client that knows the extension."""

    def __init__(self, client: Client, card: AgentCard) -> None:
        self.client, self.card = client, card

    async def send(self, mandates: dict, uris: tuple = (URI,)) -> TaskState:
        data = Part(data=ParseDict(mandates, Value()))
        message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text="Buy the shoes."), data])
        parameters = ServiceParametersFactory.create_from(None, [with_a2a_extensions(list(uris))])
        context = ClientCallContext(service_parameters=parameters)
        [response] = [
            event async for event in self.client.send_message(SendMessageRequest(message=message), context=context)
        ]
        return response.task.status.state

    async def taken(self, mandates: dict) -> None:
        assert await self.send(mandates) == TaskState.TASK_STATE_COMPLETED

    async def refused(self, mandates: dict, reason: str) -> str:
        """Checks that the mandates are refused for this reason, before the agent runs."""
        try:
            await self.send(mandates)
        except InvalidParamsError as error:
            assert reason in error.message, error.message
            return reason
        raise AssertionError("accepted")


def direct(jwt: str) -> dict:
    """Mandates for a checkout that the user has seen."""
    return {CHECKOUT: seen(checkout_mandate(jwt)), PAYMENT: seen(payment_mandate(jwt))}


def delegated(jwt: str, most: int = 20_000) -> dict:
    """Mandates that the agent closes: for these shoes, from this shop, for at most this amount."""
    items = [{"id": "shoes", "acceptable_items": [SHOES], "quantity": 1}]
    constraints = [
        {"type": "checkout.line_items", "items": items},
        {"type": "checkout.allowed_merchants", "allowed": [SHOP]},
    ]
    open_checkout = opened("checkout", constraints)
    constraints = [
        {"type": "payment.amount_range", "currency": "USD", "max": most},
        {"type": "payment.allowed_payees", "allowed": [SHOP]},
        {"type": "payment.reference", "conditional_transaction_id": sha256(open_checkout)},
    ]
    return {
        CHECKOUT: closed(open_checkout, checkout_mandate(jwt), jwt),
        PAYMENT: closed(opened("payment", constraints), payment_mandate(jwt), jwt),
    }


async def discovery(agent: Agent) -> str:
    """The card declares the extension, and the agent insists on it."""
    [declared] = [extension for extension in agent.card.capabilities.extensions if extension.uri == URI]
    assert declared.required
    try:
        await agent.send({}, uris=())
    except ExtensionSupportRequiredError:
        return f"roles: {', '.join(MessageToDict(declared.params)['roles'])}"
    raise AssertionError("accepted")


async def user_present(agent: Agent) -> str:
    """The user has seen the checkout."""
    await agent.taken(direct(checkout()))
    return "checkout and payment are taken"


async def user_absent(agent: Agent) -> str:
    """The user has signed constraints, and the agent has closed the mandates."""
    await agent.taken(delegated(checkout()))
    return "checkout and payment are taken"


async def twice(agent: Agent) -> str:
    """Mandates are good for one task."""
    mandates = direct(checkout())
    await agent.taken(mandates)
    return await agent.refused(mandates, "was used before")


async def cheaper(agent: Agent) -> str:
    """A payment of another amount than that of the checkout is refused."""
    jwt = checkout()
    mandates = {**direct(jwt), PAYMENT: seen(payment_mandate(jwt, amount=1))}
    return await agent.refused(mandates, "invalid_mandate: has another amount than the total of the checkout")


async def dearer(agent: Agent) -> str:
    """The agent may not pay more than the user allowed."""
    reason = "unresolved_constraint: does not meet the constraint `payment.amount_range`"
    return await agent.refused(delegated(checkout(), most=11_899), reason)


async def another_shop(agent: Agent) -> str:
    """A checkout of a merchant that the agent does not know is refused."""
    jwt = checkout(merchant=OTHER)
    return await agent.refused(direct(jwt), "is of a merchant that is not known here")


async def another_agent(agent: Agent) -> str:
    """Mandates for another agent are refused."""
    jwt = checkout()
    open_mandate = opened("checkout", [{"type": "checkout.allowed_merchants", "allowed": [SHOP]}])
    mandate = closed(open_mandate, checkout_mandate(jwt), jwt, audience=OTHER["id"])
    return await agent.refused({CHECKOUT: mandate}, "invalid_credential: is not for this agent")


async def forged(agent: Agent) -> str:
    """What the wallet has not signed is refused."""
    mandate = seen(checkout_mandate(checkout()))
    later = base64.urlsafe_b64encode(b'["salt", "exp", 4102444800]').rstrip(b"=").decode()
    return await agent.refused({CHECKOUT: f"{mandate}{later}~"}, "has a disclosure without a signed digest")


STEPS = [discovery, user_present, user_absent, twice, cheaper, dearer, another_shop, another_agent, forged]


async def run(url: str) -> int:
    passed = 0
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        for step in STEPS:
            try:
                print(f"ok      {step.__name__}: {await step(Agent(client, card))}")
                passed += 1
            except Exception:
                print(f"FAILED  {step.__name__}\n{traceback.format_exc()}")
    print(f"{passed} of {len(STEPS)} passed")
    return 0 if passed == len(STEPS) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9999")))
