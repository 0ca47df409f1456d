"""Answers a question that was asked before in the conversation, without the agent."""

import json

from wit_world.exports import descriptor, reply, response
from wit_world.imports import keyvalue
from wit_world.imports.types import Request

# The question of the turn, and its answer so far.
turn = ["", ""]


def text(parts: list[dict]) -> str:
    return "".join(part.get("text", "") for part in parts)


class Descriptor:
    def describe(self) -> descriptor.ExtensionDescriptor:
        return descriptor.ExtensionDescriptor(
            uri="https://annex.example/cache/v1", name="cache", version="0.1.0",
            description="Answers questions again without the agent.", parameter_schema=None, metadata_keys=[],
            depends_on=[], grants=[], events=descriptor.EventKinds.ARTIFACT, payload=True,
        )


class Reply:
    def before_agent(self, request: Request, message: str) -> reply.ReadyAnswer | None:
        turn[:] = [text(json.loads(message)["parts"]), ""]
        # A key has at most 512 bytes. The agent answers longer questions.
        stored = keyvalue.open("context").get(turn[0]) if len(turn[0].encode()) <= 512 else None
        part = json.dumps({"text": stored.decode()}) if stored is not None else None
        return reply.ReadyAnswer(reply.Outcome.COMPLETED, [part], "answer", []) if part else None


class Response:
    def respond(self, event: response.Event) -> response.Patch | None:
        turn[1] += text(json.loads(event.payload)["artifactUpdate"]["artifact"]["parts"])
        if event.last_chunk and len(turn[0].encode()) <= 512:
            keyvalue.open("context").set(turn[0], turn[1].encode())
