// What the client says that it can render: `a2uiClientCapabilities` in the metadata of its message.

import type { Violation } from "annex:extension";
import type { Parameters } from "./parameters";
import { BASIC_CATALOGUE, BASIC_ID, COMMON_TYPES, Catalogue, UNKNOWN_CATALOGUE, checkCapabilities, isObject } from "./schemas";
import type { JsonObject } from "./schemas";

export const CAPABILITIES = "a2uiClientCapabilities";
/** Schemas of a stranger: they are bounded, and refer to nothing but the common types, so that none refers to itself. */
const MAX_INLINE_BYTES = 32 * 1024;
const MAX_INLINE_DEPTH = 32;
/** Objects, lists and all that is in them: a schema takes longer to prepare than to send. */
const MAX_INLINE_VALUES = 800;
/** A component of such a catalogue: each level of it can pass as many levels of schemas, and the stack has an end. */
const MAX_INLINE_COMPONENT_DEPTH = 12;

/** The catalogues that a client offered in a turn. */
export class Offer {
  readonly #ids: Set<string>;
  readonly #inline = new Map<string, Catalogue>();
  readonly #own: JsonObject[];

  constructor(ids: string[], parameters: Parameters) {
    this.#ids = new Set(ids);
    this.#own = parameters.catalogues;
  }

  add(id: string, inline: Catalogue) {
    this.#inline.set(id, inline);
  }

  has(id: string): boolean {
    return this.#ids.has(id) || this.#inline.has(id);
  }

  /** The catalogue of an id. Those of the operator are made when a turn needs them. */
  catalogue(id: string): Catalogue {
    const inline = this.#inline.get(id);
    if (inline) return inline;
    if (id === BASIC_ID) return BASIC_CATALOGUE;
    const document = this.#own.find(({ catalogId }) => catalogId === id);
    if (!document) return UNKNOWN_CATALOGUE;
    const catalogue = new Catalogue(document);
    this.#inline.set(id, catalogue);
    return catalogue;
  }
}

/** Reads the capabilities, or says what is wrong with them. */
export function readOffer(metadata: JsonObject, parameters: Parameters): Offer | Violation[] {
  const at = `/message/metadata/${CAPABILITIES}`;
  const value = metadata[CAPABILITIES];
  if (value === undefined) {
    const message = `there is no ${CAPABILITIES}, which each message has`;
    return parameters.requiresCapabilities ? [{ pointer: "/message/metadata", message }] : new Offer([], parameters);
  }
  const keys = isObject(value) ? parameters.versions.filter((key) => key in value) : [];
  const [best] = keys;
  if (!isObject(value) || best === undefined) {
    return [{ pointer: at, message: `it has none of the versions ${parameters.versions.join(", ")}` }];
  }
  const wrong = keys.flatMap((key) => checkCapabilities(value[key], `${at}/${key}`));
  return wrong.length > 0 ? wrong : offered(value[best] as JsonObject, `${at}/${best}`, parameters);
}

function offered(capabilities: JsonObject, at: string, parameters: Parameters): Offer | Violation[] {
  const ids = capabilities.supportedCatalogIds as string[];
  const inline = (capabilities.inlineCatalogs ?? []) as JsonObject[];
  if (inline.length > 0 && !parameters.acceptsInline) {
    return [{ pointer: `${at}/inlineCatalogs`, message: "this agent accepts no inline catalogues" }];
  }
  if (inline.length === 0 && !ids.some((id) => parameters.supported.includes(id))) {
    const message = `none of them is supported here: ${parameters.supported.join(", ")}`;
    return [{ pointer: `${at}/supportedCatalogIds`, message }];
  }
  if (JSON.stringify(inline).length > MAX_INLINE_BYTES) {
    return [{ pointer: `${at}/inlineCatalogs`, message: `more than ${MAX_INLINE_BYTES} bytes` }];
  }
  if (valuesIn(inline) > MAX_INLINE_VALUES) {
    return [{ pointer: `${at}/inlineCatalogs`, message: `more than ${MAX_INLINE_VALUES} values` }];
  }
  const offer = new Offer(ids, parameters);
  const wrong = inline.flatMap((document, place) => {
    const reason = addInline(offer, document);
    return reason ? [{ pointer: `${at}/inlineCatalogs/${place}`, message: reason }] : [];
  });
  return wrong.length > 0 ? wrong : offer;
}

function valuesIn(value: unknown): number {
  if (typeof value !== "object" || value === null) return 1;
  return Object.values(value).reduce((sum: number, inner) => sum + valuesIn(inner), 1);
}

function addInline(offer: Offer, document: JsonObject): string | null {
  const id = document.catalogId as string;
  if (offer.has(id)) return `${id} is offered already`;
  try {
    restrict(document, MAX_INLINE_DEPTH);
    offer.add(id, new Catalogue(document, MAX_INLINE_COMPONENT_DEPTH));
    return null;
  } catch (error) {
    return `it cannot be used: ${error instanceof Error ? error.message : error}`;
  }
}

/** Takes out `pattern`, whose matching can take any time, and refuses what could not be followed to an end. */
function restrict(value: unknown, depth: number): void {
  if (typeof value !== "object" || value === null) return;
  if (depth === 0) throw new Error(`it is nested more than ${MAX_INLINE_DEPTH} deep`);
  if (isObject(value)) {
    // Where these are names of properties, they have a schema.
    const says = (key: string) => typeof value[key] === "string" || Array.isArray(value[key]);
    if (says("pattern")) delete value.pattern;
    for (const key of ["$id", "id", "$anchor", "$recursiveRef", "$recursiveAnchor"]) {
      if (says(key) || typeof value[key] === "boolean") throw new Error(`${key} is not taken`);
    }
    // The validator keeps the addresses of schemas under such names, and believes those that it finds.
    const hidden = Object.keys(value).find((key) => key.startsWith("__"));
    if (hidden !== undefined) throw new Error(`${hidden} is not taken`);
    if (isObject(value.patternProperties)) throw new Error("patternProperties is not taken");
    const reference = value.$ref;
    if (says("$ref") && !/^(https:\/\/a2ui\.org\/specification\/v0_9\/)?common_types\.json#/.test(String(reference))) {
      throw new Error(`$ref to ${reference}: only ${COMMON_TYPES} is taken`);
    }
  }
  for (const inner of Object.values(value)) restrict(inner, depth - 1);
}
