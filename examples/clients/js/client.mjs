// Sends session state to an A2A agent with the official JavaScript SDK.
//
//     node client.mjs [URL]        # default: http://127.0.0.1:9999
//
// Short programs, to be read in this order. Each checks what the agent answered, over JSON-RPC and over HTTP+JSON.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { ListTasksRequest, SendMessageRequest, TaskState, taskStateToJSON } from "@a2a-js/sdk";
import { ExtensionSupportRequiredError, RequestMalformedError, TaskNotCancelableError } from "@a2a-js/sdk/errors";
import { TaskNotFoundError, UnsupportedOperationError } from "@a2a-js/sdk/errors";

import { activating, alsoActivating, refusalOf, run, textOf } from "./calls.mjs";

// The URI names the extension. The key, which has no scheme, says where in the metadata the state lies.
const URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";
const STATE_FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state";
const TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";

const STATE = { user_info: { name: "Ada Lovelace", role: "AI Specialist", email: "ada@example.com" } };
const QUESTION = "Who am I and what is my email?";
const SLOW_QUESTION = "Tell me a story";

/** Activates the extension and adds the state in every call of a client that sends a message. */
class StateInjection {
  constructor(state) {
    this.state = state;
  }

  async before(args) {
    const message = args.input.value?.message;
    if (!message) return;
    args.options = alsoActivating(args.options, URI);
    message.metadata = { ...message.metadata, [STATE_FIELD]: this.state };
  }

  async after() {}
}

function request(text, { state, contextId } = {}) {
  const metadata = state && { [STATE_FIELD]: state };
  const message = { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text }], contextId, metadata };
  return SendMessageRequest.fromJSON({ message });
}

/** What an event of a stream is: a task, an artifact, or the state that the task is in now. */
function nameOf({ payload }) {
  if (payload.$case !== "statusUpdate") return payload.$case.replace("Update", "");
  return taskStateToJSON(payload.value.status.state).replace("TASK_STATE_", "");
}

async function namesOf(stream) {
  const names = [];
  for await (const event of stream) names.push(nameOf(event));
  return names;
}

/** The agent knows the user, says which extensions took part, and returns the state after the turn. */
function checkAnswer(artifact, extensions = [URI]) {
  const text = textOf(artifact);
  assert.ok(text.includes(STATE.user_info.name) && text.includes(STATE.user_info.email), text);
  assert.deepEqual([...artifact.extensions].sort(), [...extensions].sort());
  assert.deepEqual(artifact.metadata[STATE_FIELD], { ...STATE, last_answer: text });
}

/** The card says whether the agent has the extension, insists on it, and what the state must look like. */
async function discovery(card) {
  const extension = card.capabilities.extensions.find(({ uri }) => uri === URI);
  assert.ok(extension, "the agent does not have the extension");
  assert.ok(extension.required, "the agent does not insist on it");
  const schema = extension.params.state_schema;
  assert.deepEqual(schema.required, ["user_info"]);
  return JSON.stringify(schema.properties.user_info.properties);
}

/** State in the metadata activates nothing, and a required extension that is not active is an error. */
async function naiveCall(agent) {
  const client = await agent.client();
  await refusalOf(client.sendMessageStream(request(QUESTION, { state: STATE })).next(), ExtensionSupportRequiredError);
  const call = client.sendMessage(request(QUESTION, { state: STATE }));
  const error = await refusalOf(call, ExtensionSupportRequiredError);
  // The details are a list over JSON-RPC; over HTTP+JSON the error itself has the fields of the first.
  const info = error.data?.find((detail) => detail.reason === "EXTENSION_SUPPORT_REQUIRED") ?? error;
  assert.ok(info.metadata.extensions.includes(URI), error);
  return `refused: ${error.message}`;
}

/** One call: the URI in the service parameters, the state in the metadata of the message. */
async function explicitActivation(agent) {
  const client = await agent.client();
  const task = await client.sendMessage(request(QUESTION, { state: STATE }), activating(URI));
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  const [artifact] = task.artifacts;
  checkAnswer(artifact);
  return `${textOf(artifact)} State returned: ${Object.keys(artifact.metadata[STATE_FIELD]).join(", ")}`;
}

/** Every call: the caller sends text only, and may activate other extensions beside this one. */
async function interceptor(agent) {
  const client = await agent.client(new StateInjection(STATE));
  const first = await client.sendMessage(request(QUESTION));
  checkAnswer(first.artifacts[0]);

  const { contextId } = first;
  const second = await client.sendMessage(request(QUESTION, { contextId }), activating(TIMESTAMP));
  assert.equal(second.contextId, contextId);
  checkAnswer(second.artifacts[0], [URI, TIMESTAMP]);
  return `two turns in context ${contextId}, the second with ${second.artifacts[0].extensions.length} extensions`;
}

/** The same as a stream: the task, its states, the artifact as soon as there is one. */
async function streaming(agent) {
  const client = await agent.client(new StateInjection(STATE));
  const seen = [];
  for await (const event of client.sendMessageStream(request(QUESTION), activating(TIMESTAMP))) {
    seen.push(nameOf(event));
    if (event.payload.$case === "artifactUpdate") checkAnswer(event.payload.value.artifact, [URI, TIMESTAMP]);
  }
  assert.deepEqual(seen, ["task", "WORKING", "artifact", "COMPLETED"]);
  return seen.join(" → ");
}

/** State that violates the schema is refused before a task exists. The error says where it is wrong. */
async function invalidState(agent) {
  const client = await agent.client();
  const state = { user_info: { ...STATE.user_info, email: "not an address" } };
  const call = client.sendMessage(request(QUESTION, { state }), activating(URI));
  const error = await refusalOf(call, RequestMalformedError);
  assert.ok(error.message.includes("/user_info/email"), error.message);
  if (agent.binding === "JSONRPC") {
    // Over HTTP+JSON the answer has the violations one by one too, but this SDK keeps only the message.
    const { fieldViolations } = error.data.find((detail) => detail.fieldViolations);
    assert.equal(fieldViolations.length, 1);
    assert.ok(fieldViolations[0].field.endsWith("/user_info/email"), fieldViolations[0].field);
  }
  return `refused: ${error.message}`;
}

/** A task that is over can be read and listed, and neither cancelled nor subscribed to. */
async function finishedTask(agent) {
  const client = await agent.client(new StateInjection(STATE));
  const { id, contextId } = await client.sendMessage(request(QUESTION));
  const read = await client.getTask({ id });
  assert.equal(read.status.state, TaskState.TASK_STATE_COMPLETED);
  checkAnswer(read.artifacts[0]);
  const { tasks } = await client.listTasks(ListTasksRequest.fromJSON({ contextId, includeArtifacts: true }));
  assert.equal(tasks.length, 1);
  assert.deepEqual([tasks[0].id, tasks[0].artifacts], [id, read.artifacts]);

  await refusalOf(client.cancelTask({ id }), TaskNotCancelableError);
  await refusalOf(client.resubscribeTask({ id }).next(), UnsupportedOperationError);
  await refusalOf(client.getTask({ id: randomUUID() }), TaskNotFoundError);
  return `task ${id} read, ${tasks.length} listed`;
}

/** A task that runs can be followed by a second reader, and cancelled: both streams end with that. */
async function runningTask(agent) {
  const client = await agent.client(new StateInjection(STATE));
  const firstReader = client.sendMessageStream(request(SLOW_QUESTION));
  const { id } = (await firstReader.next()).value.payload.value;
  const secondReader = client.resubscribeTask({ id });
  const seen = [nameOf((await secondReader.next()).value)];
  await client.cancelTask({ id });
  seen.push(...(await namesOf(secondReader)));
  const rest = await namesOf(firstReader);
  assert.deepEqual([seen[0], seen.at(-1), rest.at(-1)], ["task", "CANCELED", "CANCELED"]);
  return seen.join(" → ");
}

const steps = [naiveCall, explicitActivation, interceptor, streaming, invalidState, finishedTask, runningTask];
await run(discovery, steps);
