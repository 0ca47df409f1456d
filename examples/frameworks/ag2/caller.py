"""AG2 takes an agent elsewhere as the model of an agent of its own. It speaks A2A 1.0."""

from a2a.client import ClientCallInterceptor
from ag2 import Agent
from ag2.a2a import A2AConfig

from steps import AGAIN, FIELD, HELLO, STATE, URI, WHO, run

received = []


class State(ClientCallInterceptor):
    """Puts the state beside each message, and keeps the state that comes back."""

    async def before(self, args):
        if args.method.startswith("send"):
            args.input.message.metadata.update({FIELD: STATE})

    async def after(self, args):
        event = args.result
        if args.method.startswith("send") and event.HasField("artifact_update"):
            metadata = event.artifact_update.artifact.metadata
            if FIELD in metadata:
                received.append(metadata[FIELD])


def agent(url: str, **options: object) -> Agent:
    return Agent("caller", config=A2AConfig(card_url=url, **options))


async def plain(url: str) -> str:
    return (await agent(url, streaming=False).ask(HELLO)).body


async def stream(url: str) -> str:
    return (await agent(url).ask(HELLO)).body


async def second(url: str) -> str:
    first = await agent(url).ask(HELLO)
    return (await first.ask(AGAIN)).body


async def state(url: str) -> str:
    reply = await agent(url, extensions=(URI,), interceptors=(State(),)).ask(WHO)
    return f"{reply.body} The state came back: {received[-1]['name']}"


run(plain=plain, stream=stream, second=second, state=state)
