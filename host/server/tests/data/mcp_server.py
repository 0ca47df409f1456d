"""A small MCP server for tests: JSON-RPC over standard input and output, one message per line."""

import json
import os
import sys
import time


def tool(name, /, **properties):
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema}


TOOLS = [
    tool("remember", key="string", value="string"),
    tool("break", key="string"),
    tool("book", what="string"),
    tool("draw"),
    tool("env", name="string"),
    tool("sleep", seconds="number", touch="string"),
    tool("end"),
    tool("pid"),
    tool("cancelled"),
    tool("sum", a="number", b="number"),
]


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def state(key, value):
    return {"annex/stateDelta": {key: value}}


def call(name, given):
    if name == "remember":
        return text("remembered", _meta=state(given["key"], given["value"]))
    if name == "break":
        return text("out of order", isError=True, _meta=state(given["key"], "lost"))
    if name == "book":
        return text(f"{given['what']} is asked for")
    if name == "draw":
        note = {"uri": "note://1", "mimeType": "text/plain", "text": "a red dot"}
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        return {"content": [image, {"type": "resource", "resource": note}]}
    if name == "env":
        return text(os.environ.get(given["name"], "not set"))
    if name == "sleep":
        if given["touch"]:
            open(given["touch"], "w").close()
        time.sleep(given["seconds"])
        return text("awake")
    if name == "end":
        os._exit(1)
    if name == "pid":
        return text(str(os.getpid()))
    if name == "cancelled":
        return text(str(CANCELLED))
    if name == "sum":
        total = given["a"] + given["b"]
        return text(str(total), structuredContent={"total": total})
    raise KeyError(name)


def answer(method, params):
    if method == "initialize":
        about = {"name": "test", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}))
    return {}


CANCELLED = 0
print("the test server starts", file=sys.stderr, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    CANCELLED += request.get("method") == "notifications/cancelled"
    if "id" in request and "method" in request:
        result = answer(request["method"], request.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
