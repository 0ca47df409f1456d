// The types of the contract annex:extension@0.1.0, as componentize-qjs hands them over: `option` is `T | null`, a variant
// `{ tag, val }`, `u64` a number. A function whose result has an error throws it. wit/deps says more about each.

declare module "annex:extension" {
  /** JSON text: one value. Hand on what you were given, so that numbers and key order survive. */
  export type Json = string;
  export type Metadata = [key: string, value: Json][];

  /** The request that a hook runs for. */
  export interface Request {
    /** `SendMessage`, `SendStreamingMessage`, or the name of a method of the extension's own. */
    operation: string;
    contextId: string | null;
    taskId: string | null;
    /** The extension URIs that the client asked for. */
    requested: string[];
  }

  /** A metadata entry of the request under a key that the descriptor owns. */
  export interface MetadataEntry {
    location: "message" | "request";
    key: string;
    value: Json;
  }

  /** One thing that is wrong; the pointer (RFC 6901) begins at the request: `/message/parts/0`. */
  export interface Violation {
    pointer: string;
    message: string;
  }

  /** An error of the extension's own; its code is none of JSON-RPC's or A2A's. Thrown by `activate`. */
  export interface ExtensionError {
    code: number;
    message: string;
    data: Json | null;
  }

  /** Refuses a request. Thrown by `check`, `validate`, `call`, `next` and `before`. */
  export type Rejection =
    | { tag: "violations"; val: Violation[] }
    | { tag: "error"; val: ExtensionError };

  /** What the extension is. */
  export interface ExtensionDescriptor {
    uri: string;
    /** A short name for logs and listings. */
    name: string;
    version: string;
    /** One sentence; it stands on the Agent Card. */
    description: string;
    /** JSON Schema of the operator's parameters. */
    parameterSchema: Json | null;
    /** The metadata keys that the extension reads and writes; it sees no other. */
    metadataKeys: string[];
    /** URIs of extensions that must be active together with this one. */
    dependsOn: string[];
    /** Grants that it needs and no import shows. */
    grants: string[];
    /** The events that `revise` and `respond` are called for. */
    events: { message: boolean; status: boolean; artifact: boolean };
    /** Whether `respond` gets the event as JSON. */
    payload: boolean;
  }

  export interface Descriptor {
    /** Called once per load, before every other hook. A thrown string stops the load. */
    describe(): ExtensionDescriptor;
  }

  export interface Card {
    /** Called once per load. `description` is instead of the descriptor's, `params` a JSON object. */
    declare(): { description: string | null; params: Json | null };
  }

  /** The entry on the Agent Card, and for how many seconds it holds; 0 is until the next load. */
  export interface LiveDeclaration {
    description: string | null;
    /** A JSON object. */
    params: Json | null;
    seconds: number;
  }

  export interface LiveCard {
    /** Called once per load, and again when the seconds are over, with the grant `live-card`. In place of `Card`. */
    declareLive(): LiveDeclaration;
  }

  export interface Activation {
    /** Called once per request that names the URI. */
    activate(request: Request): "active" | "inactive";
  }

  /** A part of the message, counted from 0, and the parts that take its place. */
  export interface Rewrite {
    part: number;
    replacement: Json[];
  }

  export interface Message {
    /** Called once per active request. Rewriting takes the grant `rewrite-message`. */
    check(request: Request, message: Json): Rewrite[];
  }

  export interface State {
    /** Called once per active request. Returns the change of the session's state, a JSON object. */
    validate(request: Request, metadata: MetadataEntry[]): Json | null;
  }

  /** The task that a turn takes up. */
  export interface Beginning {
    taskId: string;
    contextId: string;
    /** The state that a task which waits is in (`TASK_STATE_AUTH_REQUIRED`). */
    waitsIn: string | null;
    /** Whether an extension resumed it, rather than a message of the client. */
    resumed: boolean;
  }

  /** A change of the task's state that is about to happen. */
  export interface StateChange {
    taskId: string;
    contextId: string;
    current: string;
    next: string;
    /** The message of the new status. */
    message: Json | null;
  }

  /** The task waits instead, and the client is told the text. */
  export interface Interruption {
    waiting: "input" | "authorization";
    text: string;
    metadata: Metadata;
  }

  export type Entry =
    | { tag: "proceed" }
    | { tag: "interrupt"; val: Interruption }
    | { tag: "veto"; val: string };

  export type Ruling =
    | { tag: "pass" }
    | { tag: "annotate"; val: Metadata }
    | { tag: "interrupt"; val: Interruption }
    | { tag: "veto"; val: string };

  export interface Transition {
    /** Called once per turn, before the agent runs. */
    begin(request: Request, beginning: Beginning): Entry;
    /** Called for each change of state, before `respond` sees its event. */
    change(change: StateChange): Ruling;
  }

  /** What an extension answers in the agent's place. */
  export interface ReadyAnswer {
    /** The state of the task afterwards. */
    outcome:
      | "completed"
      | "failed"
      | "rejected"
      | "input-required"
      | "auth-required";
    /** Each is a Part. At least one. */
    parts: Json[];
    /** The name of the artifact that the parts make; without one they are the message of the status. */
    artifact: string | null;
    metadata: Metadata;
  }

  export interface Reply {
    /** Called once per turn, before the agent runs, with the grant `answer`. `null` lets the agent answer. */
    beforeAgent(request: Request, message: Json): ReadyAnswer | null;
  }

  /** A message about a step of the agent, which the client gets as a status of the working task. */
  export interface Remark {
    /** Each is a Part. At least one. */
    parts: Json[];
    metadata: Metadata;
  }

  /** A call of the model that is about to be made. */
  export interface ModelCall {
    /** How many rounds of tools there were in this turn. */
    round: number;
    /** The name under which the operator lends the model. */
    model: string;
    /** The names of the models that may be called instead. */
    lent: string[];
    /** The parts of the instruction: first the operator's. */
    instruction: string[];
    /** The parameters that are set: `temperature`, `topP`, `maxTokens`, `stop`, `seed`. */
    parameters: Json;
    tools: string[];
  }

  /** What changes in a call of the model; `null` leaves a field as it is. */
  export interface ModelChange {
    /** One of the names in `lent`. */
    model: string | null;
    instruction: string[] | null;
    parameters: Json | null;
  }

  export type ModelVerdict =
    | { tag: "pass" }
    | { tag: "change"; val: ModelChange }
    | { tag: "refuse"; val: string };

  /** A call of a tool that the model asks for. */
  export interface ToolCall {
    id: string;
    name: string;
    /** The name of the server that offers the tool. */
    origin: string;
    /** A JSON object. */
    arguments: Json;
    /** Whether this extension has made the call wait before. */
    hasWaited: boolean;
  }

  /** What the task waits for before the call is made. */
  export interface Pause {
    /** Whether the task waits for an authorization, rather than for input. */
    authorization: boolean;
    text: string;
    metadata: Metadata;
  }

  export type ToolVerdict =
    | { tag: "pass" }
    | { tag: "change"; val: Json }
    | { tag: "deny"; val: string }
    | { tag: "wait"; val: Pause };

  /** A call that was made. */
  export interface ToolResult {
    id: string;
    name: string;
    arguments: Json;
    output: Json;
    /** Whether the tool reported an error. */
    failed: boolean;
  }

  export interface Steering {
    /** Called before each call of the model, with the grant `agent-steps = { steer = true }`. */
    beforeModel(call: ModelCall): [ModelVerdict, Remark | null];
    /** Called before each call of a tool, before any of them is made. */
    beforeTool(call: ToolCall): [ToolVerdict, Remark | null];
    /** Called for each result, before the model sees it. A value replaces the output. */
    afterTool(made: ToolResult): [Json | null, Remark | null];
  }

  /** A chunk of an artifact. */
  export interface Chunk {
    artifactId: string;
    /** Whether it begins the artifact, or replaces it from its beginning. */
    first: boolean;
    last: boolean;
  }

  /** The content of one message, status or chunk, before it is stored and sent. */
  export interface Content {
    taskId: string | null;
    contextId: string;
    /** The answer, the message of a status with this state, or an artifact. */
    place:
      | { tag: "message" }
      | { tag: "status"; val: string }
      | { tag: "artifact"; val: Chunk };
    /** An array of Part. What this extension has held back comes first. */
    parts: Json;
    /** How many chunks of the artifact this extension has held back. */
    held: number;
  }

  /** A part, counted from 0, and the parts that take its place. */
  export interface Replacement {
    part: number;
    parts: Json[];
    /** Why metadata that others have put on the part is left out. */
    dropped: string | null;
  }

  export type Verdict =
    | { tag: "leave" }
    | { tag: "replace"; val: Replacement[] }
    | { tag: "hold" }
    | { tag: "refuse"; val: string };

  export interface Output {
    /** Called for each outgoing event that the descriptor named, with the grant `rewrite-answer`. */
    revise(content: Content): Verdict;
  }

  /** An outgoing event, before it is stored and sent. */
  export interface Event {
    kind: "message" | "status" | "artifact";
    taskId: string | null;
    contextId: string;
    /** The new state, for a status. */
    taskState: string | null;
    hasMessage: boolean;
    lastChunk: boolean;
    /** Which of the extension's own keys are there already. */
    present: string[];
    /** The event as in a StreamResponse, when the descriptor asked for it. */
    payload: Json | null;
  }

  export interface Response {
    /** Called for each outgoing event that the descriptor named. `null` leaves it alone. */
    respond(event: Event): { metadata: Metadata } | null;
  }

  /** A task that is about to be shown. */
  export interface ShownTask {
    id: string;
    contextId: string;
    /** Its state (`TASK_STATE_COMPLETED`). */
    state: string;
    /** Entries of the task's metadata under the extension's own keys. */
    metadata: Metadata;
  }

  /** What the reader is shown of a task. The reason of `leave-out` is for the log. */
  export type View =
    | { tag: "unchanged" }
    | { tag: "add"; val: Metadata }
    | { tag: "leave-out"; val: string };

  export interface Reads {
    /** Called once per read of a task and once per page of a list, with the grant `reads`. One view for each task. */
    show(request: Request, tasks: ShownTask[]): View[];
  }

  /** The extension's entry on the extended card. */
  export interface ShownEntry {
    description: string;
    /** A JSON object. */
    params: Json | null;
  }

  /** The differences of the entry in one answer; `null` leaves a field as it is. */
  export interface EntryChange {
    description: string | null;
    /** A JSON object. */
    params: Json | null;
  }

  export interface ExtendedCard {
    /** Called once per read of the extended card, with the grant `reads`. */
    showEntry(request: Request, entry: ShownEntry): EntryChange;
  }

  /** A method of the extension's own; the host checks parameters and results against the schemas. */
  export interface MethodDeclaration {
    name: string;
    description: string;
    paramsSchema: Json | null;
    resultSchema: Json | null;
    streams: boolean;
  }

  export interface Method {
    /** Called once per load. */
    declareMethods(): MethodDeclaration[];
    /** Called for each call of a method. After `results` the host asks `next`. */
    call(
      request: Request,
      name: string,
      params: Json,
    ): { tag: "value"; val: Json } | { tag: "results" };
    /** The next result of a stream; `null` ends it. */
    next(): Json | null;
  }

  /** A call that is about to be made. */
  export interface Outgoing {
    operation: string;
    /** The URL of the agent's card. */
    agent: string;
    /** The extension's entry on that card. */
    declaration: Json | null;
    /** What the program wants the extension to send. */
    input: Json | null;
    message: Json | null;
  }

  /** Something that came back. */
  export interface Incoming {
    /** Whether the agent says that the extension was active. */
    active: boolean;
    /** A StreamResponse. */
    event: Json;
    /** The entries under the extension's own keys. */
    metadata: Metadata;
  }

  export interface Client {
    /** Called before each call: whether to name the URI, and what to add. */
    before(call: Outgoing): { activate: boolean; metadata: MetadataEntry[] };
    /** Called for each thing that comes back. What it returns is for the program. */
    after(event: Incoming): Json | null;
  }
}

/** Made by the extension itself, over `wasi:logging`. */
declare var console: Record<
  "debug" | "log" | "info" | "warn" | "error",
  (...values: unknown[]) => void
>;

declare module "wasi:config/store@0.2.0-rc.1" {
  /** The operator's parameters: a string as it is, anything else as JSON text. */
  const config: {
    get(key: string): string | null;
    getAll(): [key: string, value: string][];
  };
  export default config;
}

declare module "wasi:logging/logging@0.1.0-draft" {
  type Level = "trace" | "debug" | "info" | "warn" | "error" | "critical";
  /** Lines for the host's log. */
  const logging: { log(level: Level, context: string, message: string): void };
  export default logging;
}

declare module "wasi:keyvalue/store@0.2.0-draft" {
  export interface Bucket {
    get(key: string): Uint8Array | null;
    set(key: string, value: Uint8Array): void;
    delete(key: string): void;
    exists(key: string): boolean;
    listKeys(cursor: number | null): { keys: string[]; cursor: number | null };
  }
  /** The bucket `""` is for good; `task` and `context` live as long as the turn's task and conversation. */
  const keyvalue: { open(identifier: "" | "task" | "context"): Bucket };
  export default keyvalue;
}

declare module "wasi:keyvalue/atomics@0.2.0-draft" {
  import type { Bucket } from "wasi:keyvalue/store@0.2.0-draft";
  /** Adds to a counter and returns what it is then. */
  const atomics: {
    increment(bucket: Bucket, key: string, delta: number): number;
  };
  export default atomics;
}

declare module "wasi:clocks/wall-clock@0.2.12" {
  /** The time of day; `Date` tells it too. */
  const clock: {
    now(): { seconds: number; nanoseconds: number };
    resolution(): { seconds: number; nanoseconds: number };
  };
  export default clock;
}

declare module "wasi:random/random@0.2.12" {
  const random: {
    getRandomBytes(length: number): Uint8Array;
    /** Above 2^53 it is not exact. */
    getRandomU64(): number;
  };
  export default random;
}

declare module "annex:extension/json-schema@0.1.0" {
  import type { Json, Violation } from "annex:extension";
  /** JSON Schema, validated by the host; a schema that cannot be used is thrown as text. */
  const jsonSchema: {
    compile(schema: Json): void;
    validate(schema: Json, instance: Json): Violation[];
  };
  export default jsonSchema;
}

declare module "annex:extension/session-state@0.1.0" {
  import type { Json } from "annex:extension";
  /** The session of the conversation, as it is at the moment of the call. */
  const sessionState: {
    get(key: string): Json | null;
    /** All keys that the grant shows, as one JSON object. */
    snapshot(): Json;
    writable(): {
      session: boolean;
      user: boolean;
      app: boolean;
      temp: boolean;
    };
  };
  export default sessionState;
}

declare module "annex:extension/task@0.1.0" {
  import type { Json } from "annex:extension";
  /** The turn's task: `id`, `contextId` and `status`. */
  const task: { current(): Json | null };
  export default task;
}

declare module "annex:extension/tasks@0.1.0" {
  import type { Json } from "annex:extension";
  /** The caller's tasks, as ListTasks gives them. */
  const tasks: { list(request: Json): Json };
  export default tasks;
}

declare module "annex:extension/task-resumption@0.1.0" {
  /** Takes up a task that this extension interrupted. */
  const taskResumption: { resume(taskId: string): void };
  export default taskResumption;
}

declare module "annex:extension/agent-steps@0.1.0" {
  import type { Json } from "annex:extension";
  /** What the agent did in this turn, as a JSON array. */
  const agentSteps: { recorded(): Json };
  export default agentSteps;
}

declare module "annex:extension/caller@0.1.0" {
  import type { Json } from "annex:extension";
  export interface Identity {
    /** `earlier`: the request is over, and only the owner of the task is known. */
    presence: "anonymous" | "authenticated" | "earlier";
    principal: string | null;
    /** The claims that the grant names, as a JSON object. */
    claims: Json;
    /** The header fields that the grant names, with names in lower case. */
    headers: [name: string, value: string][];
  }
  /** Who calls, as far as the grant shows it. */
  const caller: { current(): Identity };
  export default caller;
}

declare module "annex:extension/task-metadata@0.1.0" {
  import type { Json } from "annex:extension";
  /** Sets an entry of the task's metadata under one of the extension's own keys. */
  const taskMetadata: { set(key: string, value: Json): void };
  export default taskMetadata;
}
