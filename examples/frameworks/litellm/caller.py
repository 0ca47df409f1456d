"""LiteLLM calls an agent with its `a2a_protocol`, which speaks A2A 1.0 and is written with the types of 0.3."""

from a2a.compat.v0_3.types import MessageSendParams, SendMessageRequest, SendStreamingMessageRequest
from litellm.a2a_protocol import asend_message, asend_message_streaming

from steps import AGAIN, FIELD, HELLO, STATE, URI, WHO, new_id, run


def params(text: str, **fields: object) -> MessageSendParams:
    message = {"role": "user", "parts": [{"kind": "text", "text": text}], "messageId": new_id(), **fields}
    return MessageSendParams(message=message)


async def send(url: str, text: str, headers: dict[str, str] | None = None, **fields: object) -> dict:
    request = SendMessageRequest(id=new_id(), params=params(text, **fields))
    answer = await asend_message(request=request, api_base=url, agent_extra_headers=headers)
    answer = answer.model_dump(mode="json", exclude_none=True)
    return answer["result"] if "result" in answer else {"error": answer["error"]}


def text_of(task: dict) -> str:
    return task["artifacts"][0]["parts"][0]["text"] if "artifacts" in task else str(task)


async def plain(url: str) -> str:
    return text_of(await send(url, HELLO))


async def stream(url: str) -> str:
    request = SendStreamingMessageRequest(id=new_id(), params=params(HELLO))
    chunks = asend_message_streaming(request=request, api_base=url)
    events = [chunk.model_dump(mode="json", exclude_none=True)["result"] async for chunk in chunks]
    return "".join(text_of({"artifacts": [event["artifact"]]}) for event in events if "artifact" in event)


async def second(url: str) -> str:
    first = await send(url, HELLO)
    return text_of(await send(url, AGAIN, contextId=first["contextId"]))


async def state(url: str) -> str:
    task = await send(url, WHO, {"A2A-Extensions": URI}, metadata={FIELD: STATE})
    return f"{text_of(task)} The state came back: {task['artifacts'][0]['metadata'][FIELD]['name']}"


run(plain=plain, stream=stream, second=second, state=state)
