"""Strands Agents. It speaks 0.3, and sends neither the id of a conversation nor metadata."""

import httpx
from a2a.client import ClientConfig
from strands.agent.a2a_agent import A2AAgent

from steps import AGAIN, HELLO, URI, WHO, run


def text_of(result) -> str:
    return "".join(block.get("text", "") for block in result.message["content"])


async def plain(url: str) -> str:
    return text_of(await A2AAgent(url).invoke_async(HELLO))


async def stream(url: str) -> str:
    events = [event async for event in A2AAgent(url).stream_async(HELLO)]
    return f"{text_of(events[-1]['result'])} ({len(events) > 2})"


async def second(url: str) -> str:
    agent = A2AAgent(url)
    await agent.invoke_async(HELLO)
    return text_of(await agent.invoke_async(AGAIN))


async def state(url: str) -> str:
    async with httpx.AsyncClient(headers={"X-A2A-Extensions": URI}) as http:
        return text_of(await A2AAgent(url, client_config=ClientConfig(httpx_client=http)).invoke_async(WHO))


run(plain=plain, stream=stream, second=second, state=state)
