"""An agent of Google's Agent Development Kit, served over A2A as ADK does it: no extension, nothing of Annex.

    python server.py [PORT]        # default: 9996

No model is asked: the one here finds what it says in what it is told, so that no network is needed.
"""

import re
import sys
import warnings
from collections.abc import AsyncGenerator

warnings.filterwarnings("ignore")

import uvicorn  # noqa: E402
from google.adk.a2a.utils.agent_to_a2a import to_a2a  # noqa: E402
from google.adk.agents import LlmAgent  # noqa: E402
from google.adk.models import BaseLlm, LlmRequest, LlmResponse  # noqa: E402
from google.genai import types  # noqa: E402

# ADK renders {user_info} from its own session, in which an A2A server never has it: hence the question mark. What the
# caller's session knows comes in front of the message.
INSTRUCTION = """
You are a helpful AI assistant. Answer the user's questions with professional depth and technical accuracy.
{user_info?}
"""


class Reading(BaseLlm):
    """Knows of the user what the conversation says last."""

    model: str = "reading"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        told = "\n".join(part.text or "" for content in llm_request.contents for part in content.parts or [])
        known = {key: re.findall(rf'"{key}"\s*:\s*"([^"]*)"', told) for key in ("name", "email")}
        answer = "I do not know who you are."
        if all(known.values()):
            answer = f"You are {known['name'][-1]} and your email is {known['email'][-1]}."
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part.from_text(text=answer)]))


def main(port: int) -> None:
    agent = LlmAgent(
        name="specialist",
        description="Answers questions about the user and their work",
        model=Reading(),
        instruction=INSTRUCTION,
    )
    uvicorn.run(to_a2a(agent, host="127.0.0.1", port=port), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9996)
