// A2UI over A2A: the hooks. What they check is in incoming.ts and outgoing.ts, by the schemas in schemas.ts.

import type { Card, Client, Descriptor, Message, Response, Violation } from "annex:extension";
import { DATA_MODEL, checkMessage, checkParts } from "./incoming";
import { read } from "./json";
import { CAPABILITIES, Offer, readOffer } from "./offer";
import { checkEvent } from "./outgoing";
import { PARAMETER_SCHEMA, parameters } from "./parameters";
import { SeenSurfaces, Surfaces } from "./surfaces";

const VIOLATIONS = "a2uiViolations";
const MAX_VIOLATIONS = 64;

// One instance serves a turn, so these are the turn's.
let offer: Offer | null = null;
const surfaces = new Surfaces();
const seen = new SeenSurfaces();

function refuse(violations: Violation[]): never {
  throw { tag: "violations", val: violations.slice(0, MAX_VIOLATIONS) };
}

export const descriptor: Descriptor = {
  describe: () => ({
    uri: parameters().uri,
    name: "a2ui",
    version: "0.1.0",
    description: "Provides agent driven UI using the A2UI JSON format.",
    parameterSchema: JSON.stringify(PARAMETER_SCHEMA),
    metadataKeys: [CAPABILITIES, DATA_MODEL, VIOLATIONS],
    dependsOn: [],
    grants: [],
    events: { message: true, status: true, artifact: true },
    payload: true,
  }),
};

export const card: Card = {
  declare() {
    const { supported, acceptsInline } = parameters();
    const params = { supportedCatalogIds: supported, acceptsInlineCatalogs: acceptsInline };
    return { description: null, params: JSON.stringify(params) };
  },
};

export const message: Message = {
  check(request, message) {
    const checked = checkMessage(read(message), parameters());
    if (!(checked instanceof Offer)) refuse(checked);
    offer = checked;
    return [];
  },
};

export const response: Response = {
  respond(event) {
    if (event.payload === null) return null;
    const settings = parameters();
    offer ??= new Offer([], settings);
    const { a2ui, violations } = checkEvent(read(event.payload), offer, surfaces, settings.versions);
    if (!a2ui) return null;
    const [first] = violations;
    // Text: it is the contract's error, and fails the turn before anything of the event leaves.
    if (first && settings.invalid === "fail") throw `${first.pointer}: ${first.message}`;
    surfaces.commit();
    if (!first) return { metadata: [] };
    return { metadata: [[VIOLATIONS, JSON.stringify(violations.slice(0, MAX_VIOLATIONS))]] };
  },
};

export const client: Client = {
  before(call) {
    if (call.declaration === null || call.input === null) return { activate: false, metadata: [] };
    const settings = parameters();
    const key = settings.versions.at(-1)!;
    const value = `{${JSON.stringify(key)}:${call.input}}`;
    const checked = readOffer({ [CAPABILITIES]: read(value) }, settings);
    const wrong = call.message === null ? [] : checkParts(read(call.message), settings.versions);
    if (!(checked instanceof Offer)) refuse([...checked, ...wrong]);
    if (wrong.length > 0) refuse(wrong);
    offer = checked;
    return { activate: true, metadata: [{ location: "message", key: CAPABILITIES, value }] };
  },
  after(event) {
    if (!event.active || offer === null) return null;
    const { violations } = checkEvent(read(event.event), offer, seen, parameters().versions);
    return violations.length > 0 ? JSON.stringify({ violations: violations.slice(0, MAX_VIOLATIONS) }) : null;
  },
};

// An error that a hook throws goes to the log with its stack: the host takes the message alone.
type Hooks = Record<string, any>;
for (const hooks of [descriptor, card, message, response, client] as Hooks[]) {
  for (const [name, hook] of Object.entries(hooks)) {
    hooks[name] = (...values: unknown[]) => {
      try {
        return hook(...values);
      } catch (error) {
        if (error instanceof Error) error.message += `\n${error.stack}`;
        throw error;
      }
    };
  }
}
