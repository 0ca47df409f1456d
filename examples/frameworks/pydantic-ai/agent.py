"""An agent of pydantic-ai behind Annex, served by fasta2a. Its model repeats what it was sent."""

import sys

import uvicorn
from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel


def repeats(messages, _) -> ModelResponse:
    prompts = [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    texts = [prompt if isinstance(prompt, str) else "".join(map(str, prompt)) for prompt in prompts]
    return ModelResponse(parts=[TextPart("I was sent: " + " | ".join(texts))])


url = f"http://127.0.0.1:{sys.argv[1]}"
app = agent_to_a2a(Agent(FunctionModel(repeats)), name="specialist", description="Repeats", url=url)
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
