"""Greets the callers of one organisation, and takes no part in the requests of others."""

import json

from wit_world.exports import activation, descriptor, response
from wit_world.imports import caller
from wit_world.imports.types import Request

KEY = "annex.example/acme/v1/greeting"


class Descriptor:
    def describe(self) -> descriptor.ExtensionDescriptor:
        return descriptor.ExtensionDescriptor(
            uri="https://annex.example/acme/v1", name="acme", version="0.1.0",
            description="Greets the callers of one organisation.", parameter_schema=None, metadata_keys=[KEY],
            depends_on=[], grants=[], events=descriptor.EventKinds.ARTIFACT, payload=False,
        )


class Activation:
    def activate(self, request: Request) -> activation.Decision:
        is_ours = json.loads(caller.current().claims).get("org") == "acme"
        return activation.Decision.ACTIVE if is_ours else activation.Decision.INACTIVE


class Response:
    def respond(self, event: response.Event) -> response.Patch | None:
        return response.Patch([(KEY, json.dumps("Hello, Acme!"))])
