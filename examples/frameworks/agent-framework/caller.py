"""Microsoft's Agent Framework. It speaks A2A 1.0, and with `url=` it posts to that URL without reading the card."""

import httpx
from agent_framework import AgentSession, Content, Message
from agent_framework.a2a import A2AAgent

from steps import AGAIN, FIELD, HELLO, STATE, URI, WHO, run


async def plain(url: str) -> str:
    async with A2AAgent(url=url) as agent:
        return (await agent.run(HELLO)).text


async def stream(url: str) -> str:
    async with A2AAgent(url=url) as agent:
        return "".join([update.text async for update in agent.run(HELLO, stream=True)])


async def second(url: str) -> str:
    async with A2AAgent(url=url) as agent:
        session = AgentSession()
        await agent.run(HELLO, session=session)
        return (await agent.run(AGAIN, session=session)).text


async def state(url: str) -> str:
    async with httpx.AsyncClient(headers={"A2A-Extensions": URI}) as http, A2AAgent(url=url, http_client=http) as agent:
        properties = {"a2a": {FIELD: STATE}}
        message = Message("user", [Content.from_text(WHO)], additional_properties=properties)
        answer = await agent.run(message)
        return f"{answer.text} The state came back: {answer.additional_properties['a2a'][FIELD]['name']}"


run(plain=plain, stream=stream, second=second, state=state)
