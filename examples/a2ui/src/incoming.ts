// What a client sends: its capabilities, its data model and client-to-server messages.

import type { Violation } from "annex:extension";
import { Offer, readOffer } from "./offer";
import type { Parameters } from "./parameters";
import { isA2ui, messagesIn, whyNotVersion } from "./parts";
import { checkClientMessage, checkDataModel, isObject } from "./schemas";
import type { JsonObject } from "./schemas";

export const DATA_MODEL = "a2uiClientDataModel";
const KINDS = ["action", "error"];
/** A message takes up to half a millisecond, and a client must not reach the limit of CPU time. */
const MAX_MESSAGES = 32;

export function checkParts(message: JsonObject, versions: string[]): Violation[] {
  const parts = (message.parts ?? []) as JsonObject[];
  const lists = parts.filter(isA2ui).map(({ data }) => (Array.isArray(data) ? data.length : 1));
  const all = lists.reduce((sum, length) => sum + length, 0);
  if (all > MAX_MESSAGES) {
    return [{ pointer: "/message/parts", message: `${all} A2UI messages: at most ${MAX_MESSAGES} are taken at once` }];
  }
  const { found, wrong } = messagesIn(parts, "/message/parts", KINDS, versions);
  const invalid = found.flatMap(({ message, kind, pointer }) =>
    checkClientMessage(kind as "action" | "error", message[kind], `${pointer}/${kind}`),
  );
  return [...wrong, ...invalid];
}

function dataModel(metadata: JsonObject, versions: string[]): Violation[] {
  const at = `/message/metadata/${DATA_MODEL}`;
  const value = metadata[DATA_MODEL];
  if (value === undefined) return [];
  const wrongVersion = isObject(value) ? whyNotVersion(value, versions) : null;
  if (wrongVersion) return [{ pointer: at + wrongVersion.below, message: wrongVersion.message }];
  return checkDataModel(value, at);
}

/** Checks a message to the agent: what it offers, or all that is wrong with it. */
export function checkMessage(message: JsonObject, parameters: Parameters): Offer | Violation[] {
  const metadata = (message.metadata ?? {}) as JsonObject;
  const offer = readOffer(metadata, parameters);
  const wrong = [
    ...(offer instanceof Offer ? [] : offer),
    ...dataModel(metadata, parameters.versions),
    ...checkParts(message, parameters.versions),
  ];
  return wrong.length > 0 ? wrong : offer;
}
