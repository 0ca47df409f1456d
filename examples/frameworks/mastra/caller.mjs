// Mastra's agent that is another A2A agent. It speaks 0.3 unless it is told otherwise.

import { A2AAgent } from "@mastra/core/a2a";

const URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";
const FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state";
const STATE = { name: "Ada" };
const url = process.argv[2];
const card = `${url}/.well-known/agent-card.json`;

// Mastra has no option for metadata, so the state is put into the request that it sends.
async function withState(input, init = {}) {
  if (typeof init.body === "string") {
    const request = JSON.parse(init.body);
    request.params.message.metadata = { ...request.params.message.metadata, [FIELD]: STATE };
    init = { ...init, body: JSON.stringify(request) };
  }
  return fetch(input, init);
}

async function streamed(agent, text) {
  const { fullStream } = await agent.stream(text);
  let heard = "";
  for await (const event of fullStream) heard += event.type === "text-delta" ? event.payload.text : "";
  return heard;
}

const steps = {
  plain: async () => (await new A2AAgent({ url: card }).generate("Hello")).text,
  stream: async () => streamed(new A2AAgent({ url: card }), "Hello"),
  second: async () => {
    const agent = new A2AAgent({ url: card });
    await agent.generate("Hello");
    return (await agent.generate("What did you say?")).text;
  },
  state: async () => {
    const headers = { "X-A2A-Extensions": URI };
    const answer = await new A2AAgent({ url: card, headers, fetch: withState }).generate("Who am I?");
    return `${answer.text} The state came back: ${answer.task.artifacts[0].metadata[FIELD].name}`;
  },
  newer: async () => (await new A2AAgent({ url: card, protocolVersion: "1.0" }).generate("Hello")).text,
};

for (const [step, run] of Object.entries(steps)) {
  const heard = await run().catch((error) => `${error.name}: ${error.message}`);
  console.log(JSON.stringify({ step, heard }));
}
process.exit(0);
