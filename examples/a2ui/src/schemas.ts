// The schemas of A2UI 0.9, out of the npm package @a2ui/web_core. What is done here at the top level is part of the
// component's snapshot: no turn pays for it.

import "./url";
import { dereference, schemaMapKeyword, validate } from "@cfworker/json-schema";
import type { OutputUnit, Schema } from "@cfworker/json-schema";
import type { Violation } from "annex:extension";
import basic from "../node_modules/@a2ui/web_core/src/v0_9/schemas/catalogs/basic/catalog.json";
import capabilities from "../node_modules/@a2ui/web_core/src/v0_9/schemas/client_capabilities.json";
import dataModel from "../node_modules/@a2ui/web_core/src/v0_9/schemas/client_data_model.json";
import toServer from "../node_modules/@a2ui/web_core/src/v0_9/schemas/client_to_server.json";
import commonTypes from "../node_modules/@a2ui/web_core/src/v0_9/schemas/common_types.json";
import toClient from "../node_modules/@a2ui/web_core/src/v0_9/schemas/server_to_client.json";

export type JsonObject = Record<string, unknown>;
type Lookup = Record<string, Schema | boolean>;

/** A component may be nested this deep: schemas recurse where calls are arguments of calls. */
const MAX_DEPTH = 24;
const BASE = "https://a2ui.org/specification/v0_9/";
const BASIC = basic as Schema;

export const BASIC_ID: string = basic.catalogId;
export const COMMON_TYPES = `${BASE}common_types.json`;

// Names of components and functions are names, as those of `properties` are: `required` is a function.
schemaMapKeyword.components = true;
schemaMapKeyword.functions = true;

const SERVER_MESSAGES = {
  createSurface: toClient.$defs.CreateSurfaceMessage.properties.createSurface,
  updateComponents: toClient.$defs.UpdateComponentsMessage.properties.updateComponents,
  updateDataModel: toClient.$defs.UpdateDataModelMessage.properties.updateDataModel,
  deleteSurface: toClient.$defs.DeleteSurfaceMessage.properties.deleteSurface,
} as unknown as Record<string, Schema>;
const [validationFailed, genericError] = toServer.properties.error.oneOf as unknown as [Schema, Schema];

// The version is a parameter, so `version` is checked apart from the schemas.
const DATA_MODEL = dataModel as Schema;
DATA_MODEL.properties!.version = true;

// An argument is a DynamicValue or an object, which is anything but null. Said like that, a call within a call is not
// looked at twice on each level; the function's own schema says the rest.
const callArguments = commonTypes.$defs.FunctionCall.properties.args as Schema;
callArguments.additionalProperties = { type: ["string", "number", "boolean", "array", "object"] };
// What has no `call` is no call of any function, so that none of them needs to be tried.
const definitions: Record<string, Schema> = commonTypes.$defs as never;
definitions.FunctionCall = {
  if: { type: "object", required: ["call"] },
  then: definitions.FunctionCall,
  else: { type: "object", required: ["call"] },
};
// Alternatives that differ in nothing but their type are one schema with several types.
const [plain, choices] = [["string", "number", "boolean", "array"], definitions.DynamicValue!.oneOf!];
definitions.DynamicValue!.oneOf = [{ type: plain as never }, ...choices.filter(({ type }) => !plain.includes(type as string))];

const common: Lookup = Object.create(null);
for (const schema of [commonTypes, toClient, capabilities, DATA_MODEL] as Schema[]) dereference(schema, common);
dereference({ ...toServer, $id: `${BASE}client_to_server.json` } as Schema, common);
// A schema within a catalogue is an object or a boolean; what it says is checked when it is used.
common["https://json-schema.org/draft/2020-12/schema"] = { type: ["object", "boolean"] };

const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const deeperThan = (value: unknown, depth: number): boolean =>
  typeof value === "object" &&
  value !== null &&
  (depth === 0 || Object.values(value).some((inner) => deeperThan(inner, depth - 1)));

/** Keywords that say no more than that something within is wrong. */
const AROUND = ["$ref", "allOf", "anyOf", "oneOf", "if", "properties", "additionalProperties", "items", "prefixItems"];
/** What fails for a member that no schema names, and for all members when another error has kept them from being named. */
const UNNAMED = ["false", "unevaluatedProperties", "unevaluatedItems"];

/** The error that says most: the first of those that are deepest in the instance. */
function tellingError(errors: OutputUnit[]): OutputUnit {
  const depth = ({ instanceLocation }: OutputUnit) => instanceLocation.split("/").length;
  const leaves = errors.filter(({ keyword }) => !AROUND.includes(keyword));
  const named = leaves.filter(({ keyword }) => !UNNAMED.includes(keyword));
  const candidates = [named, leaves, errors].find((list) => list.length > 0)!;
  return candidates.reduce((best, error) => (depth(error) > depth(best) ? error : best));
}

function wording({ keyword, instanceLocation, error }: OutputUnit): string {
  if (keyword === "false") return "there is no such member";
  const ofCall = keyword === "const" && instanceLocation.endsWith("/call");
  return ofCall ? "no function of the catalogue has this name and these arguments" : error.replace(/\.$/, "");
}

function violations(instance: unknown, schema: Schema, lookup: Lookup, pointer: string): Violation[] {
  const { valid, errors } = validate(instance, schema, "2020-12", lookup);
  if (valid) return [];
  const error = tellingError(errors);
  return [{ pointer: pointer + decodeURIComponent(error.instanceLocation.slice(1)), message: wording(error) }];
}

/** A catalogue that components are checked against. */
export class Catalogue {
  readonly #lookup: Lookup = Object.create(common);
  readonly #components: JsonObject | null;
  readonly #maxDepth: number;

  /** Without a document the catalogue is known by its id alone, and takes any component that has an id and a name. */
  constructor(document: JsonObject | null, maxDepth = MAX_DEPTH) {
    this.#maxDepth = maxDepth;
    this.#components = document ? ((document.components ?? {}) as JsonObject) : null;
    const functions = functionsOf(document?.functions);
    const names = Object.keys(functions);
    const definitions = (document?.$defs ?? {}) as JsonObject;
    const calls = names.map((name) => ({ $ref: `#/functions/${name}` }));
    const theme = definitions.theme ?? { type: "object", properties: document?.theme ?? {} };
    // The envelopes say `catalog.json` for whichever catalogue the surface has. Components are checked one by one, each by
    // its own schema, which costs less than a choice of all and says what is wrong.
    const schema = {
      $id: `${BASE}catalog.json`,
      components: this.#components ?? {},
      functions,
      $defs: {
        ...definitions,
        theme,
        anyComponent: {
          type: "object",
          properties: { id: { type: "string" }, component: { type: "string" } },
          required: ["id", "component"],
        },
        anyFunction: calls.length > 0 ? { oneOf: calls } : false,
      },
    };
    dereference(schema as unknown as Schema, this.#lookup);
    const unresolved = Object.values(this.#lookup).find(
      (inner) => typeof inner === "object" && inner.__absolute_ref__ && !(inner.__absolute_ref__ in this.#lookup),
    );
    if (unresolved) throw new Error(`there is no schema ${(unresolved as Schema).$ref}`);
  }

  /** Checks what a server's message of that kind says. */
  check(kind: string, body: JsonObject, pointer: string): Violation[] {
    const schema = SERVER_MESSAGES[kind]!;
    const found = violations(body, schema, this.#lookup, pointer);
    if (found.length > 0 || kind !== "updateComponents") return found;
    const seen = new Set<string>();
    return (body.components as JsonObject[]).flatMap((component, place) => {
      const at = `${pointer}/components/${place}`;
      const id = component.id as string;
      if (seen.has(id)) return [{ pointer: `${at}/id`, message: `a component before it has the id ${id}` }];
      seen.add(id);
      return this.#component(component, at);
    });
  }

  #component(component: JsonObject, pointer: string): Violation[] {
    if (!this.#components) return [];
    const name = component.component as string;
    if (!Object.hasOwn(this.#components, name)) {
      return [{ pointer: `${pointer}/component`, message: `the catalogue has no component ${name}` }];
    }
    const most = this.#maxDepth;
    if (deeperThan(component, most)) return [{ pointer, message: `nested more than ${most} deep` }];
    return violations(component, this.#components[name] as Schema, this.#lookup, pointer);
  }
}

/** Functions by name: a catalogue has a map of schemas, an inline one a list of names with schemas of arguments. */
function functionsOf(functions: unknown): Record<string, Schema> {
  if (!Array.isArray(functions)) return (functions ?? {}) as Record<string, Schema>;
  // A name becomes part of a `$ref`: with a slash in it, it would lead into the schema of another function.
  const wrong = functions.find(({ name }) => !/^[\w.-]+$/.test(name));
  if (wrong) throw new Error(`a function cannot have the name ${wrong.name}`);
  const schemas = functions.map(({ name, parameters, returnType }) => [
    name,
    {
      type: "object",
      properties: { call: { const: name }, args: parameters, returnType: { const: returnType } },
      required: ["call"],
      additionalProperties: false,
    },
  ]);
  return Object.fromEntries(schemas);
}

export const BASIC_CATALOGUE = new Catalogue(BASIC);
export const UNKNOWN_CATALOGUE = new Catalogue(null);

/** Checks what `action` or `error` of a client's message says. */
export function checkClientMessage(kind: "action" | "error", body: unknown, pointer: string): Violation[] {
  if (kind === "action") return violations(body, toServer.properties.action as Schema, common, pointer);
  const failed = isObject(body) && body.code === "VALIDATION_FAILED";
  return violations(body, failed ? validationFailed : genericError, common, pointer);
}

/** Checks what is under a version's key in the client's capabilities. */
export const checkCapabilities = (value: unknown, pointer: string) =>
  violations(value, capabilities.properties["v0.9"] as Schema, common, pointer);

export const checkDataModel = (value: unknown, pointer: string) => violations(value, DATA_MODEL, common, pointer);

export { deeperThan, isObject };
