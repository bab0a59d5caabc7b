"""The Helm chart: over a matrix of values, against the schemas of Kubernetes, and house rules.

No cluster is needed, and nothing here says that one was tried.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

from pipelines.cli.main import COMMANDS
from pipelines.local.workers import ARCHIVE
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/recollect"
TOOLS = Path(sys.executable).parent
SCHEMAS = TOOLS.parent / "schemas"
VERSIONS = ("1.30", "1.37")
"""Of Kubernetes: the oldest that the chart allows, and the newest with schemas at hand."""
NAME = "r-recollect"
RESTART = ("startupProbe", "livenessProbe")

Rendered = list[dict[str, Any]]
VALUES: Mapping[str, Mapping[str, Any]] = {
    "as it comes": {},
    "one API": {"api": {"split": False}, "networkPolicy": {"enabled": False}},
    "all of it": {
        "image": {"tag": "1.2.3", "pullSecrets": [{"name": "registry"}]},
        "derivations": {"url": "redis://derivations:6379/0"},
        "settings": {
            "RECOLLECT_RETENTION": {"*": {"enabled": True}},
            "RECOLLECT_RESULT_CACHE_BYTES": 67_108_864,
            "RECOLLECT_RECORD_ACCESSES": False,
        },
        "api": {"autoscaling": {"enabled": True}},
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls"},
        "keda": {"enabled": True},
        "archive": {"url": "/archive/ledger", "claim": "archive"},
        "sealing": {"claim": "keys"},
        "jobs": {"backup": {"enabled": True}},
        "drill": {"enabled": True},
        "monitoring": {
            "serviceMonitor": True,
            "alerts": "PrometheusRule",
            "labels": {"release": "prometheus"},
        },
        "networkPolicy": {
            "apiFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        },
        "serviceAccount": {"name": "bucket-reader"},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "memory", "operator": "Exists"}],
        "priorityClassName": "important",
    },
}


def values() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return read


# Without Helm


def test_the_chart_has_a_worker_for_every_stage_and_the_defaults_of_the_settings() -> None:
    given = values()
    assert given["stages"].keys() == STAGES.keys()
    assert given["partitions"] == Settings.model_fields["partitions"].default
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    jobs = {config["job_name"] for config in scraped["scrape_configs"]}
    named = {row["job"] for row in given["stages"].values()}
    assert {*named, "recollect-api", f"recollect-{ARCHIVE}"} <= jobs


def test_the_version_of_the_chart_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == project["version"]


def test_dashboard_and_alerts_are_links_to_the_only_copy() -> None:
    linked = {path.name: path.resolve() for path in (CHART / "files").iterdir()}
    assert linked == {
        "alerts.yml": ROOT / "deploy/prometheus/alerts.yml",
        "recollect.json": ROOT / "deploy/grafana/dashboards/recollect.json",
    }
    assert all((CHART / "files" / name).is_symlink() for name in linked)


# With Helm

Template = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Renders the packaged chart with values, for a version of Kubernetes."""
    helm = shutil.which("helm", path=f"{TOOLS}:{os.environ['PATH']}")
    if helm is None:
        pytest.skip("no helm: `make helm` builds it where Go is installed")
    folder = tmp_path_factory.mktemp("chart")

    def run(*words: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [helm, *map(str, words)]
        return subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=120, check=False
        )

    packaged = run("package", CHART, "--destination", folder)
    assert packaged.returncode == 0, packaged.stderr
    (package,) = folder.glob("*.tgz")

    def render(
        given: Mapping[str, Any], version: str = VERSIONS[-1]
    ) -> subprocess.CompletedProcess[str]:
        options = ("--kube-version", version, "--namespace", "memory", "--values", "-")
        return run("template", "r", package, *options, given=yaml.safe_dump(dict(given)))

    return render


@pytest.fixture(scope="module")
def rendered(template: Template) -> dict[str, Rendered]:
    """All objects, by the name of the values."""
    found = {}
    for name, given in VALUES.items():
        result = template(given)
        assert result.returncode == 0, result.stderr
        found[name] = [item for item in yaml.safe_load_all(result.stdout) if item]
    return found


def pods(objects: Rendered) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(owner, template of its pods)."""
    for item in objects:
        if item["kind"] == "Deployment":
            yield item, item["spec"]["template"]
        elif item["kind"] == "CronJob":
            yield item, item["spec"]["jobTemplate"]["spec"]["template"]


def of_kind(objects: Rendered, kind: str) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == kind}


def containers(objects: Rendered) -> Iterator[tuple[str, dict[str, Any]]]:
    for owner, pod in pods(objects):
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            yield f"{owner['metadata']['name']}/{container['name']}", container


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    named = [row["name"] for row in container.get("env", ())]
    assert len(named) == len(set(named)), "a name twice breaks a server-side apply"
    return {row["name"]: row["value"] for row in container.get("env", ())}


def strict(schema: Any) -> Any:
    """A CRD's schema as JSON Schema that refuses what it does not name."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    changed = {key: strict(value) for key, value in schema.items() if key != "format"}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and "type" in schema and not open_ended:
        changed.setdefault("additionalProperties", False)
    return changed


@pytest.fixture(scope="module")
def schema_of() -> Callable[[dict[str, Any], str], Draft202012Validator]:
    """What judges an object, by its version and kind, on a version of Kubernetes."""
    if not SCHEMAS.is_dir():
        pytest.skip("no schemas: `make helm` fetches them")
    (wheel,) = SCHEMAS.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    crds = {}
    for path in SCHEMAS.glob("*.yaml"):
        crd = yaml.safe_load(path.read_text("utf-8"))["spec"]
        for version in crd["versions"]:
            key = f"{crd['group']}/{version['name']}", crd["names"]["kind"]
            crds[key] = strict(version["schema"]["openAPIV3Schema"])
            crds[key]["properties"]["metadata"] = {"type": "object"}

    @cache
    def resource(name: str, version: str) -> Resource[Any]:
        folder = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict"
        return DRAFT4.create_resource(json.loads(archive.read(f"{folder}/{name}")))

    def judge(item: dict[str, Any], version: str) -> Draft202012Validator:
        key = item["apiVersion"], item["kind"]
        if key in crds:
            return Draft202012Validator(crds[key])
        group = item["apiVersion"].replace(".k8s.io", "").replace("/", "-")
        schema = resource(f"{item['kind'].lower()}-{group}.json", version)
        registry: Registry[Any] = Registry(
            retrieve=lambda uri: resource(uri.rpartition("/")[2], version)
        )  # type: ignore[call-arg]
        return Draft202012Validator(schema.contents, registry=registry)

    return judge


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", VALUES)
def test_all_objects_are_valid(
    template: Template,
    schema_of: Callable[[dict[str, Any], str], Draft202012Validator],
    name: str,
    version: str,
) -> None:
    result = template(VALUES[name], version)
    assert result.returncode == 0, result.stderr
    objects = [item for item in yaml.safe_load_all(result.stdout) if item]
    for item in objects:
        errors = [
            f"{item['kind']} {item['metadata']['name']}: {error.json_path}: {error.message[:300]}"
            for error in schema_of(item, version).iter_errors(item)
        ]
        assert errors == []
    keys = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"apii": {}}, "apii"),
        ({"stages": {"proj": {"replicas": 1, "job": "x"}}}, "proj"),
        ({"redis": {"url": "redis://user:password@redis:6379"}}, "/redis/url"),
        ({"settings": {"RECOLLECT_REDIS_PASSWORD": "x"}}, "RECOLLECT_REDIS_PASSWORD"),
        ({"keda": {"stabilizationSeconds": 10}}, "/keda/stabilizationSeconds"),
        ({"partitions": 257}, "/partitions"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_values_that_break_a_rule_are_refused_by_name(
    template: Template, given: dict[str, Any], where: str
) -> None:
    result = template(given)
    assert result.returncode != 0
    assert where in result.stderr


@pytest.mark.parametrize("name", VALUES)
def test_no_container_may_more_than_it_needs(rendered: dict[str, Rendered], name: str) -> None:
    for owner, pod in pods(rendered[name]):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, owner
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for where, container in containers(rendered[name]):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False, where
        assert security["capabilities"] == {"drop": ["ALL"]}, where
        assert security["readOnlyRootFilesystem"] is (where != f"{NAME}-drill/neo4j"), where
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}, where
        assert re.search(r":[\w.-]*\d[\w.-]*$", container["image"]), where


@pytest.mark.parametrize("name", VALUES)
def test_what_selects_pods_finds_those_of_one_component(
    rendered: dict[str, Rendered], name: str
) -> None:
    objects = rendered[name]
    labels = {
        owner["metadata"]["name"]: pod["metadata"]["labels"].items() for owner, pod in pods(objects)
    }
    deployments = of_kind(objects, "Deployment")
    for kind in ("Service", "PodDisruptionBudget", "Deployment"):
        selecting = of_kind(objects, kind)
        assert selecting.keys() == deployments.keys(), kind
        for owner, item in selecting.items():
            selector = item["spec"]["selector"]
            selector = selector.get("matchLabels", selector).items()
            assert [found for found, has in labels.items() if selector <= has] == [owner]
    for policy in of_kind(objects, "NetworkPolicy").values():
        selector = policy["spec"]["podSelector"]["matchLabels"].items()
        assert all(selector <= has for has in labels.values())
    for kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        for item in of_kind(objects, kind).values():
            scaled = item["spec"]["scaleTargetRef"]["name"]
            assert "replicas" not in deployments[scaled]["spec"], "two would set the number"


def test_a_process_of_each_kind_runs_the_command_of_its_name(
    rendered: dict[str, Rendered],
) -> None:
    for name, archiver in (("as it comes", set()), ("all of it", {ARCHIVE})):
        deployments = of_kind(rendered[name], "Deployment")
        run = {
            owner.removeprefix(f"{NAME}-"): item["spec"]["template"]["spec"]["containers"][0][
                "args"
            ]
            for owner, item in deployments.items()
        }
        assert run == {
            "ingest": ["serve"],
            "read": ["serve"],
            **{f"worker-{worker}": ["worker", worker] for worker in {*STAGES, *archiver}},
        }
    for where, container in containers(rendered["all of it"]):
        if where.startswith(NAME) and where.endswith("/recollect"):
            script = " ".join(container["args"])
            used = set(re.findall(r"recollect (\w+)", script)) or {container["args"][0]}
            assert used <= COMMANDS.keys(), where


@pytest.mark.parametrize("name", VALUES)
def test_the_environment_is_made_of_settings_that_are_accepted(
    rendered: dict[str, Rendered], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where, container in containers(rendered[name]):
        if not where.endswith("/recollect"):
            continue
        given = environment(container)
        with monkeypatch.context() as patched:
            for variable, value in given.items():
                patched.setenv(variable, value)
            settings = Settings()
        known = {f"RECOLLECT_{field.upper()}" for field in Settings.model_fields}
        assert given.keys() - known == {"RECOLLECT_SECRETS_DIR"}, where
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert given["RECOLLECT_SECRETS_DIR"] in mounts
        for path in filter(None, (settings.keys_file, settings.data_dir)):
            assert any(str(path).startswith(f"{mount}/") for mount in mounts), where
        if "drill" in where:
            assert (settings.archive_url, settings.derivations_url) == (None, None)
            assert {settings.redis_url, settings.neo4j_url} == {
                "redis://127.0.0.1:6379/0",
                "bolt://127.0.0.1:7687",
            }
        elif name == "all of it":
            assert settings.result_cache_bytes == 67_108_864
            assert settings.record_accesses is False
            assert settings.retention["*"]["enabled"] is True


@pytest.mark.parametrize("name", VALUES)
def test_probes_ask_what_a_restart_or_less_traffic_would_mend(
    rendered: dict[str, Rendered], name: str
) -> None:
    for owner, item in of_kind(rendered[name], "Deployment").items():
        spec = item["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        asked = {kind: container[kind]["httpGet"]["path"] for kind in RESTART}
        if container["args"] == ["serve"]:
            assert set(asked.values()) == {"/health/live"}
            side = "read" if owner.endswith("-read") else "ingest"
            assert container["readinessProbe"]["httpGet"]["path"] == f"/health/ready/{side}"
        else:
            assert set(asked.values()) == {metrics.HEALTH_PATH}
            assert "readinessProbe" not in container, "nobody sends it requests"
        stop_s = Settings.model_fields["stop_timeout_s"].default
        assert spec["terminationGracePeriodSeconds"] > stop_s
        ports = {port["name"] for port in container["ports"]}
        assert {container[kind]["httpGet"]["port"] for kind in RESTART} == ports


def test_workers_are_scaled_by_our_own_lag_up_to_the_partitions(
    rendered: dict[str, Rendered],
) -> None:
    scaled = of_kind(rendered["all of it"], "ScaledObject")
    assert scaled.keys() == {f"{NAME}-worker-{stage}" for stage in STAGES}
    series = {name: row.labels for row in metrics.METRICS.values() for name in row.series}
    for name, item in scaled.items():
        assert item["spec"]["maxReplicaCount"] == values()["partitions"]
        (trigger,) = item["spec"]["triggers"]
        query = trigger["metadata"]["query"]
        assert set(re.findall(r"recollect_\w+", query)) <= series.keys()
        assert re.findall(r'stage="(\w+)"', query) == [name.removeprefix(f"{NAME}-worker-")]


def test_alerts_and_dashboard_are_those_of_the_repository(
    rendered: dict[str, Rendered],
) -> None:
    dashboard = (ROOT / "deploy/grafana/dashboards/recollect.json").read_text("utf-8")
    alerts = (ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8")
    for objects in rendered.values():
        maps = of_kind(objects, "ConfigMap")
        assert maps[f"{NAME}-dashboard"]["data"] == {"recollect.json": dashboard}
    assert of_kind(rendered["as it comes"], "ConfigMap")[f"{NAME}-alerts"]["data"] == {
        "alerts.yml": alerts
    }
    (rule,) = of_kind(rendered["all of it"], "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load(alerts)


def test_prometheus_finds_every_process_under_the_job_of_the_alerts(
    rendered: dict[str, Rendered],
) -> None:
    objects = rendered["all of it"]
    (monitor,) = of_kind(objects, "ServiceMonitor").values()
    label = monitor["spec"]["jobLabel"]
    jobs = set()
    for service in of_kind(objects, "Service").values():
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        assert wanted <= service["metadata"]["labels"].items()
        jobs.add(service["metadata"]["labels"][label])
        (port,) = service["spec"]["ports"]
        assert port["name"] in {end["port"] for end in monitor["spec"]["endpoints"]}
    alerts = (ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8")
    assert set(re.findall(r'job="([^"]+)"', alerts)) <= jobs


def test_the_command_of_the_page_renders(template: Template) -> None:
    page = (ROOT / "docs/how-to/deploy.md").read_text("utf-8")
    (command,) = re.findall(r"helm install (recollect deploy/helm/recollect .+?)\n```", page, re.S)
    given: dict[str, Any] = {}
    for path, value in re.findall(r"--set (\S+)=(\S+)", command):
        outer, inner = path.split(".")
        given.setdefault(outer, {})[inner] = value
    assert given.keys() == {"image", "redis", "neo4j"}
    result = template(given)
    assert result.returncode == 0, result.stderr
    assert f"{given['image']['repository']}:" in result.stdout
