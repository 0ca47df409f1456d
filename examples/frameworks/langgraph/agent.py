"""A graph of LangGraph behind Annex, served by its Agent Server in memory. It repeats what it was sent.

The server is `langgraph dev`; run as a program this file becomes it.
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    program = str(Path(sys.executable).parent / "langgraph")
    os.execv(program, [program, "dev", "--no-browser", "--no-reload", "--port", sys.argv[1]])

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph


def repeats(state: MessagesState) -> dict:
    texts = [str(message.text) for message in state["messages"] if isinstance(message, HumanMessage)]
    return {"messages": [AIMessage("I was sent: " + " | ".join(texts))]}


graph = StateGraph(MessagesState).add_node(repeats).add_edge(START, "repeats").compile(name="specialist")
