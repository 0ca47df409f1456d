"""CrewAI's delegation to an agent elsewhere. It speaks 0.3.

`extensions=` of `A2AClientConfig` sends no header, so the header goes as if it was an API key.
"""

import json

from crewai import Agent, BaseLLM, Crew, Task
from crewai.a2a import A2AClientConfig
from crewai.a2a.auth import APIKeyAuth
from crewai.a2a.updates import PollingConfig
from crewai.a2a.utils.delegation import aexecute_a2a_delegation

from steps import AGAIN, FIELD, HELLO, STATE, URI, WHO, new_id, run


async def send(url: str, text: str, auth: APIKeyAuth | None = None, **options: object) -> str:
    result = await aexecute_a2a_delegation(f"{url}/.well-known/agent-card.json", auth, 60, text, **options)
    return result.get("result") or str(result.get("error"))


async def plain(url: str) -> str:
    return await send(url, HELLO, updates=PollingConfig())


async def stream(url: str) -> str:
    return await send(url, HELLO)


async def second(url: str) -> str:
    context = new_id()
    await send(url, HELLO, context_id=context)
    return await send(url, AGAIN, context_id=context)


async def state(url: str) -> str:
    auth = APIKeyAuth(name="X-A2A-Extensions", api_key=URI, location="header")
    return await send(url, WHO, auth, metadata={FIELD: STATE})


async def extension(url: str) -> str:
    """The same by the option that is meant for it, which activates nothing."""
    return await send(url, WHO, client_extensions=[URI], metadata={FIELD: STATE})


class Delegates(BaseLLM):
    """A model that delegates the task, and then says whether it was shown the answer."""

    endpoint: str
    calls: int = 0

    def call(self, messages, *_, **__):
        self.calls += 1
        if self.calls == 1:
            return json.dumps({"a2a_ids": [self.endpoint], "message": HELLO, "is_a2a": True})
        is_there = "Hello from Annex" in str(messages)
        return json.dumps({"a2a_ids": [], "message": f"The model was shown the answer: {is_there}", "is_a2a": False})


async def crew(url: str, trusts: bool = False) -> str:
    """An agent with `a2a=`."""
    endpoint = f"{url}/.well-known/agent-card.json"
    config = A2AClientConfig(endpoint=endpoint, trust_remote_completion_status=trusts)
    agent = Agent(role="r", goal="g", backstory="b", llm=Delegates(model="fake", endpoint=endpoint), a2a=config)
    task = Task(description="Ask the specialist", expected_output="its answer", agent=agent)
    return str(await Crew(agents=[agent], tasks=[task]).kickoff_async())


async def trusting(url: str) -> str:
    return await crew(url, trusts=True)


run(crew=crew, trusting=trusting, plain=plain, stream=stream, second=second, state=state, extension=extension)
