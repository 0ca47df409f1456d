// The surfaces of a conversation: which there are, and the catalogue of each. They outlive the turn.

import keyvalue from "wasi:keyvalue/store@0.2.0-draft";

const KEY = "surface:";

export class Surfaces {
  /** What the event at hand changes: a catalogue's id, or `null` for a surface that is deleted. */
  #changes = new Map<string, string | null>();

  /** The catalogue of a surface that there is. */
  catalogueOf(surface: string): string | null {
    const changed = this.#changes.get(surface);
    if (changed !== undefined) return changed;
    const value = keyvalue.open("context").get(KEY + surface);
    return value === null ? null : decodeURIComponent(String.fromCharCode(...value));
  }

  created(surface: string, catalogue: string) {
    this.#changes.set(surface, catalogue);
  }

  deleted(surface: string) {
    this.#changes.set(surface, null);
  }

  /** Keeps what the event has changed. */
  commit() {
    if (this.#changes.size === 0) return;
    const bucket = keyvalue.open("context");
    for (const [surface, catalogue] of this.#changes) {
      if (catalogue === null) bucket.delete(KEY + surface);
      else bucket.set(KEY + surface, Uint8Array.from(encodeURI(catalogue), (letter) => letter.charCodeAt(0)));
    }
    this.#changes.clear();
  }
}

/** The surfaces as a client sees them, who gets the same event more than once: nothing is known for certain. */
export class SeenSurfaces {
  #catalogues = new Map<string, string>();

  catalogueOf(surface: string): string | null {
    return this.#catalogues.get(surface) ?? null;
  }

  created(surface: string, catalogue: string) {
    this.#catalogues.set(surface, catalogue);
  }

  deleted(surface: string) {
    this.#catalogues.delete(surface);
  }
}
