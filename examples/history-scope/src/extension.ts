// LangGraph's history scope, as far as an extension can have it. A client says
// whether the history of a task is that of the task alone or that of the whole
// context. Annex always shows the history of the task, so `task` is accepted, and
// `context` is refused or answered with a note, as the operator says.

import type { Card, Descriptor, Message, Response } from "annex:extension";
import caller from "annex:extension/caller@0.1.0";
import config from "wasi:config/store@0.2.0-rc.1";
import logging from "wasi:logging/logging@0.1.0-draft";

const URI = "https://langchain.com/a2a/extensions/history-scope/v1";
const HEADER = "LangGraph-A2A-History-Scope";
// The metadata key of the answer. The published extension has none.
const KEY = "historyScope";
const PARAMETER_SCHEMA = {
  type: "object",
  properties: {
    context: {
      enum: ["refuse", "note"],
      description:
        "What happens to a client that wants the history of the context: the message is refused, or the answer says that the history is that of the task; refuse.",
    },
  },
  additionalProperties: false,
};

// Whether this turn's answer says which history it has. An instance serves one turn.
let isNoted = false;

function refuse(reason: string): never {
  throw {
    tag: "violations",
    val: [{ pointer: `/headers/${HEADER}`, message: reason }],
  };
}

// Called once per load, before every other hook: what the extension is.
export const descriptor: Descriptor = {
  describe: () => ({
    uri: URI,
    name: "history-scope",
    version: "0.1.0",
    description: "Choose task-only or full-context response history",
    parameterSchema: JSON.stringify(PARAMETER_SCHEMA),
    metadataKeys: [KEY],
    dependsOn: [],
    grants: [],
    events: { message: true, status: false, artifact: true },
    payload: false,
  }),
};

// Called once per load: the entry on the card, with what the agent really does.
export const card: Card = {
  declare: () => ({
    description: null,
    params: JSON.stringify({
      header: HEADER,
      values: ["task"],
      default: "task",
      methods: ["SendMessage"],
    }),
  }),
};

// Called once per active request: reads the header field that the grant shows.
export const message: Message = {
  check(request, message) {
    isNoted = false;
    const { headers } = caller.current();
    const sent = headers.filter(([name]) => name === HEADER.toLowerCase());
    const scopes = new Set(sent.map(([, value]) => value.trim()));
    if (scopes.size > 1) refuse("is there more than once");
    for (const scope of scopes) {
      if (scope === "task") continue;
      if (scope !== "context") {
        refuse("historyScope must be 'context' or 'task'");
      }
      if (config.get("context") !== "note") {
        refuse("this agent has the history of the task alone: send task");
      }
      logging.log("info", KEY, "the client wants the history of the context");
      isNoted = true;
    }
    return [];
  },
};

// Called for each message and artifact: says which history the answer has.
export const response: Response = {
  respond: (event) =>
    isNoted ? { metadata: [[KEY, JSON.stringify("task")]] } : null,
};
