"""A tool for the agent: an MCP server over standard input and output, one JSON-RPC message per line."""

import json
import sys

TOOL = {
    "name": "pay",
    "description": "Pays somebody.",
    "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}, "amount": {"type": "number"}}},
}


def answer(method, params):
    if method == "initialize":
        info = {"name": "payments", "version": "1.0.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        given = params["arguments"]
        return {"content": [{"type": "text", "text": f"{given['amount']} paid to {given['to']}"}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
