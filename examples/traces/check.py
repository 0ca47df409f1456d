"""Checks the traces of an agent with a collector that decodes them with the published protobufs.

    pip install -r requirements.txt
    python3 check.py [PROGRAM]        # default: the newest annex in target/

Over gRPC and over HTTP: the agent is started with the config of this folder, gets a message of a caller with a trace of its
own, and is stopped. The spans that have arrived by then are one tree below the span of the caller.
"""

import json
import signal
import subprocess
import sys
import traceback
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "replicas"))
from cluster import Failure, annex, answers, free_ports, until  # noqa: E402

TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
WORDS = "What does nobody but us know?"


class Spans:
    """What a collector has received."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.spans: list[Span] = []
        self.services: set[str] = set()

    def add(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        with self.lock:
            for of_resource in request.resource_spans:
                attributes = {one.key: one.value.string_value for one in of_resource.resource.attributes}
                self.services.add(attributes["service.name"])
                for of_scope in of_resource.scope_spans:
                    self.spans.extend(of_scope.spans)


class Servicer(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, spans: Spans) -> None:
        self.spans = spans

    def Export(self, request, context):  # noqa: N802
        self.spans.add(request)
        return trace_service_pb2.ExportTraceServiceResponse()


@contextmanager
def collector_over_grpc(port: int, spans: Spans):
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Servicer(spans), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


@contextmanager
def collector_over_http(port: int, spans: Spans):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # noqa: N802
            assert self.path == "/v1/traces", self.path
            body = self.rfile.read(int(self.headers["content-length"]))
            spans.add(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
            answer = trace_service_pb2.ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def send(url: str) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": WORDS}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    fields = {
        "content-type": "application/json",
        "a2a-version": "1.0",
        "a2a-extensions": TIMESTAMP,
        "traceparent": f"00-{TRACE}-{CALLER}-01",
    }
    request = urllib.request.Request(f"{url}/a2a/jsonrpc", json.dumps(call).encode(), fields)
    with urllib.request.urlopen(request, timeout=30) as answer:
        result = json.load(answer)
    assert result.get("result", {}).get("task", {}).get("status", {}).get("state") == "TASK_STATE_COMPLETED", result


def serve(protocol: str, scratch: Path) -> Spans:
    """The spans of one message."""
    [port, collector_port] = free_ports(2)
    text = (HERE / "annex.toml").read_text()
    text = text.replace("127.0.0.1:9999", f"127.0.0.1:{port}").replace("127.0.0.1:4317", f"127.0.0.1:{collector_port}")
    config = scratch / "annex.toml"
    config.write_text(text.replace('protocol = "grpc"', f'protocol = "{protocol}"'))
    spans = Spans()
    collector = collector_over_grpc if protocol == "grpc" else collector_over_http
    log = scratch / "annex.log"
    with collector(collector_port, spans), open(log, "wb") as out:
        process = subprocess.Popen([program, "serve", config], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            url = f"http://127.0.0.1:{port}"
            until("the server is ready", lambda: process.poll() is not None or answers(f"{url}/readyz"))
            assert process.poll() is None, log.read_text()
            send(url)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
    assert f'"trace_id":"{TRACE}"' in log.read_text(), "the line of the request has the id of the trace"
    return spans


def tree(protocol: str, scratch: Path) -> str:
    received = serve(protocol, scratch)
    assert received.services == {"traced-agent"}, received.services
    spans = [span for span in received.spans if span.trace_id.hex() == TRACE]
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans), "each span has an id of its own"

    def path(span: Span) -> str:
        if span.parent_span_id.hex() == CALLER:
            return span.name
        return f"{path(by_id[span.parent_span_id])} > {span.name}"

    paths = {path(span) for span in spans}
    for expected in [
        "SendMessage",
        "SendMessage > activation",
        "SendMessage > store write",
        "SendMessage > turn",
        "SendMessage > turn > invoke_agent traced_agent",
        "SendMessage > turn > hook response",
    ]:
        assert expected in paths, f"{expected} in {sorted(paths)}"
    assert any(path.startswith("SendMessage > turn > invoke_agent traced_agent > chat ") for path in paths), sorted(paths)
    [root] = [span for span in spans if span.name == "SendMessage"]
    assert root.kind == Span.SPAN_KIND_SERVER, root
    assert {one.key: one.value.string_value for one in root.attributes}["rpc.method"] == "SendMessage", root
    [hook, *_] = [span for span in spans if span.name == "hook response"]
    attributes = {one.key: one.value for one in hook.attributes}
    assert attributes["annex.extension.uri"].string_value == TIMESTAMP, hook
    assert attributes["annex.verdict"].string_value == "ok", hook
    assert attributes["annex.cpu_us"].int_value >= 0, hook
    for span in spans:
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
        assert WORDS not in str(span), span
    return f"{len(spans)} spans"


program: Path


def main() -> int:
    global program
    failed = 0
    try:
        program = annex(sys.argv[1] if len(sys.argv) > 1 else None)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 2
    for protocol in ["grpc", "http"]:
        with TemporaryDirectory() as scratch:
            try:
                print(f"ok    traces over {protocol}: {tree(protocol, Path(scratch))}")
            except Exception:
                failed += 1
                print(f"FAILED traces over {protocol}\n{traceback.format_exc()}")
    print(f"{2 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
