// Which parts are A2UI, and the messages in them.

import type { Violation } from "annex:extension";
import { isObject } from "./schemas";
import type { JsonObject } from "./schemas";

/** The media type, and the one that came before it. */
const MEDIA_TYPES = ["application/a2ui+json", "application/json+a2ui"];

/** A message of A2UI, and where it stands. */
export interface Item {
  message: JsonObject;
  /** `createSurface`, `action` and so on. */
  kind: string;
  pointer: string;
}

const names = (value: unknown) =>
  typeof value === "string" && MEDIA_TYPES.includes(value.split(";", 1)[0]!.trim().toLowerCase());

export const isA2ui = (part: JsonObject) => names(part.mediaType) || (isObject(part.metadata) && names(part.metadata.mimeType));

/**
 * The messages in the A2UI parts, of the kinds that are known. A part with one message in place of a list is taken: the
 * official libraries write it.
 */
export function messagesIn(parts: JsonObject[], pointer: string, kinds: string[], versions: string[]) {
  const found: Item[] = [];
  const wrong: Violation[] = [];
  let a2ui = false;
  parts.forEach((part, place) => {
    if (!isA2ui(part)) return;
    a2ui = true;
    const at = `${pointer}/${place}`;
    const { data } = part;
    if (!Array.isArray(data) && !isObject(data)) {
      wrong.push({ pointer: at, message: "an A2UI part has data, a list of messages" });
      return;
    }
    const list: [unknown, string][] = Array.isArray(data)
      ? data.map((item, index) => [item, `${at}/data/${index}`])
      : [[data, `${at}/data`]];
    for (const [item, pointer] of list) {
      const reason = whyNot(item, kinds, versions);
      if (reason) wrong.push({ pointer: pointer + reason.below, message: reason.message });
      else {
        const message = item as JsonObject;
        found.push({ message, kind: kinds.find((kind) => kind in message)!, pointer });
      }
    }
  });
  return { a2ui, found, wrong };
}

/** Why a value is no message: it has `version` and exactly one of the kinds, and nothing else. */
function whyNot(item: unknown, kinds: string[], versions: string[]): { below: string; message: string } | null {
  const choice = kinds.join(", ");
  if (!isObject(item)) return { below: "", message: "an A2UI message is an object" };
  const wrongVersion = whyNotVersion(item, versions);
  if (wrongVersion) return wrongVersion;
  const keys = Object.keys(item).filter((key) => key !== "version");
  if (keys.length === 1 && kinds.includes(keys[0]!)) return null;
  return { below: "", message: `beside version there is exactly one of ${choice}` };
}

export function whyNotVersion(value: JsonObject, versions: string[]) {
  if (versions.includes(value.version as string)) return null;
  const below = "version" in value ? "/version" : "";
  return { below, message: `the version is ${versions.join(" or ")}` };
}
