// The Timestamp extension, version 1: the time at which a message or artifact was made, in its metadata.

import store from "wasi:config/store@0.2.0-rc.1";

const DEFAULT_URI = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";

const PARAMETER_SCHEMA = {
  type: "object",
  properties: {
    uri: { type: "string", minLength: 1, description: "The extension's URI." },
    key: {
      type: "string",
      minLength: 1,
      description: "The metadata key of the stamp: by default the URI without its scheme, and `/timestamp`.",
    },
  },
  additionalProperties: false,
};

const uri = () => store.get("uri") ?? DEFAULT_URI;
const key = () => store.get("key") ?? `${uri().replace(/^.*?:\/\//, "")}/timestamp`;
// The time as JSON, in RFC 3339 with milliseconds.
const now = () => JSON.stringify(new Date());

export const descriptor = {
  describe: () => ({
    uri: uri(),
    name: "timestamp",
    version: "0.1.0",
    description: "Adds the time to the metadata of messages and artifacts.",
    parameterSchema: JSON.stringify(PARAMETER_SCHEMA),
    metadataKeys: [key()],
    dependsOn: [],
    grants: [],
    events: { message: true, status: true, artifact: true },
    payload: false,
  }),
};

export const response = {
  // Stamps a message, an artifact, or a status with a message on it. A stamp that is there already stays.
  respond(event) {
    const isStampable = event.kind !== "status" || event.hasMessage;
    return isStampable && !event.present.includes(key()) ? { metadata: [[key(), now()]] } : null;
  },
};

export const client = {
  // Stamps what the client sends, when the agent knows stamps.
  before(call) {
    if (call.message === null || call.declaration === null) return { activate: false, metadata: [] };
    return { activate: true, metadata: [{ location: "message", key: key(), value: now() }] };
  },

  // The last stamp on what came back, for the program.
  after: (event) => (event.active ? (event.metadata.at(-1)?.[1] ?? null) : null),
};
