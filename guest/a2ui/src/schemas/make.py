"""Writes the schemas of this folder: `python make.py`, with `a2ui-core` 0.4.0 installed.

What an agent sends, the common types and the basic catalogues come from that package, without the texts for people. What a
client sends is written here, by the schemas of the specification (0.8, 0.9.1) and by the types of the package (1.0).
"""

import importlib
import json
from pathlib import Path

from a2ui.core.schema import ProtocolVersion
from a2ui.core.schema.agent_to_renderer_schema import get_agent_to_renderer_schema_map
from a2ui.core.schema.common_types_schema import get_common_types_schema_map

FOLDER = Path(__file__).parent
TEXTS = ("description", "title", "instructions", "$schema", "$id", "default", "discriminator", "protocolVersion")
NAMES = ("properties", "components", "functions", "$defs", "styles")


def without_texts(node, names=False):
    if isinstance(node, list):
        return [without_texts(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: without_texts(value, not names and key in NAMES)
        for key, value in node.items()
        if names or key not in TEXTS
    }


def object_of(properties, required, **more):
    return {"type": "object", "properties": properties, "required": required, **more}


TEXT = {"type": "string"}
CLOSED = {"additionalProperties": False}
ACTION = object_of(
    {
        "name": TEXT,
        "surfaceId": TEXT,
        "sourceComponentId": TEXT,
        "timestamp": {"type": "string", "format": "date-time"},
        "context": {"type": "object"},
    },
    ["name", "surfaceId", "sourceComponentId", "timestamp", "context"],
)


def errors(codes, generic_required):
    failed = {"code": {"enum": codes}, "surfaceId": TEXT, "path": TEXT, "message": TEXT}
    generic = {"code": {"not": {"const": "VALIDATION_FAILED"}}, "surfaceId": TEXT, "message": TEXT}
    return {"oneOf": [object_of(failed, list(failed), **CLOSED), object_of(generic, generic_required)]}


def client(version):
    if version == "0.8":
        return {"userAction": ACTION, "error": {"type": "object"}}
    if version == "0.9.1":
        return {"action": ACTION, "error": errors(["VALIDATION_FAILED"], ["code", "surfaceId", "message"])}
    more = {"userMessage": TEXT, "metadata": {"$ref": "common_types.json#/$defs/Extensions"}}
    call = {"surfaceId": TEXT, "functionCallId": TEXT, "callFunction": {"$ref": "common_types.json#/$defs/FunctionCall"}}
    failures = errors(["VALIDATION_FAILED", "UNALLOWED_PARENT", "UNALLOWED_CHILD"], ["code", "message"])
    failures["oneOf"][1]["properties"]["code"] = {"type": "string", "not": {"enum": failures["oneOf"][0]["properties"]["code"]["enum"]}}
    return {
        "action": {**ACTION, "properties": {**ACTION["properties"], **more}, **CLOSED},
        "callAgentFunction": object_of(call, list(call), **CLOSED),
        "rendererFunctionResponse": {"$ref": "common_types.json#/$defs/FunctionResponse"},
        "error": failures,
    }


def agent(messages, version):
    """The schema of each kind of message below its name, and the definitions that they share."""
    if version == "0.8":
        kinds = messages["properties"]
        kinds["surfaceUpdate"]["properties"]["components"]["items"]["properties"]["component"] = {
            "$ref": "catalog.json#/$defs/anyComponent"
        }
        kinds["beginRendering"]["properties"]["styles"] = {"$ref": "catalog.json#/$defs/styles"}
        return kinds, {}
    kinds, shared = {}, {}
    for name, definition in messages["$defs"].items():
        if name.endswith("Message"):
            kind = name[0].lower() + name.removesuffix("Message")[1:]
            kinds[kind] = definition["properties"][kind]
        else:
            shared[name] = definition
    return kinds, shared


def write(version, protocol, module):
    kinds, shared = agent(without_texts(get_agent_to_renderer_schema_map(protocol)), version)
    common = {} if version == "0.8" else without_texts(get_common_types_schema_map(protocol))
    catalog = without_texts(importlib.import_module(f"a2ui.core.basic_catalog.{module}").BasicCatalog().to_json())
    catalog.setdefault("$defs", {})
    if version == "0.8":
        catalog["$defs"]["styles"] = {"type": "object", "properties": catalog.pop("styles")}
    for union in ("anyComponent", "anyFunction"):
        # The component finds a component and a function by its name.
        catalog["$defs"].pop(union, None)
    document = {"agent": kinds, "client": client(version)}
    document |= {"$defs": shared, "common": common, "catalog": catalog}
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    (FOLDER / f"{version}.json").write_text(text + "\n")


if __name__ == "__main__":
    write("0.8", ProtocolVersion.V0_8, "v0_8")
    write("0.9.1", ProtocolVersion.V0_9_1, "v0_9")
    write("1.0", ProtocolVersion.V1_0, "v1_0")
