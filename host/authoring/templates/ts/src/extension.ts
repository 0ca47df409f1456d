{% set counts = w.keyvalue or w.clock %}
{% set greeting = "greeting()" if w.parameters else "GREETING" %}
{% set ns = namespace(names=[]) %}
{% for pair in [["Activation", h.activation], ["Card", h.card], ["Client", h.client], ["Descriptor", true], ["Message", h.message], ["Method", h.method], ["Response", h.response], ["State", h.state], ["Transition", h.transition]] if pair[1] %}
{% set ns.names = ns.names + [pair[0]] %}
{% endfor %}
// Says hello. Each export is a hook. JSON crosses the boundary as text, and an
// option that is empty is `null`. An error of the contract is thrown.

{% if ns.names | join(", ") | length <= 40 %}
import type { {{- " " ~ ns.names | join(", ") ~ " " -}} } from "annex:extension";
{% else %}
import type {
{% for name in ns.names %}
  {{ name }},
{% endfor %}
} from "annex:extension";
{% endif %}
{% if w.parameters %}
{{ "" if h.card or h.response else "// " }}import config from "wasi:config/store@0.2.0-rc.1";
{% endif %}
{% if w.keyvalue %}
{{ "" if h.response else "// " }}import keyvalue from "wasi:keyvalue/store@0.2.0-draft";
{{ "" if h.response else "// " }}import atomics from "wasi:keyvalue/atomics@0.2.0-draft";
{% endif %}
{% if w.logging %}
import logging from "wasi:logging/logging@0.1.0-draft";
{% endif %}
{% if w.random %}
// import random from "wasi:random/random@0.2.12";
{% endif %}
{% if w.http %}
// import http from "wasi:http/outgoing-handler@0.2.12";
{% endif %}
{% if w.json_schema %}
// import jsonSchema from "annex:extension/json-schema@0.1.0";
{% endif %}
{% if w.session_state %}
// import sessionState from "annex:extension/session-state@0.1.0";
{% endif %}
{% if w.task %}
// import task from "annex:extension/task@0.1.0";
{% endif %}
{% if w.tasks %}
// import tasks from "annex:extension/tasks@0.1.0";
{% endif %}
{% if w.task_resumption %}
// import taskResumption from "annex:extension/task-resumption@0.1.0";
{% endif %}
{% if w.agent_steps %}
// import agentSteps from "annex:extension/agent-steps@0.1.0";
{% endif %}

const KEY = "{{ name }}";
{% if w.parameters %}
const PARAMETER_SCHEMA = {
  type: "object",
  properties: { greeting: { type: "string", minLength: 1 } },
  additionalProperties: false,
};
{% else %}
const PARAMETER_SCHEMA = { type: "object", additionalProperties: false };
{% endif %}
{% if h.card or h.response %}
{% if w.parameters %}

const greeting = () => config.get("greeting") ?? "hello";
{% else %}
const GREETING = "hello";
{% endif %}
{% endif %}
{% if w.logging %}

// `console` writes to the host's log, line by line. `annex test` shows the lines
// of a case that fails.
function shown(value: unknown) {
  if (value instanceof Error) return `${value.message}\n${value.stack}`;
  return typeof value === "string" ? value : JSON.stringify(value);
}
const write =
  (level: "debug" | "info" | "warn" | "error") =>
  (...values: unknown[]) => {
    for (const line of values.map(shown).join(" ").split("\n")) {
      if (line !== "") logging.log(level, KEY, line);
    }
  };
globalThis.console = {
  debug: write("debug"),
  log: write("info"),
  info: write("info"),
  warn: write("warn"),
  error: write("error"),
};
{% endif %}

// Called once per load, before every other hook: what the extension is.
export const descriptor: Descriptor = {
  describe: () => ({
    uri: "{{ uri }}",
    name: "{{ name }}",
    version: "0.1.0",
    description: "Says hello.",
    parameterSchema: JSON.stringify(PARAMETER_SCHEMA),
    metadataKeys: [KEY],
    dependsOn: [],
    grants: [],
    events: { message: false, status: false, artifact: {{ "true" if h.response else "false" }} },
    payload: false,
  }),
};
{% if h.card %}

// Called once per load: fills the extension's own entry on the Agent Card.
export const card: Card = {
  declare: () => ({
    description: null,
    params: JSON.stringify({ greeting: {{ greeting }} }),
  }),
};
{% endif %}
{% if h.activation %}

// Called once per request that names the URI: takes part, stays out
// ("inactive"), or refuses the request. Without it the extension takes
// part, and a request is one call cheaper.
export const activation: Activation = {
  activate: (request) => "active",
};
{% endif %}
{% if h.message %}

// Called once per active request: refuses the message, or replaces parts of it
// with the grant `rewrite-message`.
export const message: Message = {
  check(request, message) {
    const { parts }: { parts: { text?: string }[] } = JSON.parse(message);
    if (parts.some((part) => part.text === "")) {
      const violation = {
        pointer: "/message/parts",
        message: "a text is empty",
      };
      throw { tag: "violations", val: [violation] };
    }
    return [];
  },
};
{% endif %}
{% if h.state %}

// Called once per active request, before the agent runs: returns a change of
// the session's state, or refuses the request.
export const state: State = {
  validate: (request, metadata) =>
    metadata.find((entry) => entry.key === KEY)?.value ?? null,
};
{% endif %}
{% if h.transition %}

// Called when a turn begins and for each change of the task's state: lets it
// happen, lets the task wait, or vetoes it; a change can be annotated.
export const transition: Transition = {
  begin: (request, beginning) => ({ tag: "proceed" }),
  change: (change) => ({ tag: "pass" }),
};
{% endif %}
{% if h.response %}

// Called for each outgoing event of the kinds that the descriptor names: adds
// metadata under KEY.
export const response: Response = {
  respond(event) {
{% if w.logging %}
    console.log("said hello");
{% endif %}
{% if counts %}
    const value = {
      greeting: {{ greeting }},
{% if w.keyvalue %}
      count: atomics.increment(keyvalue.open("context"), "count", 1),
{% endif %}
{% if w.clock %}
      at: Math.floor(Date.now() / 1000),
{% endif %}
    };
    return { metadata: [[KEY, JSON.stringify(value)]] };
{% else %}
    return { metadata: [[KEY, JSON.stringify({{ greeting }})]] };
{% endif %}
  },
};
{% endif %}
{% if h.method %}

// Called once per load, then for each call of a declared method: answers, or
// refuses. `next` goes on with an answer that is a stream.
export const method: Method = {
  declareMethods: () => [
    {
      name: `${KEY}.echo`,
      description: "Returns its parameters.",
      paramsSchema: null,
      resultSchema: null,
      streams: false,
    },
  ],
  call: (request, name, params) => ({ tag: "value", val: params }),
  next: () => null,
};
{% endif %}
{% if h.client %}

// Called on the calling side, before a call and for what comes back: adds to the
// call or refuses it, and tells the program.
export const client: Client = {
  before: (call) => ({ activate: call.declaration !== null, metadata: [] }),
  after(event) {
    const entry = event.metadata.find(([key]) => key === KEY);
    return event.active && entry ? entry[1] : null;
  },
};
{% endif %}

// An error that a hook throws, and that is none of the contract, goes to the log
// with its stack. While the extension is loaded the host shows the message alone,
// so the stack becomes a part of it then.
type Hooks = Record<string, any>;
{% set traced = ["descriptor"] + (["card"] if h.card else []) + (["activation"] if h.activation else []) + (["message"] if h.message else []) + (["state"] if h.state else []) + (["transition"] if h.transition else []) + (["response"] if h.response else []) + (["method"] if h.method else []) + (["client"] if h.client else []) %}
{% if w.logging %}
const loading = [descriptor{{ ", card" if h.card }}] as Hooks[];
{% endif %}
{% if traced | join(", ") | length <= 44 %}
for (const hooks of [{{ traced | join(", ") }}] as Hooks[]) {
{% else %}
for (const hooks of [
{% for name in traced %}
  {{ name }},
{% endfor %}
] as Hooks[]) {
{% endif %}
  for (const [name, hook] of Object.entries(hooks)) {
    hooks[name] = (...values: unknown[]) => {
      try {
        return hook(...values);
      } catch (error) {
{% if w.logging %}
        if (error instanceof Error) {
          if (loading.includes(hooks)) error.message += `\n${error.stack}`;
          else console.error(error);
        }
{% else %}
        if (error instanceof Error) error.message += `\n${error.stack}`;
{% endif %}
        throw error;
      }
    };
  }
}
