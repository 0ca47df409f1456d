{% set counts = w.keyvalue or w.clock %}
{% set greeting = "greeting()" if w.parameters else "GREETING" %}
{% set greets = h.card or h.live_card or h.reads or h.extended_card or h.response %}
{% set capabilities = namespace(names=[]) %}
{% for pair in [
  ["atomics", h.response and w.keyvalue], ["config", greets and w.parameters],
  ["keyvalue", h.response and w.keyvalue], ["logging", h.response and w.logging],
] if pair[1] %}
{% set capabilities.names = capabilities.names + [pair[0]] %}
{% endfor %}
"""Says hello.

Each class is a hook. JSON crosses the boundary as text. To answer with an error of the
contract, raise `Err`; the traceback of any other exception goes to the log.
"""

import json
{% if h.response and w.clock %}
import time
{% endif %}
{% if h.output %}
from collections.abc import Callable
{% endif %}

{% set ns = namespace(names=[], line="from wit_world.exports import ") %}
{% for pair in [
  ["activation", h.activation], ["card", h.card], ["client", h.client], ["descriptor", true],
  ["extended_card", h.extended_card], ["live_card", h.live_card], ["message", h.message], ["method", h.method], ["output", h.output], ["reads", h.reads],
  ["reply", h.reply], ["response", h.response], ["steering", h.steering], ["transition", h.transition],
] if pair[1] %}
{% set ns.names = ns.names + [pair[0]] %}
{% endfor %}
{% if h.message %}
from componentize_py_types import Err
{% endif %}
{% if ns.names | join(", ") | length <= 58 %}
from wit_world.exports import {{ ns.names | join(", ") }}
{% else %}
from wit_world.exports import (
{% for name in ns.names %}
    {{ name }},
{% endfor %}
)
{% endif %}
{% if capabilities.names %}
from wit_world.imports import {{ capabilities.names | join(", ") }}
{% endif %}
{% set types = namespace(names=[]) %}
{% for pair in [
  ["MetadataEntry", h.state], ["Rejection_Violations", h.message],
  ["Request", h.activation or h.message or h.state or h.transition or h.reply or h.reads or h.extended_card or h.method],
  ["Violation", h.message],
] if pair[1] %}
{% set types.names = types.names + [pair[0]] %}
{% endfor %}
{% if types.names | join(", ") | length > 50 %}
from wit_world.imports.types import (
{% for name in types.names %}
    {{ name }},
{% endfor %}
)
{% elif types.names %}
from wit_world.imports.types import {{ types.names | join(", ") }}
{% endif %}
{% if w.random or w.http or w.json_schema or w.session_state or w.task or w.tasks or w.task_resumption or w.agent_steps or w.caller or w.task_metadata or ((w.keyvalue or w.clock or w.logging) and not h.response) %}

{% endif %}
{% if w.keyvalue and not h.response %}
# keyvalue: `from wit_world.imports import keyvalue`, `keyvalue.open("").get("key")`
{% endif %}
{% if w.clock and not h.response %}
# clock: `time.time()`
{% endif %}
{% if w.logging and not h.response %}
# logging: `from wit_world.imports import logging`, then
# `logging.log(logging.Level.INFO, KEY, "a line")`
{% endif %}
{% if w.random %}
# random: `random.random()`, `os.urandom(16)`
{% endif %}
{% if w.http %}
# http: `from wit_world.imports import http_types, outgoing_handler`, then
# `outgoing_handler.handle(http_types.OutgoingRequest(http_types.Fields()), None)`
{% endif %}
{% if w.json_schema %}
# json-schema: `from wit_world.imports import json_schema`, then
# `json_schema.validate(schema, instance)`
{% endif %}
{% if w.session_state %}
# session-state: `from wit_world.imports import session_state`, `session_state.get("key")`
{% endif %}
{% if w.task %}
# task: `from wit_world.imports import task`, `task.current()`
{% endif %}
{% if w.tasks %}
# tasks: `from wit_world.imports import tasks`, `tasks.list("{}")`
{% endif %}
{% if w.task_resumption %}
# task-resumption: `from wit_world.imports import task_resumption`, then
# `task_resumption.resume(task_id)`
{% endif %}
{% if w.agent_steps %}
# agent-steps: `from wit_world.imports import agent_steps`, `agent_steps.recorded()`
{% endif %}
{% if w.caller %}
# caller: `from wit_world.imports import caller`, `caller.current().claims`
{% endif %}
{% if w.task_metadata %}
# task-metadata: `from wit_world.imports import task_metadata`, then
# `task_metadata.set(KEY, "1")`
{% endif %}

KEY = "{{ name }}"
{% if w.parameters %}
PARAMETER_SCHEMA = {
    "type": "object",
    "properties": {"greeting": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
{% else %}
PARAMETER_SCHEMA = {"type": "object", "additionalProperties": False}
{% if greets %}
GREETING = "hello"
{% endif %}
{% endif %}
{% if w.parameters and greets %}


def greeting() -> str:
    return config.get("greeting") or "hello"
{% endif %}


class Descriptor:
    # Called once per load, before every other hook: what the extension is.
    def describe(self) -> descriptor.ExtensionDescriptor:
        return descriptor.ExtensionDescriptor(
            uri="{{ uri }}",
            name="{{ name }}",
            version="0.1.0",
            description="Says hello.",
            parameter_schema=json.dumps(PARAMETER_SCHEMA),
            metadata_keys=[KEY],
            depends_on=[],
            grants=[],
            events=descriptor.EventKinds{{ ".ARTIFACT" if h.output or h.response else "(0)" }},
            payload=False,
        )
{% if h.card %}


class Card:
    # Called once per load: fills the extension's own entry on the Agent Card.
    def declare(self) -> card.Declaration:
        params = json.dumps({"greeting": {{ greeting }}})
        return card.Declaration(description=None, params=params)
{% endif %}
{% if h.live_card %}


class LiveCard:
    # Called once per load, and again when the entry's seconds are over: fills the
    # extension's own entry on the Agent Card.
    def declare_live(self) -> live_card.LiveDeclaration:
        params = json.dumps({"greeting": {{ greeting }}})
        return live_card.LiveDeclaration(description=None, params=params, seconds=60)
{% endif %}
{% if h.activation %}


class Activation:
    # Called once per request that names the URI: takes part, stays out, or refuses the
    # request. Without it the extension takes part, and a request is one call cheaper.
    def activate(self, request: Request) -> activation.Decision:
        return activation.Decision.ACTIVE
{% endif %}
{% if h.message %}


class Message:
    # Called once per active request: refuses the message, or replaces parts of it with the
    # grant `rewrite-message`.
    def check(self, request: Request, message: str) -> list[message.Rewrite]:
        if any(part.get("text") == "" for part in json.loads(message)["parts"]):
            violation = Violation("/message/parts", "a text is empty")
            raise Err(Rejection_Violations([violation]))
        return []
{% endif %}
{% if h.state %}


class State:
    # Called once per active request, before the agent runs: returns a change of the
    # session's state, or refuses the request.
    def validate(self, request: Request, metadata: list[MetadataEntry]) -> str | None:
        return next((entry.value for entry in metadata if entry.key == KEY), None)
{% endif %}
{% if h.transition %}


class Transition:
    # Called when a turn begins and for each change of the task's state: lets it happen,
    # lets the task wait, or vetoes it; a change can be annotated.
    def begin(
        self, request: Request, beginning: transition.Beginning
    ) -> transition.Entry:
        return transition.Entry_Proceed()

    def change(self, change: transition.StateChange) -> transition.Ruling:
        return transition.Ruling_Pass()
{% endif %}
{% if h.reply %}


class Reply:
    # Called once per turn, before the agent runs: answers in its place, or lets it run.
    def before_agent(self, request: Request, message: str) -> reply.ReadyAnswer | None:
        if all(part.get("text") != "ping" for part in json.loads(message)["parts"]):
            return None
        return reply.ReadyAnswer(
            outcome=reply.Outcome.COMPLETED,
            parts=[json.dumps({"text": "pong"})],
            artifact="answer",
            metadata=[],
        )
{% endif %}
{% if h.steering %}


class Steering:
    # Called before each call of the model or of a tool, and for each result of a tool:
    # changes it or prevents it. The second value is a remark for the client, or None.
    def before_model(
        self, call: steering.ModelCall
    ) -> tuple[steering.ModelVerdict, steering.Remark | None]:
        return steering.ModelVerdict_Pass(), None

    def before_tool(
        self, call: steering.ToolCall
    ) -> tuple[steering.ToolVerdict, steering.Remark | None]:
        if call.name == "forbidden":
            return steering.ToolVerdict_Deny("this tool is forbidden"), None
        return steering.ToolVerdict_Pass(), None

    def after_tool(
        self, made: steering.ToolResult
    ) -> tuple[str | None, steering.Remark | None]:
        return None, None
{% endif %}
{% if h.output %}


def revised(content: output.Content, revise: Callable[[str], str]) -> output.Verdict:
    """Replaces texts, and keeps everything else of their parts."""
    replacements = []
    for number, part in enumerate(json.loads(content.parts)):
        text = part.get("text", "")
        if revise(text) != text:
            part["text"] = revise(text)
            replacements.append(output.Replacement(number, [json.dumps(part)], None))
    if replacements:
        return output.Verdict_Replace(replacements)
    return output.Verdict_Leave()


class Output:
    # Called for each outgoing event of the kinds that the descriptor names: leaves,
    # replaces, holds back or refuses its content.
    def revise(self, content: output.Content) -> output.Verdict:
        # A chunk may end within a word. With `Verdict_Hold` its text comes again with the
        # next chunk.
        return revised(content, lambda text: text.replace("secret", "******"))
{% endif %}
{% if h.response %}


class Response:
    # Called for each outgoing event of the kinds that the descriptor names: adds metadata
    # under KEY.
    def respond(self, event: response.Event) -> response.Patch | None:
{% if w.logging %}
        # A line of the host's log. `annex test` shows the lines of a case that fails.
        logging.log(logging.Level.INFO, KEY, "said hello")
{% endif %}
{% if counts %}
        value = {
            "greeting": {{ greeting }},
{% if w.keyvalue %}
            "count": atomics.increment(keyvalue.open("context"), "count", 1),
{% endif %}
{% if w.clock %}
            "at": int(time.time()),
{% endif %}
        }
        text = json.dumps(value, separators=(",", ":"))
        return response.Patch(metadata=[(KEY, text)])
{% else %}
        return response.Patch(metadata=[(KEY, json.dumps({{ greeting }}))])
{% endif %}
{% endif %}
{% if h.reads %}


class Reads:
    # Called once per read of a task, and once per page of a list: adds metadata that this
    # reader alone is shown, or leaves tasks out.
    def show(self, request: Request, tasks: list[reads.ShownTask]) -> list[reads.View]:
        return [reads.View_Add([(KEY, json.dumps({{ greeting }}))]) for _ in tasks]
{% endif %}
{% if h.extended_card %}


class ExtendedCard:
    # Called once per read of the extended Agent Card: changes the extension's own entry
    # for this reader alone.
    def show_entry(
        self, request: Request, entry: extended_card.ShownEntry
    ) -> extended_card.EntryChange:
        params = json.dumps({"greeting": {{ greeting }}})
        return extended_card.EntryChange(description=None, params=params)
{% endif %}
{% if h.method %}


class Method:
    # Called once per load, then for each call of a declared method: answers, or refuses.
    # `next` goes on with an answer that is a stream.
    def declare_methods(self) -> list[method.Declaration]:
        return [
            method.Declaration(
                name=f"{KEY}.echo",
                description="Returns its parameters.",
                params_schema=None,
                result_schema=None,
                streams=False,
            )
        ]

    def call(self, request: Request, name: str, params: str) -> method.Answer:
        return method.Answer_Value(params)

    def next(self) -> str | None:
        return None
{% endif %}
{% if h.client %}


class Client:
    # Called on the calling side, before a call and for what comes back: adds to the call or
    # refuses it, and tells the program.
    def before(self, call: client.Outgoing) -> client.Addition:
        return client.Addition(activate=call.declaration is not None, metadata=[])

    def after(self, event: client.Incoming) -> str | None:
        found = (value for key, value in event.metadata if key == KEY)
        return next(found, None) if event.active else None
{% endif %}
