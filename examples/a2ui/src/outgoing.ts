// What an agent sends: server-to-client messages, against their schema, the catalogue of their surface and what the client
// offered.

import type { Violation } from "annex:extension";
import type { Offer } from "./offer";
import { messagesIn } from "./parts";
import type { Item } from "./parts";
import { UNKNOWN_CATALOGUE, isObject } from "./schemas";
import type { JsonObject } from "./schemas";
import { SeenSurfaces } from "./surfaces";
import type { Surfaces } from "./surfaces";

const KINDS = ["createSurface", "updateComponents", "updateDataModel", "deleteSurface"];

/** The lists of parts in a StreamResponse, with their pointers. */
function partsIn(event: JsonObject): [JsonObject[], string][] {
  const lists: [JsonObject[], string][] = [];
  const add = (holder: unknown, pointer: string) => {
    if (isObject(holder) && Array.isArray(holder.parts)) lists.push([holder.parts, `${pointer}/parts`]);
  };
  const addStatus = (holder: JsonObject, pointer: string) => {
    if (isObject(holder.status)) add(holder.status.message, `${pointer}/status/message`);
  };
  add(event.message, "/message");
  if (isObject(event.statusUpdate)) addStatus(event.statusUpdate, "/statusUpdate");
  if (isObject(event.artifactUpdate)) add(event.artifactUpdate.artifact, "/artifactUpdate/artifact");
  if (isObject(event.task)) {
    addStatus(event.task, "/task");
    const artifacts = Array.isArray(event.task.artifacts) ? event.task.artifacts : [];
    artifacts.forEach((artifact, place) => add(artifact, `/task/artifacts/${place}`));
  }
  return lists;
}

/** Checks an event. `surfaces` gets what its valid messages change. */
export function checkEvent(event: JsonObject, offer: Offer, surfaces: Surfaces | SeenSurfaces, versions: string[]) {
  let a2ui = false;
  const violations: Violation[] = [];
  for (const [parts, pointer] of partsIn(event)) {
    const read = messagesIn(parts, pointer, KINDS, versions);
    a2ui ||= read.a2ui;
    violations.push(...read.wrong);
    for (const item of read.found) violations.push(...checkItem(item, offer, surfaces));
  }
  return { a2ui, violations };
}

function checkItem({ message, kind, pointer }: Item, offer: Offer, surfaces: Surfaces | SeenSurfaces): Violation[] {
  const at = `${pointer}/${kind}`;
  const body = message[kind];
  if (!isObject(body) || typeof body.surfaceId !== "string") {
    return [{ pointer: at, message: "it is an object with a surfaceId" }];
  }
  const known = surfaces.catalogueOf(body.surfaceId);
  const certain = !(surfaces instanceof SeenSurfaces);
  if (kind === "createSurface") {
    if (known !== null && certain) return [{ pointer: `${at}/surfaceId`, message: "there is a surface of this id" }];
    return create(body, at, offer, surfaces);
  }
  if (known === null && certain) return [{ pointer: `${at}/surfaceId`, message: "no surface of this id was created" }];
  if (kind === "updateComponents" && known !== null && !offer.has(known)) {
    return [{ pointer: at, message: `the client offers ${known} no longer` }];
  }
  const catalogue = known === null ? UNKNOWN_CATALOGUE : offer.catalogue(known);
  const wrong = catalogue.check(kind, body, at);
  if (wrong.length === 0 && kind === "deleteSurface") surfaces.deleted(body.surfaceId);
  return wrong;
}

function create(body: JsonObject, at: string, offer: Offer, surfaces: Surfaces | SeenSurfaces): Violation[] {
  const { catalogId } = body;
  if (typeof catalogId !== "string") return UNKNOWN_CATALOGUE.check("createSurface", body, at);
  if (!offer.has(catalogId)) {
    return [{ pointer: `${at}/catalogId`, message: `the client did not offer ${catalogId}` }];
  }
  const wrong = offer.catalogue(catalogId).check("createSurface", body, at);
  if (wrong.length === 0) surfaces.created(body.surfaceId as string, catalogId);
  return wrong;
}
