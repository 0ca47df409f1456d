"""The Timestamp extension, version 1: the time at which a message or artifact was made, in its metadata."""

import json
from datetime import datetime, timezone

from wit_world.exports.client import Addition, Incoming, Outgoing
from wit_world.exports.descriptor import EventKinds, ExtensionDescriptor
from wit_world.exports.response import Event, EventKind, Patch
from wit_world.imports import store
from wit_world.imports.types import Location, MetadataEntry

DEFAULT_URI = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"

PARAMETER_SCHEMA = {
    "type": "object",
    "properties": {
        "uri": {"type": "string", "minLength": 1, "description": "The extension's URI."},
        "key": {
            "type": "string",
            "minLength": 1,
            "description": "The metadata key of the stamp: by default the URI without its scheme, and `/timestamp`.",
        },
    },
    "additionalProperties": False,
}


def uri() -> str:
    return store.get("uri") or DEFAULT_URI


def key() -> str:
    return store.get("key") or uri().split("://", 1)[-1] + "/timestamp"


def now() -> str:
    """The time as JSON, in RFC 3339 with milliseconds."""
    time = datetime.now(timezone.utc).replace(tzinfo=None)
    return json.dumps(time.isoformat(timespec="milliseconds") + "Z")


class Descriptor:
    def describe(self) -> ExtensionDescriptor:
        return ExtensionDescriptor(
            uri=uri(),
            name="timestamp",
            version="0.1.0",
            description="Adds the time to the metadata of messages and artifacts.",
            parameter_schema=json.dumps(PARAMETER_SCHEMA),
            metadata_keys=[key()],
            depends_on=[],
            grants=[],
            events=EventKinds.MESSAGE | EventKinds.STATUS | EventKinds.ARTIFACT,
            payload=False,
        )


class Response:
    def respond(self, event: Event) -> Patch | None:
        """Stamps a message, an artifact, or a status with a message on it. A stamp that is there already stays."""
        is_stampable = event.kind != EventKind.STATUS or event.has_message
        if not is_stampable or key() in event.present:
            return None
        return Patch(metadata=[(key(), now())])


class Client:
    def before(self, call: Outgoing) -> Addition:
        """Stamps what the client sends, when the agent knows stamps."""
        if call.message is None or call.declaration is None:
            return Addition(activate=False, metadata=[])
        return Addition(activate=True, metadata=[MetadataEntry(Location.MESSAGE, key(), now())])

    def after(self, event: Incoming) -> str | None:
        """The last stamp on what came back, for the program."""
        return event.metadata[-1][1] if event.active and event.metadata else None
