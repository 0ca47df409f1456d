"""Agno's own client. It writes JSON-RPC of 0.3 and reads no card for it, so it is given the address of JSON-RPC."""

from agno.client.a2a import A2AClient

from steps import AGAIN, FIELD, HELLO, STATE, URI, WHO, run


async def text_of(events) -> tuple[str, str | None]:
    """The text of a stream, and the conversation's id."""
    heard = [event async for event in events]
    texts = [event.content for event in heard if event.content]
    contexts = [event.context_id for event in heard if event.context_id]
    return "".join(texts), contexts[-1] if contexts else None


async def plain(url: str) -> str:
    result = await A2AClient(url, protocol="json-rpc").send_message(HELLO)
    return f"{result.status}: {result.content!r}"


async def stream(url: str) -> str:
    return (await text_of(A2AClient(url, protocol="json-rpc").stream_message(HELLO)))[0]


async def second(url: str) -> str:
    client = A2AClient(url, protocol="json-rpc")
    _, context = await text_of(client.stream_message(HELLO))
    return (await text_of(client.stream_message(AGAIN, context_id=context)))[0]


async def state(url: str) -> str:
    client = A2AClient(url, protocol="json-rpc")
    events = client.stream_message(WHO, metadata={FIELD: STATE}, headers={"X-A2A-Extensions": URI})
    heard = [event async for event in events]
    returned = [event.metadata[FIELD] for event in heard if event.metadata and FIELD in event.metadata]
    answer = "".join(event.content for event in heard if event.content)
    return f"{answer} The state came back: {returned[-1]['name'] if returned else 'no'}"


async def rest(url: str) -> str:
    result = await A2AClient(f"{url}/a2a/rest").send_message(HELLO)
    return f"{result.status}: {result.content!r}"


run(plain=plain, stream=stream, second=second, state=state, rest=rest)
