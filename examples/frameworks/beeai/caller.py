"""BeeAI. It speaks 0.3."""

from a2a.types import Message, Part, Role, TextPart
from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.adapters.a2a.agents.agent import A2AAgentParameters, HttpxAsyncClientParameters
from beeai_framework.memory import UnconstrainedMemory

from steps import AGAIN, FIELD, HELLO, STATE, URI, WHO, new_id, run


def agent(url: str, **options: object) -> A2AAgent:
    return A2AAgent(url=url, memory=UnconstrainedMemory(), **options)


async def plain(url: str) -> str:
    return (await agent(url).run(HELLO, streaming=False)).last_message.text


async def stream(url: str) -> str:
    return (await agent(url).run(HELLO, streaming=True)).last_message.text


async def second(url: str) -> str:
    caller = agent(url)
    await caller.run(HELLO)
    return (await caller.run(AGAIN)).last_message.text


async def state(url: str) -> str:
    headers = HttpxAsyncClientParameters(headers={"X-A2A-Extensions": URI})
    caller = agent(url, parameters=A2AAgentParameters(httpx_async_client=headers))
    parts = [Part(root=TextPart(text=WHO))]
    answer = await caller.run(Message(message_id=new_id(), role=Role.user, parts=parts, metadata={FIELD: STATE}))
    task, _ = answer.event
    return f"{answer.last_message.text} The state came back: {task.artifacts[0].metadata[FIELD]['name']}"


run(plain=plain, stream=stream, second=second, state=state)
