// What the operator sets.

import config from "wasi:config/store@0.2.0-rc.1";
import { BASIC_ID } from "./schemas";
import type { JsonObject } from "./schemas";

export interface Parameters {
  uri: string;
  /** The values of `version` in a message, and the keys of capabilities, best first. */
  versions: string[];
  supported: string[];
  acceptsInline: boolean;
  requiresCapabilities: boolean;
  invalid: "fail" | "mark";
  /** Documents of catalogues that are not built in. */
  catalogues: JsonObject[];
}

export const PARAMETER_SCHEMA = {
  type: "object",
  properties: {
    uri: { type: "string", minLength: 1 },
    version: { enum: ["0.9", "0.9.1"] },
    supported_catalogs: { type: "array", items: { type: "string", minLength: 1 } },
    accepts_inline_catalogs: { type: "boolean" },
    require_capabilities: { type: "boolean" },
    invalid: { enum: ["fail", "mark"] },
    catalogs: {
      type: "array",
      items: {
        type: "object",
        required: ["catalogId", "components"],
        properties: { catalogId: { type: "string" }, components: { type: "object" } },
      },
    },
  },
  additionalProperties: false,
};

function parsed<T>(key: string, otherwise: T): T {
  const text = config.get(key);
  return text === null ? otherwise : JSON.parse(text);
}

export function parameters(): Parameters {
  const version = config.get("version") ?? "0.9.1";
  return {
    uri: config.get("uri") ?? `https://a2ui.org/a2a-extension/a2ui/v${version}`,
    versions: version === "0.9" ? ["v0.9"] : ["v0.9.1", "v0.9"],
    supported: parsed("supported_catalogs", [BASIC_ID]),
    acceptsInline: parsed("accepts_inline_catalogs", false),
    requiresCapabilities: parsed("require_capabilities", true),
    invalid: config.get("invalid") === "mark" ? "mark" : "fail",
    catalogues: parsed<JsonObject[]>("catalogs", []),
  };
}
