"""Checks the metrics of an agent with Prometheus (apt-get install prometheus).

    python3 scrape.py [PROGRAM]       # default: the newest annex in target/

The agent is started with the config of this folder and a listener for its metrics. Prometheus reads the metrics each second. Its
HTTP API then has the numbers of the messages that were sent, and takes each query of the board for Grafana. No collector listens,
so that the spans of the agent are lost: Prometheus has their number too.
"""

import json
import math
import secrets
import shutil
import subprocess
import sys
import traceback
import urllib.parse
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "replicas"))
from cluster import Failure, annex, answers, free_ports, until  # noqa: E402

BOARD = HERE.parent.parent / "host" / "deploy" / "grafana" / "annex.json"
TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"
MESSAGES = 7

ADMIN = """
[admin]
listen = "127.0.0.1:{}"
token_file = "token"
metrics_token_file = "metrics-token"
metrics_listen = "127.0.0.1:{}"
"""

# A job whose token is wrong, so that a target that is down can be told from one that is up.
STRANGER = """
  - job_name: stranger
    authorization:
      credentials: wrong
    static_configs:
      - targets: ["127.0.0.1:9997"]
"""


def debian(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Failure(f"{name} is missing: apt-get install prometheus")
    return found


@contextmanager
def running(url: str, log: Path, *command: str | Path):
    """A process that is ready once `url` answers, and that is killed at the end."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=log.parent)
        try:
            until(f"{url} answers", lambda: process.poll() is not None or answers(url))
            assert process.poll() is None, log.read_text()
            yield
        except Exception:
            print(log.read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            process.kill()
            process.wait()


def get(url: str, fields: dict[str, str] | None = None) -> tuple[str, str]:
    """The type and the text of an answer."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=fields or {}), timeout=30) as answer:
        return answer.headers["content-type"], answer.read().decode()


def send(url: str, number: int) -> None:
    message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    fields = {"content-type": "application/json", "a2a-version": "1.0", "a2a-extensions": TIMESTAMP}
    request = urllib.request.Request(f"{url}/a2a/jsonrpc", json.dumps(call).encode(), fields)
    with urllib.request.urlopen(request, timeout=30) as answer:
        result = json.load(answer)
    assert result.get("result", {}).get("task", {}).get("status", {}).get("state") == "TASK_STATE_COMPLETED", result


class Prometheus:
    def __init__(self, url: str) -> None:
        self.url = url

    def api(self, path: str, **parameters: str) -> dict:
        answer = json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")[1])
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, query: str) -> list[float]:
        return [float(sample["value"][1]) for sample in self.api("query", query=query)["result"]]

    def value(self, query: str) -> float:
        values = self.values(query)
        assert len(values) == 1, f"{query}: {values}"
        return values[0]

    def becomes(self, query: str, expected: float) -> None:
        try:
            until(query, lambda: self.values(query) == [expected], 20)
        except Failure as failure:
            raise AssertionError(f"{failure}: {self.values(query)} is not {expected}") from None

    def targets(self) -> dict[str, dict]:
        return {one["labels"]["job"]: one for one in self.api("targets", state="active")["activeTargets"]}


def check_text(metrics: str, token: str) -> None:
    """promtool takes the text, and complains of nothing."""
    kind, text = get(metrics, {"authorization": f"Bearer {token}"})
    assert kind.startswith("text/plain; version=0.0.4"), kind
    command = [debian("promtool"), "check", "metrics"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0 and not checked.stderr, checked.stderr


def check_targets(prometheus: Prometheus) -> None:
    """The agent is read without an error, and a token is needed."""

    def are_read() -> bool:
        healths = [one["health"] for one in prometheus.targets().values()]
        return len(healths) == 2 and "unknown" not in healths

    # Prometheus finds its targets after it is ready.
    until("both targets are read", are_read)
    targets = prometheus.targets()
    assert (targets["annex"]["health"], targets["annex"]["lastError"]) == ("up", ""), targets["annex"]
    assert targets["stranger"]["health"] == "down", targets["stranger"]
    assert "401" in targets["stranger"]["lastError"], targets["stranger"]


def check_counts(prometheus: Prometheus) -> None:
    """Counters and histograms have the number of the messages that were sent."""
    prometheus.becomes('annex_turns_total{job="annex",outcome="completed"}', MESSAGES)
    prometheus.becomes('annex_messages_total{outcome="started"}', MESSAGES)
    prometheus.becomes("sum(annex_refusals_total)", 0)
    for histogram, labels in [
        ("annex_request_duration_seconds", 'operation="SendMessage",outcome="ok"'),
        ("annex_turn_duration_seconds", 'outcome="completed"'),
        ("annex_model_call_duration_seconds", 'outcome="ok"'),
    ]:
        prometheus.becomes(f"{histogram}_count{{{labels}}}", MESSAGES)
        prometheus.becomes(f'{histogram}_bucket{{{labels},le="+Inf"}}', MESSAGES)
        total = prometheus.value(f"{histogram}_sum{{{labels}}}")
        assert 0 < total < 60 * MESSAGES, f"{histogram}: {total}"
        median = prometheus.value(f"histogram_quantile(0.5, {histogram}_bucket{{{labels}}})")
        assert 0 < median < 60, f"{histogram}: {median}"
    calls = prometheus.value(f'annex_hook_calls_total{{extension="{TIMESTAMP}",hook="response",outcome="ok"}}')
    assert calls >= MESSAGES and calls % MESSAGES == 0, calls
    prometheus.becomes(f'annex_hook_duration_seconds_count{{extension="{TIMESTAMP}",hook="response"}}', calls)


def check_lost_spans(prometheus: Prometheus) -> None:
    """A collector that is down shows in the number of lost spans."""
    query = 'annex_trace_spans_total{outcome="lost"}'
    until(f"{query} counts", lambda: prometheus.value(query) >= MESSAGES)
    prometheus.becomes('annex_trace_spans_total{outcome="sent"}', 0)


def check_scrapes(prometheus: Prometheus) -> None:
    """Several scrapes in a row had no error, and none lost a sample."""
    until("five scrapes", lambda: prometheus.value('count_over_time(up{job="annex"}[5m])') >= 5)
    assert prometheus.value('min_over_time(up{job="annex"}[5m])') == 1
    read = prometheus.value('scrape_samples_scraped{job="annex"}')
    assert read == prometheus.value('scrape_samples_post_metric_relabeling{job="annex"}') > 100, read
    own = get(f"{prometheus.url}/metrics")[1]
    for fault in ["sample_duplicate_timestamp", "sample_out_of_order", "sample_out_of_bounds"]:
        assert f"\nprometheus_target_scrapes_{fault}_total 0\n" in own, fault


def check_board(prometheus: Prometheus) -> None:
    """Prometheus takes each query of the board for Grafana."""
    queries = [target["expr"] for panel in json.loads(BOARD.read_text())["panels"] for target in panel.get("targets", [])]
    assert queries, "the board has no queries"
    for query in queries:
        for value in prometheus.values(query.replace("$__rate_interval", "1m")):
            assert not math.isinf(value), f"{query}: {value}"


CHECKS = [check_targets, check_counts, check_lost_spans, check_scrapes, check_board]


def secret(path: Path) -> str:
    token = secrets.token_hex(16)
    path.touch(mode=0o600)
    path.write_text(token)
    return token


def run(program: Path, scratch: Path) -> int:
    """Returns the number of the checks that failed."""
    [port, admin, metrics, collector, own] = free_ports(5)
    token = secret(scratch / "metrics-token")
    secret(scratch / "token")
    text = (HERE / "annex.toml").read_text()
    text = text.replace("127.0.0.1:9999", f"127.0.0.1:{port}").replace("127.0.0.1:4317", f"127.0.0.1:{collector}")
    config = scratch / "annex.toml"
    config.write_text(text + ADMIN.format(admin, metrics))
    jobs = (HERE / "prometheus.yml").read_text() + STRANGER
    jobs_file = scratch / "prometheus.yml"
    jobs_file.write_text(jobs.replace("127.0.0.1:9997", f"127.0.0.1:{metrics}"))
    url, prometheus = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{own}"
    options = [
        f"--config.file={jobs_file}",
        f"--storage.tsdb.path={scratch / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    failed = 0
    with running(f"{url}/readyz", scratch / "annex.log", program, "serve", config):
        with running(f"{prometheus}/-/ready", scratch / "prometheus.log", debian("prometheus"), *options):
            for number in range(MESSAGES):
                send(url, number)
            checks = [partial(check, Prometheus(prometheus)) for check in CHECKS]
            for check in [partial(check_text, f"http://127.0.0.1:{metrics}/metrics", token), *checks]:
                try:
                    check()
                    print(f"ok    {check.func.__doc__}")
                except Exception:
                    failed += 1
                    print(f"FAILED {check.func.__doc__}\n{traceback.format_exc()}")
    return failed


def main() -> int:
    try:
        program = annex(sys.argv[1] if len(sys.argv) > 1 else None)
        with TemporaryDirectory() as scratch:
            failed = run(program, Path(scratch))
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 2
    print(f"{1 + len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
