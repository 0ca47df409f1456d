"""Negotiation-T of A2A-T (TM Forum IG1453): keeps the rounds of a negotiation.

Each class is a hook. The agent negotiates, and this extension holds the context of its messages
against the rules: who may say what in which round, and when a negotiation is over.
"""

import json
from uuid import UUID

from componentize_py_types import Err
from wit_world.exports import descriptor, message, transition
from wit_world.imports import config, keyvalue, logging
from wit_world.imports.types import Rejection_Violations, Request, Violation

URI = "https://projects.tmforum.org/a2aproject/telecommunication/extensions/Negotiation-T/v1"
TEMPLATE = "templateUri"
CONTEXT = "negotiationContext"
PARAMETER_SCHEMA = {
    "type": "object",
    "properties": {
        "max_rounds": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100,
            "description": "The most rounds that a client may ask for; 5.",
        }
    },
    "additionalProperties": False,
}

# The key of the task's bucket.
ROUNDS = "rounds"
OVER = {"ACCEPT", "REJECT", "ABORT"}
# The part of a template's URI that each performative has.
PHASES = {"PROPOSE": "/propose/", "ACCEPT": "/accept-reject/", "REJECT": "/accept-reject/", "ABORT": "/abort/"}


class Turn:
    """What the hooks of one turn share. An instance serves one turn."""

    sent: dict | None = None


def refuse(pointer: str, text: str) -> Err:
    path = "/message/metadata" + pointer
    return Err(Rejection_Violations([Violation(path, text)]))


def max_rounds() -> int:
    return int(config.get("max_rounds") or 5)


def check_context(context: object) -> dict:
    """The context of a message, with the fields of the published SDK."""
    at = "/" + CONTEXT
    if not isinstance(context, dict):
        raise refuse(at, "is not an object")
    try:
        UUID(context["id"])
    except (KeyError, TypeError, AttributeError, ValueError):
        raise refuse(at + "/id", "is not a UUID") from None
    limit = max_rounds()
    for name, most in [("maxRounds", limit), ("round", context.get("maxRounds"))]:
        number = context.get(name)
        if type(number) is not int or not 1 <= number <= most:
            raise refuse(f"{at}/{name}", f"is not a whole number between 1 and {most}")
    if context.get("performative") not in PHASES:
        raise refuse(at + "/performative", "is none of " + ", ".join(PHASES))
    return {name: context[name] for name in ("id", "round", "maxRounds", "performative")}


def check_template(template: object, performative: str) -> None:
    phase = PHASES[performative]
    if not isinstance(template, str) or not template.startswith("Negotiation-T/") or phase not in template:
        raise refuse("/" + TEMPLATE, f"is not a template of Negotiation-T with {phase.strip('/')}")


def stored() -> dict | None:
    """The last context of the task's negotiation. A message that starts a task has no bucket yet."""
    try:
        text = keyvalue.open("task").get(ROUNDS)
    except Err:
        return None
    return json.loads(text) if text else None


def keep(context: dict) -> None:
    keyvalue.open("task").set(ROUNDS, json.dumps(context).encode())


def check_order(last: dict | None, sent: dict) -> None:
    """The message must be the next one of the negotiation."""
    at = "/" + CONTEXT
    performative, number = sent["performative"], sent["round"]
    if last is None:
        if performative != "PROPOSE" or number != 1:
            raise refuse(at, "does not begin a negotiation, which begins with PROPOSE in round 1")
        return
    for name in ("id", "maxRounds"):
        if sent[name] != last[name]:
            raise refuse(f"{at}/{name}", "is not that of the negotiation")
    if last["performative"] in OVER:
        raise refuse(at, f"belongs to a negotiation that is over: {last['performative']} in round {last['round']}")
    expected = last["round"] + (performative == "PROPOSE")
    if number != expected:
        raise refuse(at + "/round", f"is not {expected}, the round of the next {performative}")


class Descriptor:
    def describe(self) -> descriptor.ExtensionDescriptor:
        return descriptor.ExtensionDescriptor(
            uri=URI,
            name="negotiation",
            version="0.1.0",
            description="Negotiation text exchange",
            parameter_schema=json.dumps(PARAMETER_SCHEMA),
            metadata_keys=[URI, TEMPLATE, CONTEXT],
            depends_on=[],
            grants=[],
            events=descriptor.EventKinds(0),
            payload=False,
        )


class Message:
    # Called once per active request: refuses a message that is no message of a negotiation.
    def check(self, request: Request, message: str) -> list[message.Rewrite]:
        metadata = json.loads(message).get("metadata", {})
        Turn.sent = None
        if not {URI, TEMPLATE, CONTEXT} & metadata.keys():
            return []
        if not isinstance(metadata.get(URI), str) or not metadata[URI].strip():
            raise refuse("/" + URI.replace("/", "~1"), "is not the text of the message")
        sent = check_context(metadata.get(CONTEXT))
        check_template(metadata.get(TEMPLATE), sent["performative"])
        check_order(stored(), sent)
        Turn.sent = sent
        return []


class Transition:
    # Called when a turn begins: the negotiation has got as far as the client's message.
    def begin(self, request: Request, beginning: transition.Beginning) -> transition.Entry:
        if Turn.sent is not None:
            keep(Turn.sent)
        return transition.Entry_Proceed()

    # Called for each change of the task's state: an agent behind the server may have gone on to the next round.
    def change(self, change: transition.StateChange) -> transition.Ruling:
        metadata = json.loads(change.message or "{}").get("metadata", {})
        if CONTEXT in metadata:
            try:
                keep(check_context(metadata[CONTEXT]))
            except Err as error:
                logging.log(logging.Level.WARN, CONTEXT, f"the agent's context is not valid: {error.value}")
        return transition.Ruling_Pass()
