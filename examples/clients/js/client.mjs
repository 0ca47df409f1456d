// Sends session state to an A2A agent with the official JavaScript SDK.
//
//     node client.mjs [URL]        # default: http://127.0.0.1:9999
//
// Six short programs, to be read in this order. Each checks what the agent answered.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { Extensions, HTTP_EXTENSION_HEADER, SendMessageRequest, TaskState, taskStateToJSON } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver } from "@a2a-js/sdk/client";
import { ServiceParameters, withA2AExtensions } from "@a2a-js/sdk/client";
import { ExtensionSupportRequiredError, RequestMalformedError } from "@a2a-js/sdk/errors";

// The URI names the extension. The key, which has no scheme, says where in the metadata the state lies.
const URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";
const STATE_FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state";
const TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";

const INVALID_PARAMS = -32602;
const STATE = { user_info: { name: "Ada Lovelace", role: "AI Specialist", email: "ada@example.com" } };
const QUESTION = "Who am I and what is my email?";

/** Activates the extension and adds the state in every call of a client that sends a message. */
class StateInjection {
  constructor(state) {
    this.state = state;
  }

  async before(args) {
    const message = args.input.value?.message;
    if (!message) return;
    // Add to what the caller asked for: withA2AExtensions alone replaces the caller's list.
    const parameters = args.options?.serviceParameters;
    const requested = Extensions.parseServiceParameter(parameters?.[HTTP_EXTENSION_HEADER]);
    const all = Extensions.createFrom(requested, URI);
    const serviceParameters = ServiceParameters.createFrom(parameters, withA2AExtensions(...all));
    args.options = { ...args.options, serviceParameters };
    message.metadata = { ...message.metadata, [STATE_FIELD]: this.state };
  }

  async after() {}
}

/** Options of a call that activate extensions: the header A2A-Extensions. */
function activating(...uris) {
  return { serviceParameters: ServiceParameters.create(withA2AExtensions(...uris)) };
}

function request(text, { state, contextId } = {}) {
  const metadata = state && { [STATE_FIELD]: state };
  const message = { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text }], contextId, metadata };
  return SendMessageRequest.fromJSON({ message });
}

function clientOf(card, ...interceptors) {
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { clientConfig: { interceptors } });
  return new ClientFactory(options).createFromAgentCard(card);
}

function textOf(artifact) {
  return artifact.parts.map((part) => part.content.value).join("");
}

/** The agent knows the user, says which extensions took part, and returns the state after the turn. */
function checkAnswer(artifact, extensions = [URI]) {
  const text = textOf(artifact);
  assert.ok(text.includes(STATE.user_info.name) && text.includes(STATE.user_info.email), text);
  assert.deepEqual([...artifact.extensions].sort(), [...extensions].sort());
  assert.deepEqual(artifact.metadata[STATE_FIELD], { ...STATE, last_answer: text });
}

/** The error that a call must end with. */
async function refusalOf(call) {
  const answer = await call.catch((error) => error);
  assert.ok(answer instanceof Error, `accepted: ${JSON.stringify(answer)}`);
  return answer;
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
async function naiveCall(card) {
  const client = await clientOf(card);
  const error = await refusalOf(client.sendMessage(request(QUESTION, { state: STATE })));
  assert.ok(error instanceof ExtensionSupportRequiredError, error);
  const info = error.data.find((detail) => detail.reason === "EXTENSION_SUPPORT_REQUIRED");
  assert.ok(info.metadata.extensions.includes(URI), error.data);
  return `refused: ${error.message}`;
}

/** One call: the URI in the service parameters, the state in the metadata of the message. */
async function explicitActivation(card) {
  const client = await clientOf(card);
  const task = await client.sendMessage(request(QUESTION, { state: STATE }), activating(URI));
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  const [artifact] = task.artifacts;
  checkAnswer(artifact);
  return `${textOf(artifact)} State returned: ${Object.keys(artifact.metadata[STATE_FIELD]).join(", ")}`;
}

/** Every call: the caller sends text only, and may activate other extensions beside this one. */
async function interceptor(card) {
  const client = await clientOf(card, new StateInjection(STATE));
  const first = await client.sendMessage(request(QUESTION));
  checkAnswer(first.artifacts[0]);

  const { contextId } = first;
  const second = await client.sendMessage(request(QUESTION, { contextId }), activating(TIMESTAMP));
  assert.equal(second.contextId, contextId);
  checkAnswer(second.artifacts[0], [URI, TIMESTAMP]);
  return `two turns in context ${contextId}, the second with ${second.artifacts[0].extensions.length} extensions`;
}

/** The same as a stream: the task, its states, the artifact as soon as there is one. */
async function streaming(card) {
  const client = await clientOf(card, new StateInjection(STATE));
  const seen = [];
  for await (const { payload } of client.sendMessageStream(request(QUESTION))) {
    if (payload.$case === "task") {
      seen.push("task");
    } else if (payload.$case === "statusUpdate") {
      seen.push(taskStateToJSON(payload.value.status.state).replace("TASK_STATE_", ""));
    } else if (payload.$case === "artifactUpdate") {
      seen.push("artifact");
      checkAnswer(payload.value.artifact);
    }
  }
  assert.deepEqual(seen, ["task", "WORKING", "artifact", "COMPLETED"]);
  return seen.join(" → ");
}

/** State that violates the schema is refused before a task exists. The error says where it is wrong. */
async function invalidState(card) {
  const client = await clientOf(card);
  const state = { user_info: { ...STATE.user_info, email: "not an address" } };
  const error = await refusalOf(client.sendMessage(request(QUESTION, { state }), activating(URI)));
  assert.ok(error instanceof RequestMalformedError, error);
  assert.equal(error.envelopeCode, INVALID_PARAMS);
  const { fieldViolations } = error.data.find((detail) => detail.fieldViolations);
  assert.equal(fieldViolations.length, 1);
  assert.ok(fieldViolations[0].field.endsWith("/user_info/email"), fieldViolations[0].field);
  return `refused: ${fieldViolations[0].field}: ${fieldViolations[0].description}`;
}

const url = process.argv[2] ?? "http://127.0.0.1:9999";
const card = await new DefaultAgentCardResolver().resolve(url);
const steps = [discovery, naiveCall, explicitActivation, interceptor, streaming, invalidState];
let failed = 0;
for (const step of steps) {
  try {
    console.log(`ok    ${step.name}: ${await step(card)}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${step.name}`);
    console.error(error);
  }
}
console.log(`${steps.length - failed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
