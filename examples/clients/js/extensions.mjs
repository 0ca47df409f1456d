// Uses extensions that other people published, from the official JavaScript SDK: Timestamp, Traceability, Secure
// Passport.
//
//     node extensions.mjs [URL]        # default: http://127.0.0.1:9999
//
// Short programs, to be read in this order. Each checks what the agent answered, over JSON-RPC and over HTTP+JSON.

import assert from "node:assert/strict";
import { createHmac, randomUUID } from "node:crypto";

import { SendMessageRequest, TaskState } from "@a2a-js/sdk";
import { RequestMalformedError } from "@a2a-js/sdk/errors";

import { activating, alsoActivating, refusalOf, run, textOf } from "./calls.mjs";

const TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";
const TIMESTAMP_FIELD = "github.com/a2aproject/a2a-samples/extensions/timestamp/v1/timestamp";
const TRACEABILITY = "https://github.com/a2aproject/a2a-samples/extensions/traceability/v1";
const TRACE_FIELD = "github.com/a2aproject/a2a-samples/extensions/traceability/v1/traceability";
// Both the URI and the key of the metadata.
const PASSPORT = "https://github.com/a2aproject/a2a-samples/tree/main/samples/python/extensions/secure-passport";
const UNKNOWN = "https://example.com/extensions/unknown/v1";

// A client that the agent knows, with the demonstration key in examples/catalogue/orchestrator.key.
const CLIENT_ID = "a2a://orchestrator.example.com";
const KEY = "a-demonstration-is-no-secret";
const STATE = { loyalty_tier: "Gold", user_preferred_currency: "EUR" };
const QUESTION = "Who am I?";
const RFC_3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/** The canonical form of a JSON value, RFC 8785: members in order, numbers and texts as JavaScript writes them. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`);
  return `{${members.join(",")}}`;
}

/** A passport signed with HMAC-SHA256. */
function passport(state, key = KEY) {
  const claims = { clientId: CLIENT_ID, state };
  return { ...claims, signature: createHmac("sha256", key).update(canonical(claims)).digest("base64url") };
}

/** Shows a signed passport in every call of a client that sends a message. */
class SecurePassport {
  constructor(state) {
    this.passport = passport(state);
  }

  async before(args) {
    const message = args.input.value?.message;
    if (!message) return;
    args.options = alsoActivating(args.options, PASSPORT);
    message.metadata = { ...message.metadata, [PASSPORT]: this.passport };
  }

  async after() {}
}

function request(shown) {
  const metadata = shown && { [PASSPORT]: shown };
  const message = { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text: QUESTION }], metadata };
  return SendMessageRequest.fromJSON({ message });
}

/** The artifact of a task that went well and has one. */
function theArtifact(task) {
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal(task.artifacts.length, 1);
  return task.artifacts[0];
}

/** Milliseconds since 1970 of a time in RFC 3339. Without a zone it is none. */
function moment(text) {
  assert.match(text, RFC_3339);
  return Date.parse(text);
}

/** A ResponseTrace: what the agent did, step by step. */
function checkTrace(trace, taskId) {
  assert.deepEqual(Object.keys(trace).sort(), ["steps", "trace_id"]);
  assert.equal(trace.trace_id, taskId);
  assert.ok(trace.steps.length, "the agent asked a model, so there is a step");
  for (const step of trace.steps) {
    assert.ok(step.step_id);
    assert.deepEqual([step.trace_id, step.call_type], [taskId, "TOOL"]);
    assert.ok(step.step_action.tool_invocation.tool_name);
    assert.ok(moment(step.start_time) <= moment(step.end_time), JSON.stringify(step));
    assert.ok(step.latency >= 0, JSON.stringify(step));
  }
}

/** The card says which extensions there are, insists on none, and which state a passport may have. */
async function discovery(card) {
  const declared = new Map(card.capabilities.extensions.map((extension) => [extension.uri, extension]));
  for (const uri of [TIMESTAMP, TRACEABILITY, PASSPORT]) {
    assert.ok(declared.has(uri), `the agent does not have ${uri}`);
    assert.ok(!declared.get(uri).required, `the agent insists on ${uri}`);
  }
  const { supportedStateKeys } = declared.get(PASSPORT).params;
  assert.ok(Object.keys(STATE).every((key) => supportedStateKeys.includes(key)), supportedStateKeys.join());
  return `a passport may have ${supportedStateKeys.join(", ")}`;
}

/** What is not activated adds nothing and reads nothing, whatever stands in the metadata. */
async function notActivated(agent) {
  const client = await agent.client();
  const artifact = theArtifact(await client.sendMessage(request(passport(STATE))));
  assert.deepEqual(agent.echo, []);
  assert.deepEqual([artifact.extensions, artifact.metadata ?? {}], [[], {}]);
  assert.ok(!textOf(artifact).includes(CLIENT_ID), textOf(artifact));
  return "no header, no metadata";
}

/** Whatever the agent makes has the time on it, in the finished task and in a stream. */
async function timestamp(agent) {
  const client = await agent.client();
  const artifact = theArtifact(await client.sendMessage(request(), activating(TIMESTAMP)));
  const stamp = artifact.metadata[TIMESTAMP_FIELD];
  moment(stamp);
  assert.deepEqual([artifact.extensions, agent.echo], [[TIMESTAMP], [TIMESTAMP]]);

  const streamed = [];
  for await (const { payload } of client.sendMessageStream(request(), activating(TIMESTAMP))) {
    if (payload.$case === "artifactUpdate") streamed.push(payload.value.artifact.metadata[TIMESTAMP_FIELD]);
  }
  assert.deepEqual([streamed.length, agent.echo], [1, [TIMESTAMP]]);
  moment(streamed[0]);
  return stamp;
}

/** The answer says how it came about. */
async function traceability(agent) {
  const client = await agent.client();
  const task = await client.sendMessage(request(), activating(TRACEABILITY));
  const artifact = theArtifact(task);
  assert.deepEqual([artifact.extensions, agent.echo], [[TRACEABILITY], [TRACEABILITY]]);
  const trace = artifact.metadata[TRACE_FIELD];
  checkTrace(trace, task.id);
  return `it called ${trace.steps.map((step) => step.step_action.tool_invocation.tool_name).join(", ")}`;
}

/** The agent believes what the client signed, and answers from it. */
async function signedPassport(agent) {
  const client = await agent.client(new SecurePassport(STATE));
  const text = textOf(theArtifact(await client.sendMessage(request())));
  assert.deepEqual(agent.echo, [PASSPORT]);
  assert.ok(text.includes(CLIENT_ID), text);
  return text;
}

/** A passport that was changed after it was signed, or signed with another key, is refused. */
async function forgedPassport(agent) {
  const client = await agent.client();
  const changed = { ...passport(STATE), state: { ...STATE, loyalty_tier: "Platinum" } };
  const messages = [];
  for (const forged of [changed, passport(STATE, "a-key-that-is-not-the-client's")]) {
    const plain = client.sendMessage(request(forged), activating(PASSPORT));
    messages.push((await refusalOf(plain, RequestMalformedError)).message);
    const stream = client.sendMessageStream(request(forged), activating(PASSPORT));
    messages.push((await refusalOf(stream.next(), RequestMalformedError)).message);
  }
  assert.ok(messages.every((message) => message.includes("/signature")), messages.join("\n"));
  return `refused: ${messages[0]}`;
}

/** One call may activate many. The header names those that the agent has. */
async function together(agent) {
  const client = await agent.client(new SecurePassport(STATE));
  const task = await client.sendMessage(request(), activating(TRACEABILITY, UNKNOWN, TIMESTAMP));
  assert.deepEqual(agent.echo, [TIMESTAMP, TRACEABILITY, PASSPORT].sort());
  const artifact = theArtifact(task);
  assert.ok(textOf(artifact).includes(CLIENT_ID), textOf(artifact));
  moment(artifact.metadata[TIMESTAMP_FIELD]);
  checkTrace(artifact.metadata[TRACE_FIELD], task.id);
  return `${agent.echo.length} of 4 active`;
}

await run(discovery, [notActivated, timestamp, traceability, signedPassport, forgedPassport, together]);
