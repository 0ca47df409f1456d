// JSON of others. Half of a surrogate pair, which JSON can escape, is read as U+FFFD: it has no place in an address, nor in a
// text for the host.

import type { JsonObject } from "./schemas";

// Each escape is matched as a whole, so that what follows an escaped backslash is none.
const ESCAPE = /\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F][\da-fA-F]{2})|.)/g;

export function read(text: string): JsonObject {
  const isPlain = !/\\u[dD]/.test(text);
  return JSON.parse(isPlain ? text : text.replace(ESCAPE, (all, half) => (half ? "\\ufffd" : all)));
}
