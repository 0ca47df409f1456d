"""The client of fasta2a. It posts to the base URL, with methods of 0.3 whose bodies have the shape of 1.0."""

from fasta2a.client import A2AClient
from fasta2a.schema import Message, Part

from steps import HELLO, new_id, run


def message(text: str) -> Message:
    return Message(role="user", parts=[Part(text=text)], message_id=new_id())


async def plain(url: str) -> str:
    return str(await A2AClient(url).send_message(message(HELLO)))


async def stream(url: str) -> str:
    return str([event async for event in A2AClient(url).stream_message(message(HELLO))])


async def card(url: str) -> str:
    return str(await A2AClient(url, fetch_card=True).send_message(message(HELLO)))


run(plain=plain, stream=stream, card=card)
