"""Writes `../tests/samples.json`: messages of A2UI, and whether the libraries take them.

    python samples.py        # with a2ui-a2a 0.1.0 and a2ui-core 0.4.0 installed

The unit tests hold the component against it. `differs` has the reason where the component decides otherwise.
"""

import importlib
import json
from pathlib import Path

from a2ui.a2a import create_a2ui_part, get_a2ui_extension_uri, is_a2ui_part
from a2ui.core.processing.message_processor import MessageProcessor, MessageProcessorOptions
from a2ui.core.validation.payload_validator import ValidationConfig
from pydantic import TypeAdapter

TARGET = Path(__file__).parent.parent / "tests/samples.json"
MODULES = {"0.8": "v0_8", "0.9.1": "v0_9", "1.0": "v1_0"}


def catalogue(version):
    return importlib.import_module(f"a2ui.core.basic_catalog.{MODULES[version]}").BasicCatalog()


def processor(version):
    # A tree may arrive in any order, so the component checks no tree.
    config = ValidationConfig(allow_orphan_components=True, allow_dangling_references=True, allow_missing_root=True)
    return MessageProcessor([catalogue(version)], options=MessageProcessorOptions(validation_config=config))


def v9(kind, **body):
    return {"version": "v0.9.1", kind: body}


def v10(kind, **body):
    return {"version": "v1.0", kind: body}


def with_component(version, component, *others):
    basic = ids[version]
    if version == "0.8":
        listed = [{"id": "root", "component": component}, *others]
        return [{"beginRendering": {"surfaceId": "s", "root": "root"}}, {"surfaceUpdate": {"surfaceId": "s", "components": listed}}]
    envelope = v9 if version == "0.9.1" else v10
    listed = [{"id": "root", **component}, *others]
    return [envelope("createSurface", surfaceId="s", catalogId=basic), envelope("updateComponents", surfaceId="s", components=listed)]


ids = {
    "0.8": "https://a2ui.org/specification/v0_8/standard_catalog_definition.json",
    "0.9.1": "https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json",
    "1.0": "https://a2ui.org/specification/v1_0/catalogs/basic/catalog.json",
}
TEXT_8 = {"id": "t", "component": {"Text": {"text": {"literalString": "x"}}}}
TEXT = {"id": "t", "component": "Text", "text": "x"}


def agent_samples():
    one = lambda version, name, *parts: (version, name, with_component(version, *parts))
    yield one("0.8", "a text", {"Text": {"text": {"literalString": "x"}, "usageHint": "h1"}})
    yield one("0.8", "a bound text", {"Text": {"text": {"path": "/name"}}})
    yield one("0.8", "a text that is a number", {"Text": {"text": {"literalString": 7}}})
    yield one("0.8", "a text without its object", {"Text": {"text": "x"}})
    yield one("0.8", "an unknown member", {"Text": {"text": {"literalString": "x"}, "colour": "red"}})
    yield one("0.8", "an unknown hint", {"Text": {"text": {"literalString": "x"}, "usageHint": "h9"}})
    yield one("0.8", "a missing member", {"Button": {"child": "t"}}, TEXT_8)
    yield one("0.8", "a button", {"Button": {"child": "t", "action": {"name": "go", "context": [{"key": "k", "value": {"literalNumber": 1}}]}}}, TEXT_8)
    yield one("0.8", "a button whose context is a map", {"Button": {"child": "t", "action": {"name": "go", "context": {"k": 1}}}}, TEXT_8)
    yield one("0.8", "a row", {"Row": {"children": {"explicitList": ["t"]}, "distribution": "center"}}, TEXT_8)
    yield one("0.8", "an unknown component", {"Script": {"source": "alert(1)"}})
    yield ("0.8", "data", with_component("0.8", {"Text": {"text": {"path": "/name"}}}) + [{"dataModelUpdate": {"surfaceId": "s", "contents": [{"key": "name", "valueString": "Ada"}]}}])
    yield ("0.8", "data of the wrong type", with_component("0.8", {"Text": {"text": {"path": "/name"}}}) + [{"dataModelUpdate": {"surfaceId": "s", "contents": [{"key": "name", "valueString": 7}]}}])
    yield ("0.8", "two kinds", [{"deleteSurface": {"surfaceId": "s"}, "beginRendering": {"surfaceId": "s", "root": "root"}}])
    yield ("0.8", "a kind of 0.9", [{"createSurface": {"surfaceId": "s", "catalogId": ids["0.8"]}}])

    for version in ("0.9.1", "1.0"):
        call, path = ("call", "path") if version == "0.9.1" else ("@call", "@path")
        envelope = v9 if version == "0.9.1" else v10
        checks = lambda condition: {"component": "TextField", "label": "Name", "checks": [{"condition": condition, "message": "no"}]}
        yield one(version, "a text", {"component": "Text", "text": "x", "variant": "body"})
        yield one(version, "a bound text", {"component": "Text", "text": {path: "/name"}})
        yield one(version, "a text bound in the way of the other version", {"component": "Text", "text": {"@path" if path == "path" else "path": "/name"}})
        yield one(version, "a text that is a number", {"component": "Text", "text": 7})
        yield one(version, "a text without text", {"component": "Text"})
        yield one(version, "an unknown member", {"component": "Text", "text": "x", "colour": "red"})
        yield one(version, "an unknown variant", {"component": "Text", "text": "x", "variant": "huge"})
        yield one(version, "an unknown component", {"component": "Script", "source": "alert(1)"})
        yield one(version, "a component without name", {"text": "x"})
        yield one(version, "weight", {"component": "Text", "text": "x", "weight": 2})
        yield one(version, "weight as text", {"component": "Text", "text": "x", "weight": "2"})
        yield one(version, "accessibility", {"component": "Text", "text": "x", "accessibility": {"label": "y"}})
        yield one(version, "a row", {"component": "Row", "children": ["t"], "justify": "center"}, TEXT)
        yield one(version, "a row of a template", {"component": "Row", "children": {"componentId": "t", "path": "/items"}}, TEXT)
        yield one(version, "a row whose children are a text", {"component": "Row", "children": "t"}, TEXT)
        yield one(version, "an event", {"component": "Button", "child": "t", "action": {"event": {"name": "go", "context": {"a": {path: "/a"}, "b": 1}}}}, TEXT)
        yield one(version, "a button without action", {"component": "Button", "child": "t"}, TEXT)
        yield one(version, "an action with two forms", {"component": "Button", "child": "t", "action": {"event": {"name": "go"}, "functionCall": {call: "openUrl", "args": {"url": "https://example.com"}}}}, TEXT)
        yield one(version, "a local action", {"component": "Button", "child": "t", "action": {"functionCall": {call: "openUrl", "args": {"url": "https://example.com"}}}}, TEXT)
        yield one(version, "a function", checks({call: "required", "args": {"value": {path: "/name"}}}))
        yield one(version, "an unknown function", checks({call: "sudo", "args": {"value": 1}}))
        yield one(version, "a function without arguments", checks({call: "required"}))
        yield one(version, "an unknown argument", checks({call: "regex", "args": {"value": "x", "pattern": "x", "flags": "i"}}))
        yield one(version, "an argument of the wrong type", checks({call: "length", "args": {"value": "x", "min": "1"}}))
        yield one(version, "calls within calls", checks({call: "and", "args": {"values": [{call: "required", "args": {"value": "x"}}, {call: "not", "args": {"value": {call: "required", "args": {"value": "y"}}}}]}}))
        yield one(version, "an unknown call within a call", checks({call: "not", "args": {"value": {call: "sudo", "args": {}}}}))
        yield one(version, "an option", {"component": "ChoicePicker", "options": [{"label": "A", "value": "a"}], "value": ["a"]})
        yield one(version, "an option without value", {"component": "ChoicePicker", "options": [{"label": "A"}], "value": ["a"]})
        yield one(version, "a slider", {"component": "Slider", "min": 0, "max": 10, "value": {path: "/n"}})
        yield one(version, "a slider with a text", {"component": "Slider", "max": "ten", "value": 1})
        yield one(version, "two components of one id", {"component": "Text", "text": "x"}, {"id": "root", "component": "Text", "text": "y"})
        text = with_component(version, {"component": "Text", "text": "x"})
        yield (version, "data", text + [envelope("updateDataModel", surfaceId="s", path="/a", value={"b": [1, None]})])
        yield (version, "data without surface", text + [envelope("updateDataModel", path="/a", value=1)])
        yield (version, "an unknown member of a message", text + [envelope("deleteSurface", surfaceId="s", why="x")])
        yield (version, "a surface that is deleted", text + [envelope("deleteSurface", surfaceId="s")])
        yield (version, "a surface twice", text + text[:1])
        yield (version, "a surface again after it was deleted", text + [envelope("deleteSurface", surfaceId="s")] + text[:1])
        yield (version, "an unknown surface", [envelope("updateComponents", surfaceId="s", components=[{"id": "root", "component": "Text", "text": "x"}])])
        yield (version, "an unknown catalogue", [envelope("createSurface", surfaceId="s", catalogId="https://example.com/other.json")])
        yield (version, "no components", text[:1] + [envelope("updateComponents", surfaceId="s", components=[])])
        yield (version, "another version", [{**text[0], "version": "v0.7"}])
        yield (version, "no version", [{"createSurface": text[0]["createSurface"]}])
        yield (version, "two kinds", [{**text[0], "deleteSurface": {"surfaceId": "s"}}])
        yield (version, "an unknown kind", [{"version": text[0]["version"], "beginRendering": {"surfaceId": "s"}}])
    theme = lambda colour: [v9("createSurface", surfaceId="s", catalogId=ids["0.9.1"], theme={"primaryColor": colour})]
    yield ("0.9.1", "a theme", theme("#00BFFF"))
    yield ("0.9.1", "a theme whose colour is a name", theme("red"))
    yield ("1.0", "all in one message", [v10("createSurface", surfaceId="s", catalogId=ids["1.0"], components=[{"id": "root", "component": "Text", "text": {"@path": "/a"}}], dataModel={"a": "x"})])
    yield ("1.0", "an invalid component in the first message", [v10("createSurface", surfaceId="s", catalogId=ids["1.0"], components=[{"id": "root", "component": "Text", "text": 7}])])
    yield ("1.0", "the index", with_component("1.0", {"component": "Text", "text": {"@call": "formatString", "args": {"value": "x"}}}, {"id": "u", "component": "Slider", "max": 9, "value": {"@call": "@index"}}))
    yield ("1.0", "a system function that there is not", with_component("1.0", {"component": "Slider", "max": 9, "value": {"@call": "@time"}}))
    yield ("1.0", "the surface as a component", with_component("1.0", {"component": "Surface", "child": "root"}))


def client_samples():
    stamp = "2026-01-01T00:00:00Z"
    action = {"name": "go", "surfaceId": "s", "sourceComponentId": "b", "timestamp": stamp, "context": {"a": 1}}
    failed = {"code": "VALIDATION_FAILED", "surfaceId": "s", "path": "/components/0", "message": "no"}
    without = lambda body, member: {key: value for key, value in body.items() if key != member}
    yield ("0.8", "an action", {"userAction": action})
    yield ("0.8", "an action without context", {"userAction": without(action, "context")})
    yield ("0.8", "an action of 0.9", {"version": "v0.9", "action": action})
    for version in ("0.9.1", "1.0"):
        envelope = lambda **kind: {"version": "v0.9" if version == "0.9.1" else "v1.0", **kind}
        yield (version, "an action", envelope(action=action))
        yield (version, "an action without name", envelope(action=without(action, "name")))
        yield (version, "an action whose context is a list", envelope(action={**action, "context": []}))
        yield (version, "a failed validation", envelope(error=failed))
        yield (version, "a failed validation without path", envelope(error=without(failed, "path")))
        yield (version, "another error", envelope(error={"code": "OTHER", "surfaceId": "s", "message": "no", "more": 1}))
        yield (version, "an error without message", envelope(error={"code": "OTHER", "surfaceId": "s"}))
        yield (version, "an unknown kind", envelope(click=action))
    yield ("1.0", "a call of the agent", {"version": "v1.0", "callAgentFunction": {"surfaceId": "s", "functionCallId": "f", "callFunction": {"@call": "required", "args": {"value": 1}}}})
    yield ("1.0", "a call without id", {"version": "v1.0", "callAgentFunction": {"surfaceId": "s", "callFunction": {"@call": "required", "args": {"value": 1}}}})
    yield ("1.0", "a response", {"version": "v1.0", "rendererFunctionResponse": {"functionCallId": "f", "value": 1}})
    yield ("1.0", "a response with both results", {"version": "v1.0", "rendererFunctionResponse": {"functionCallId": "f", "value": 1, "error": {"code": "a", "message": "b"}}})


# The library turns texts into numbers, knows members by two names, and takes any code for an error without path. The component
# goes by the schemas. The text of 1.0 lets an agent use a surface that it did not create.
DIFFERS = {
    ("0.9.1", "weight as text"): "the schema takes numbers alone",
    ("1.0", "weight as text"): "the schema takes numbers alone",
    ("0.9.1", "an argument of the wrong type"): "the schema takes integers alone",
    ("1.0", "an argument of the wrong type"): "the schema takes integers alone",
    ("0.9.1", "no components"): "the schema takes no empty list",
    ("1.0", "no components"): "the schema takes no empty list",
    ("1.0", "a text bound in the way of the other version"): "the schema has @path alone",
    ("1.0", "an unknown surface"): "the text lets an agent use a surface that it did not create",
    ("0.9.1", "a failed validation without path"): "the schema needs a path for this code",
    ("1.0", "a failed validation without path"): "the types need a path for this code",
}


def entry(version, name, why, **more):
    found = {"version": version, "name": name, **more, "refused": why}
    return {**found, "differs": DIFFERS[version, name]} if (version, name) in DIFFERS else found


def refusal(check):
    try:
        check()
    except Exception as error:  # Any error is a refusal.
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return None


def client_model(version):
    if version == "0.8":
        module = importlib.import_module("a2ui.core.schema.v0_8.client_to_server")
    elif version == "0.9.1":
        module = importlib.import_module("a2ui.core.schema.v0_9.client_to_server")
    else:
        module = importlib.import_module("a2ui.core.schema.v1_0.renderer_to_agent")
    names = ("RendererToAgentMessage", "A2uiClientMessage", "ClientToServerMessage")
    return TypeAdapter(next(getattr(module, name) for name in names if hasattr(module, name)))


def main():
    agent, client = [], []
    for version, name, messages in agent_samples():
        why = refusal(lambda: processor(version).process_messages(json.loads(json.dumps(messages))))
        agent.append(entry(version, name, why, messages=messages))
    for version, name, message in client_samples():
        why = refusal(lambda: client_model(version).validate_python(json.loads(json.dumps(message))))
        client.append(entry(version, name, why, message=message))
    parts = []
    for version in ("0.8", "0.9", "0.9.1", "1.0"):
        part = create_a2ui_part({"x": 1}, version)
        assert is_a2ui_part(part)
        parts.append({"version": version, "uri": get_a2ui_extension_uri(version), "part": part.model_dump(mode="json", exclude_none=True)})
    TARGET.parent.mkdir(exist_ok=True)
    lines = lambda entries: ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    TARGET.write_text(f'{{"agent": [\n{lines(agent)}\n],\n"client": [\n{lines(client)}\n],\n"parts": [\n{lines(parts)}\n]}}\n')
    print(len(agent), "of agents,", sum(1 for entry in agent if entry["refused"]), "refused;", len(client), "of clients")


if __name__ == "__main__":
    main()
