// What the programs in this folder share: how they call an agent, and how they report what they saw.

import assert from "node:assert/strict";

import { Extensions, HTTP_EXTENSION_HEADER } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver } from "@a2a-js/sdk/client";
import { JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { ServiceParameters, withA2AExtensions } from "@a2a-js/sdk/client";

const BINDINGS = ["JSONRPC", "HTTP+JSON"];

/** An agent to be called over one binding. */
export class Agent {
  constructor(card, binding) {
    this.card = card;
    this.binding = binding;
    /** The extensions that it named in the header of its last answer: those that were active. */
    this.echo = [];
  }

  async client(...interceptors) {
    const fetchImpl = async (...call) => {
      const response = await fetch(...call);
      this.echo = Extensions.parseServiceParameter(response.headers.get(HTTP_EXTENSION_HEADER) ?? "").sort();
      return response;
    };
    const overrides = {
      clientConfig: { interceptors },
      preferredTransports: [this.binding],
      transports: [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })],
    };
    const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, overrides);
    const client = await new ClientFactory(options).createFromAgentCard(this.card);
    assert.equal(client.transport.protocolName, this.binding);
    return client;
  }
}

/** Options of a call that activate extensions: the header A2A-Extensions. */
export function activating(...uris) {
  return { serviceParameters: ServiceParameters.create(withA2AExtensions(...uris)) };
}

/** Options of a call that activate one more extension: withA2AExtensions alone replaces those of the caller. */
export function alsoActivating(options, uri) {
  const parameters = options?.serviceParameters;
  const requested = Extensions.parseServiceParameter(parameters?.[HTTP_EXTENSION_HEADER]);
  const all = Extensions.createFrom(requested, uri);
  return { ...options, serviceParameters: ServiceParameters.createFrom(parameters, withA2AExtensions(...all)) };
}

export function textOf(artifact) {
  return artifact.parts.map((part) => part.content.value).join("");
}

/** The error that a call must end with. */
export async function refusalOf(call, kind) {
  const answer = await call.catch((error) => error);
  assert.ok(answer instanceof kind, `no ${kind.name}: ${answer instanceof Error ? answer : JSON.stringify(answer)}`);
  return answer;
}

/** Runs the discovery once and the steps over every binding, and sets the exit code. */
export async function run(discovery, steps) {
  const card = await new DefaultAgentCardResolver().resolve(process.argv[2] ?? "http://127.0.0.1:9999");
  const outcomes = [await report("discovery", discovery(card))];
  for (const binding of BINDINGS) {
    for (const step of steps) {
      outcomes.push(await report(`${step.name} over ${binding}`, step(new Agent(card, binding))));
    }
  }
  const failed = outcomes.filter((passed) => !passed).length;
  console.log(`${outcomes.length - failed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}

/** Runs one step and says what it saw. False when it failed. */
async function report(name, step) {
  try {
    console.log(`ok    ${name}: ${await step}`);
    return true;
  } catch (error) {
    console.log(`FAIL  ${name}`);
    console.error(error);
    return false;
  }
}
