"""Checks the manifests of this folder without a cluster.

    pip install -r requirements.txt
    python3 check.py [PROGRAM]        # default: the newest annex in target/

Against the schemas that Kubernetes publishes; the numbers of one file against those of another; and the config, by starting
a server with it that has a database, its Secret, and one folder to write to, which anybody may write as in a pod.
"""

import os
import re
import signal
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import kubernetes_validate
import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "examples" / "replicas"))
from cluster import Failure, Postgres, annex, answers, free_ports, until  # noqa: E402

# The oldest and the newest that the manifests are for: `preStop.sleep` is from 1.30.
VERSIONS = ["1.31", "1.35"]
KINDS = ["ConfigMap", "Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Secret", "Service"]
# Seconds after drain_seconds in which a server stops turns, sends the last notifications, closes its stores, and sends the last metrics
# and spans.
AFTER_DRAIN = 10 + 5 + 5 + 5 + 5
# Connections of one process beside its pool, and those that PostgreSQL gives without any for administrators.
BESIDE_THE_POOL = 4
OF_POSTGRES = 100 - 3

documents = [document for path in sorted(HERE.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]
manifests = {document["kind"]: document for document in documents}
pod = manifests["Deployment"]["spec"]["template"]
[container] = pod["spec"]["containers"]
text = manifests["ConfigMap"]["data"]["annex.toml"]
config = tomllib.loads(text)


def schemas(_: Path) -> str:
    """Every manifest is what Kubernetes takes, with no field that it does not know."""
    assert sorted(manifests) == KINDS and len(documents) == len(KINDS), sorted(manifests)
    for version in VERSIONS:
        for document in documents:
            kubernetes_validate.validate(document, version, strict=True)
    return f"{len(documents)} manifests for {' and '.join(VERSIONS)}"


def names(_: Path) -> str:
    """What names something names what is there."""
    labels = pod["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert manifests[kind]["spec"]["selector"]["matchLabels"] == labels, kind
    assert manifests["Service"]["spec"]["selector"] == labels
    target = manifests["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target["name"] == manifests["Deployment"]["metadata"]["name"], target
    [port] = container["ports"]
    assert str(port["containerPort"]) == config["server"]["listen"].split(":")[1], port
    named = [port["targetPort"] for port in manifests["Service"]["spec"]["ports"]]
    named += [container[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")]
    assert set(named) == {port["name"]}, named
    for variable in container["env"]:
        if reference := variable["valueFrom"].get("secretKeyRef"):
            assert reference["name"] == manifests["Secret"]["metadata"]["name"], reference
            assert reference["key"] in manifests["Secret"]["stringData"], reference
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert mounts.keys() == volumes.keys(), (mounts, volumes)
    assert volumes["config"]["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]
    assert container["args"] == ["serve", f"{mounts['config']}/annex.toml"], container["args"]
    assert config["runtime"]["cache_dir"].startswith(f"{mounts['cache']}/"), config["runtime"]
    variables = {variable["name"] for variable in container["env"]}
    wanted = set(re.findall(r'_env = "(\w+)"', text))
    assert wanted == variables, (wanted, variables)
    return f"labels, ports, {len(variables)} variables, {len(mounts)} volumes"


def numbers(_: Path) -> str:
    """A pod has the time that its server takes to stop, the database the connections, and a compiler the memory."""
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    stops = before + config["server"]["drain_seconds"] + AFTER_DRAIN
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    assert stops <= grace, f"{stops} s to stop, and {grace} s until it is killed"
    most = manifests["HorizontalPodAutoscaler"]["spec"]["maxReplicas"]
    most += manifests["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    connections = most * (config["postgres"]["max_connections"] + BESIDE_THE_POOL)
    assert connections <= OF_POSTGRES, f"{connections} connections"
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) * 2**30
    compilers = config["runtime"]["compile_processes"] * config["runtime"]["compile_memory_bytes"]
    assert compilers <= limit // 2, f"{compilers} of {limit} bytes"
    return f"{stops} of {grace} s, {connections} of {OF_POSTGRES} connections, {compilers >> 20} of {limit >> 20} MiB"


def server(scratch: Path) -> str:
    """The config is one that a server takes, run as the pod runs it."""
    postgres = Postgres(scratch / "postgres")
    postgres.initialise()
    postgres.start()
    try:
        return serve(scratch, postgres)
    finally:
        postgres.stop()


def serve(scratch: Path, postgres: Postgres) -> str:
    [port] = free_ports(1)
    cache = scratch / "cache"
    cache.mkdir()
    # As a volume of Kubernetes is: another user's, and open to all in the pod.
    cache.chmod(0o777)
    served = text.replace("0.0.0.0:9999", f"0.0.0.0:{port}").replace("/var/cache/annex", str(cache))
    path = scratch / "annex.toml"
    path.write_text(served)
    secrets = {"ANNEX_POSTGRES": postgres.url, "ADAS_KEY": manifests["Secret"]["stringData"]["adas-key"]}
    # No PATH, no HOME: nothing of this machine but what the pod has.
    environment = {**secrets, "POD_NAME": "annex-7d9c5b8f6c-x2x4z"}
    user = "nobody" if os.geteuid() == 0 else None
    log = scratch / "annex.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [program, "serve", path],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            user=user,
            group=None if user is None else "nogroup",
            extra_groups=None if user is None else [],
        )
    try:
        url = f"http://127.0.0.1:{port}"
        until("the server is ready", lambda: process.poll() is not None or answers(f"{url}/readyz"))
        assert process.poll() is None, log.read_text()
        assert answers(f"{url}/livez") and answers(f"{url}/.well-known/agent-card.json")
        [name] = [row[0] for row in postgres.query("SELECT name FROM replica")]
        assert name == environment["POD_NAME"], name
        assert (cache / "compiled").is_dir(), list(cache.iterdir())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    return f"/readyz, /livez and the card as {user or 'this user'}, compiled code below {cache}, SIGTERM ends it with status 0"


STEPS: list[Callable[[Path], str]] = [schemas, names, numbers, server]


def report(step: Callable[[Path], str], scratch: Path) -> bool:
    try:
        print(f"ok    {step.__name__}: {step(scratch)}", flush=True)
    except Failure as failure:
        print(f"FAIL  {step.__name__}: {failure}", flush=True)
        return False
    except Exception:
        print(f"FAIL  {step.__name__}", flush=True)
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    try:
        program = annex(sys.argv[1] if len(sys.argv) > 1 else None)
    except Failure as failure:
        sys.exit(str(failure))
    with TemporaryDirectory(prefix="annex-kubernetes-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        outcomes = [report(step, Path(folder)) for step in STEPS]
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    sys.exit(0 if all(outcomes) else 1)
