"""What is deployed fits the code: metrics, alerts, runbooks, compose file, image, locks."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import pytest
import yaml

from api.schemas import RetrievalMethod
from pipelines.cli import reference
from pipelines.local.workers import ARCHIVE
from pipelines.observe import metrics
from pipelines.work.settings import SECRETS_FOLDER, Settings, load_settings
from pipelines.work.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
RUNBOOKS = DEPLOY / "runbooks"
ALERTS = PROMETHEUS / "alerts.yml"
DASHBOARD = DEPLOY / "grafana/dashboards/recollect.json"
SECRETS = {
    "recollect_redis_password",
    "recollect_neo4j_password",
    "recollect_derivations_password",
    "recollect_master_key",
    "recollect_api_keys",
    "neo4j_auth",
    "grafana_password",
}
"""Files that `deploy/secrets.sh` makes."""


def run(*command: str | Path, cwd: Path = ROOT, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=900, **options)


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip("no promtool: `make promtool` builds it where Go is installed")
    return found


# Metrics


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(ALERTS.read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of every rule, panel and variable."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in json.loads(DASHBOARD.read_text("utf-8"))["templating"]["list"]:
        yield f"variable {variable['name']}", variable["query"]["query"]


EXPRESSIONS = list(expressions())
SERIES = {name: row for row in metrics.METRICS.values() for name in row.series}
# What Prometheus itself adds.
ADDED_LABELS = {"le", "job", "instance", "alertname", "alertstate", "severity"}


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=lambda value: value[:30])
def test_panels_and_rules_use_only_metrics_that_exist(where: str, expression: str) -> None:
    used = set(re.findall(r"\brecollect_\w+", expression))
    assert used or re.search(r"\b(up|ALERTS)\{", expression), "uses no metric at all"
    assert used - SERIES.keys() == set()


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=lambda value: value[:30])
def test_panels_and_rules_use_only_labels_that_exist(where: str, expression: str) -> None:
    used = {name: SERIES[name] for name in re.findall(r"\brecollect_\w+", expression)}
    for name, selector in re.findall(r"\b(recollect_\w+)\{([^}]*)\}", expression):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        assert labels - set(SERIES[name].labels) - ADDED_LABELS == set(), name
    known = {label for row in used.values() for label in row.labels} | ADDED_LABELS
    for group in re.findall(r"\b(?:by|on|ignoring)\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in group.split(",") if label.strip()} - known == set()


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=lambda value: value[:30])
def test_label_values_of_closed_sets_exist(where: str, expression: str) -> None:
    outcomes = set(re.findall(r'outcome="(\w+)"', expression))
    exposed = metrics.render_metrics()[0].decode()
    assert [outcome for outcome in outcomes if f'outcome="{outcome}"' not in exposed] == []


def test_the_methods_of_retrieval_are_those_of_the_api() -> None:
    assert get_args(metrics.QueryMethod) == get_args(RetrievalMethod)


def test_every_metric_is_set_somewhere() -> None:
    """An alert on a metric that nobody sets never fires, and looks like all is well."""
    own = ROOT / "pipelines/observe/metrics.py"
    accessors = {
        name
        for name, value in vars(metrics).items()
        if name.isupper() and hasattr(value, "labels") and hasattr(value, "describe")
    }
    assert len(accessors) == len(metrics.METRICS)
    used: set[str] = set()
    for folder in ("pipelines", "api"):
        for file in (ROOT / folder).rglob("*.py"):
            if file != own:
                used |= set(re.findall(r"\bmetrics\.(\w+)", file.read_text("utf-8")))
    used |= {
        name
        for name in accessors
        for stage in STAGES.values()
        if getattr(metrics, name)._name == f"{metrics.PREFIX}{stage.lag_metric}"
    }
    for node in ast.parse(own.read_text("utf-8")).body:
        # prepare_stage makes series appear and sets none.
        if isinstance(node, ast.FunctionDef) and node.name in used - {"prepare_stage"}:
            used |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    assert sorted(accessors - used - {"BUILD_INFO"}) == []


def test_the_dashboard_shows_what_an_operator_needs() -> None:
    shown = {name for panel in panels() for name in re.findall(r"recollect_\w+", str(panel))}
    needed = {
        "recollect_lag_entries",
        "recollect_lag_seconds",
        "recollect_edges",
        "recollect_entries_applied_total",
        "recollect_dead_letters",
        "recollect_api_request_duration_seconds_bucket",
        "recollect_ingest_events_total",
        "recollect_redis_memory_used_bytes",
        "recollect_derived_total",
        "recollect_cache_lookups_total",
        "recollect_degraded_total",
        "recollect_model_seconds_total",
        "recollect_consolidation_lag_seconds",
        "recollect_reconsolidation_last_run_timestamp_seconds",
        "recollect_graph_nodes",
        "recollect_graph_nodes_pruned_total",
        "recollect_reflection_triggers_total",
        "recollect_decay_score_bucket",
        "recollect_queries_total",
        "recollect_query_step_duration_seconds_bucket",
        "recollect_query_channel_nodes_total",
        "recollect_query_channel_failures_total",
        "recollect_proactive_nodes_total",
        "recollect_proactive_nodes_read_total",
        "recollect_proactive_nodes_judged_total",
        "recollect_accesses_dropped_total",
        "recollect_api_connections",
        "recollect_api_connections_cut_total",
        "recollect_api_rate_limited_total",
    }
    assert needed - shown == set()


def test_panels_have_a_description_a_known_data_source_and_an_own_place() -> None:
    uid = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text("utf-8")
    )["datasources"][0]["uid"]
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["description"], panel["title"]
        assert panel["datasource"]["uid"] == uid, panel["title"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert taken & cells == set(), panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]]
    assert len(ids) == len(set(ids))


def test_panels_can_be_narrowed_by_target_and_stage() -> None:
    names = [v["name"] for v in json.loads(DASHBOARD.read_text("utf-8"))["templating"]["list"]]
    assert names == ["target", "stage"]
    for panel in panels():
        for target in panel["targets"]:
            for name in re.findall(r"recollect_\w+", target["expr"]):
                for variable in {"stage", "target"} & set(SERIES[name].labels):
                    assert f'{variable}=~"${variable}"' in target["expr"], panel["title"]


def test_promql_of_the_panels_parses(promtool: str, tmp_path: Path) -> None:
    recorded = [
        {
            "record": f"panel:{number}",
            "expr": expression.replace("$__rate_interval", "1m"),
        }
        for number, (where, expression) in enumerate(EXPRESSIONS)
        if not where.startswith("variable ")
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    checked = run(promtool, "check", "rules", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# Prometheus


def test_prometheus_accepts_the_configuration_and_the_rules(promtool: str) -> None:
    checked = run(promtool, "check", "config", PROMETHEUS / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules())} rules found" in checked.stdout


def test_the_alerts_fire_and_are_silent_when_they_should(promtool: str) -> None:
    tested = run(promtool, "test", "rules", "alerts.test.yml", cwd=PROMETHEUS)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_has_a_firing_and_a_silent_case() -> None:
    cases: dict[str, set[bool]] = {}
    document = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text("utf-8"))
    for test in document["tests"]:
        for case in test["alert_rule_test"]:
            cases.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert cases == {rule["alert"]: {True, False} for rule in rules()}


def test_alerts_are_about_stages_that_exist_and_watch_the_lag_of_each() -> None:
    named = {name for _, text in EXPRESSIONS for name in re.findall(r'stage="([^"]*)"', text)}
    assert named <= {*STAGES, "$stage"}
    for stage in STAGES.values():
        series = {f'recollect_lag_seconds{{stage="{stage.name}"}}', f"recollect_{stage.lag_metric}"}
        assert [rule for rule in rules() if any(one in rule["expr"] for one in series)], stage.name


def test_alerts_and_runbooks_are_pairs() -> None:
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == {rule["alert"] for rule in rules()}


def test_alerts_say_how_bad_what_and_where_to_read_on() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]
        assert {"summary", "description", "runbook_url"} == rule["annotations"].keys()
        where = f"{{{{ $externalLabels.runbooks }}}}/{rule['alert']}.md"
        assert rule["annotations"]["runbook_url"] == where


def test_alertmanager_hears_of_alerts_and_names_only_those_that_exist() -> None:
    configured = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))
    (base,) = configured["global"]["external_labels"].values()
    assert ROOT / base == RUNBOOKS
    ((manager,),) = (
        static["targets"]
        for to in configured["alerting"]["alertmanagers"]
        for static in to["static_configs"]
    )
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    assert manager.partition(":")[0] in services
    document = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text("utf-8"))
    receivers = {receiver["name"] for receiver in document["receivers"]}
    routes = [document["route"], *document["route"]["routes"]]
    assert {route["receiver"] for route in routes} == receivers
    alerts = [rule["alert"] for rule in rules()]
    for rule in document["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            label, operator, text = re.fullmatch(r'(\w+)(=~|=)"(.+)"', matcher).groups()  # type: ignore[union-attr]
            assert label == "alertname"
            pattern = text if operator == "=~" else re.escape(text)
            assert [name for name in alerts if re.fullmatch(pattern, name)], matcher


@pytest.mark.parametrize("alert", [rule["alert"] for rule in rules()])
def test_a_runbook_says_what_to_see_to_do_and_never_to_do(alert: str) -> None:
    text = (RUNBOOKS / f"{alert}.md").read_text("utf-8")
    assert text.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["See it", "What to do", "Never"]
    assert re.search(r"^recollect ", text, re.MULTILINE), "no command to see it with"


def runbook_texts() -> Iterator[tuple[str, str]]:
    for page in sorted(RUNBOOKS.glob("*.md")):
        yield page.name, page.read_text("utf-8")


def test_runbooks_name_only_alerts_settings_panels_and_errors_that_exist() -> None:
    settings = {f"RECOLLECT_{name.upper()}" for name in Settings.model_fields}
    alerts = {rule["alert"] for rule in rules()}
    titles = " | ".join(panel["title"] for panel in panels())
    for page, text in runbook_texts():
        assert set(re.findall(r"\bRECOLLECT_[A-Z_]+[A-Z]\b", text)) - settings == set(), page
        assert set(re.findall(r"\bRecollect[A-Z]\w+", text)) - alerts == set(), page
        for line in re.findall(r"^On the dashboard:(.*)$", text, re.MULTILINE):
            for title in re.findall(r"\*([^*]+)\*", line):
                assert title in titles, f"{page}: no panel {title!r}"


def test_runbooks_use_only_commands_and_options_that_exist() -> None:
    cli = pytest.importorskip("pipelines.cli.main", reason="the command line is not there yet")
    import typer

    root: Any = typer.main.get_command(cli.app)
    for page, text in runbook_texts():
        for line in re.findall(r"(?:^|`)recollect ([a-z][^`\n>|]*)", text, re.MULTILINE):
            words = line.split()
            command: Any = root
            while words and words[0] in getattr(command, "commands", {}):
                name = words.pop(0)
                command = cli.load(name) if command is root else command.commands[name]
            assert not hasattr(command, "commands"), f"{page}: recollect {line}"
            known = {option for parameter in command.params for option in parameter.opts}
            options = {word for word in words if word.startswith("--")}
            assert options - known == set(), f"{page}: recollect {line}"


# Generated pages


def test_generated_reference_pages_are_fresh() -> None:
    assert reference.stale_pages() == [], "run: python -m pipelines.cli.reference"


def test_a_changed_page_is_found_stale_and_written_again(tmp_path: Path) -> None:
    assert reference.write_pages(tmp_path) == list(reference.PAGES)
    assert reference.stale_pages(tmp_path) == []
    page = tmp_path / "docs/reference/metrics.md"
    page.write_text(page.read_text("utf-8").replace("gauge", "counter", 1), "utf-8")
    assert reference.stale_pages(tmp_path) == ["docs/reference/metrics.md"]


def test_every_metric_and_setting_is_in_its_page() -> None:
    page_of_metrics, settings = reference.metrics_page(), reference.settings_page()
    assert [name for name in metrics.METRICS if f"| `{name}` |" not in page_of_metrics] == []
    names = [f"RECOLLECT_{name.upper()}" for name in Settings.model_fields]
    assert [name for name in names if f"| `{name}` |" not in settings] == []


# Compose


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return document


WORKERS = tuple(f"worker-{worker}" for worker in (*STAGES, ARCHIVE))
OWN_SERVICES = ("api", *WORKERS)


def compose_command() -> list[str]:
    """The plugin, else Debian's docker-compose 1.29, which knows all but the key `name`."""
    if shutil.which("docker") and run("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("neither the plugin `docker compose` nor docker-compose is installed")


def composed(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = compose_command()
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    if command == ["docker-compose"]:
        text = re.sub(r"^name: .*\n", "", text, flags=re.MULTILINE)
    empty = tmp_path / "empty.env"  # so that no .env of this checkout plays a part
    empty.write_text("")
    options = ["--project-directory", str(ROOT), "--env-file", str(empty), "-f", "-"]
    return run(*command, *options, "config", input=text, env={"PATH": os.environ["PATH"]})


def test_compose_accepts_the_file(tmp_path: Path, compose: dict[str, Any]) -> None:
    result = composed(tmp_path)
    assert result.returncode == 0, result.stderr
    assert yaml.safe_load(result.stdout)["services"].keys() == compose["services"].keys()


def test_all_parts_are_there(compose: dict[str, Any]) -> None:
    served = {"redis", "derivations", "neo4j", "prometheus", "alertmanager", "grafana"}
    parts = {*served, *OWN_SERVICES}
    assert compose["services"].keys() == parts


def test_secrets_are_files_of_those_who_need_them_and_nothing_else(compose: dict[str, Any]) -> None:
    paths = {name: {"file": f"./deploy/secrets/{name}"} for name in SECRETS}
    assert compose["secrets"] == paths
    named = {name: set(service.get("secrets", [])) for name, service in compose["services"].items()}
    passwords = {name for name in SECRETS if re.fullmatch(r"recollect_\w+_(password|key)", name)}
    assert {name: secrets for name, secrets in named.items() if secrets} == {
        "redis": {"recollect_redis_password"},
        "derivations": {"recollect_derivations_password"},
        "neo4j": {"neo4j_auth"},
        "grafana": {"grafana_password"},
        "api": passwords | {"recollect_api_keys"},
        **dict.fromkeys(WORKERS, passwords),
    }
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    elsewhere = re.findall(
        r"(?i)\w*(?:password|master_key|api_keys|neo4j_auth)\w*: (?!/run/secrets/)(.+)", text
    )
    assert elsewhere == [f"{{file: ./deploy/secrets/{name}}}" for name in compose["secrets"]]
    variables = re.findall(r"(?<!\$)\$\{?(\w+)", text)
    assert set(variables) == {"API_PORT", "GRAFANA_PORT", "RECOLLECT_LOG_LEVEL"}


def test_secrets_are_made_once_of_a_kind_that_the_services_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "secrets"

    def make() -> dict[str, str]:
        result = run("sh", DEPLOY / "secrets.sh", folder)
        assert result.returncode == 0, result.stderr
        return {path.name: path.read_text("utf-8") for path in folder.iterdir()}

    secrets = make()
    assert secrets.keys() == SECRETS
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    (folder / "grafana_password").unlink()
    again = make()
    assert again["grafana_password"] != secrets["grafana_password"]
    assert {**again, "grafana_password": secrets["grafana_password"]} == secrets

    monkeypatch.setenv(SECRETS_FOLDER, str(folder))
    settings = load_settings()
    assert settings.redis_password
    assert settings.neo4j_password
    assert settings.derivations_password
    assert settings.master_key
    assert settings.redis_password.get_secret_value() == secrets["recollect_redis_password"]
    assert secrets["neo4j_auth"] == f"neo4j/{settings.neo4j_password.get_secret_value()}"
    assert [(key.name, key.tenant, key.role) for key in settings.api_keys] == [
        ("agents", "default", "write"),
        ("operator", "*", "admin"),
    ]


def test_only_the_api_and_grafana_are_published_and_only_here(compose: dict[str, Any]) -> None:
    published = {
        name: service["ports"]
        for name, service in compose["services"].items()
        if "ports" in service
    }
    assert published.keys() == {"api", "grafana"}
    for ports in published.values():
        assert [port.startswith("127.0.0.1:") for port in ports] == [True]
    assert compose["networks"]["data"] == {"internal": True}
    on_edge = {n for n, s in compose["services"].items() if "edge" in s.get("networks", [])}
    assert on_edge == {"api", "grafana", "alertmanager"}  # the last has somebody to call


def test_every_service_has_a_health_check_limits_and_a_pinned_image(
    compose: dict[str, Any],
) -> None:
    for name, service in compose["services"].items():
        assert service["healthcheck"]["test"], name
        limits = service["deploy"]["resources"]["limits"]
        assert limits.keys() == {"cpus", "memory"}, name
        assert re.search(r":[\w.-]+$", service["image"]), name
        assert not service["image"].endswith(":latest"), name
        assert service["restart"] == "unless-stopped", name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert not service.get("privileged"), name


def test_the_api_has_room_for_its_cache_and_the_columns(compose: dict[str, Any]) -> None:
    cache = Settings.model_fields["result_cache_bytes"].default
    columns = 150_000 * 1_300
    assert compose["services"]["api"]["deploy"]["resources"]["limits"]["memory"] == "1g"
    # with the processes of the API, of columns without an event, and of the model, as measured
    assert cache + columns + 560 * 2**20 < 2**30


def test_our_image_runs_without_root_and_cannot_write(compose: dict[str, Any]) -> None:
    for name in OWN_SERVICES:
        service = compose["services"][name]
        assert service["read_only"] is True, name
        assert service["user"] == "10001:10001", name
        assert service["cap_drop"] == ["ALL"], name


def test_workers_can_be_scaled(compose: dict[str, Any]) -> None:
    for name in WORKERS:
        worker = compose["services"][name]
        assert [key for key in ("container_name", "ports", "hostname") if key in worker] == []


def test_the_worker_that_runs_models_steps_back_for_the_others(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert services["worker-enrichment"]["cpu_shares"] < 1024  # what the others have
    assert [name for name in services if "cpu_shares" in services[name]] == ["worker-enrichment"]


def test_the_environment_of_our_services_is_made_of_settings(compose: dict[str, Any]) -> None:
    settings = {f"RECOLLECT_{name.upper()}" for name in Settings.model_fields}
    for name in OWN_SERVICES:
        environment = compose["services"][name]["environment"]
        assert environment.keys() - settings == set(), name


def test_a_worker_gets_longer_to_stop_than_it_takes(compose: dict[str, Any]) -> None:
    for name in WORKERS:
        grace = int(compose["services"][name]["stop_grace_period"].removesuffix("s"))
        assert grace > Settings.model_fields["stop_timeout_s"].default, name


def test_prometheus_scrapes_the_services_at_their_ports(compose: dict[str, Any]) -> None:
    document = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))
    scraped = {
        config["job_name"]: (
            config["dns_sd_configs"][0]["names"],
            config["dns_sd_configs"][0]["port"],
        )
        for config in document["scrape_configs"]
        if "dns_sd_configs" in config
    }
    services = compose["services"]
    assert scraped == {
        "recollect-api": (["api"], int(services["api"]["environment"]["RECOLLECT_API_PORT"])),
        "recollect-worker": (
            ["worker-projection"],
            int(services["worker-projection"]["environment"]["RECOLLECT_METRICS_PORT"]),
        ),
        **{
            f"recollect-{stage}": (
                [f"worker-{stage}"],
                int(services[f"worker-{stage}"]["environment"]["RECOLLECT_METRICS_PORT"]),
            )
            for stage in (*list(STAGES)[1:], ARCHIVE)
        },
    }
    jobs = {job for _, text in EXPRESSIONS for job in re.findall(r'job="([^"]+)"', text)}
    # Whether it archives is told by the API, too, and that is watched.
    assert jobs | {f"recollect-{ARCHIVE}"} == scraped.keys()


def test_mounted_files_exist(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), f"{name}: {source}"
                assert volume.endswith(":ro"), f"{name}: {source}"
            else:
                assert source in compose["volumes"], f"{name}: {source}"


def test_all_processes_share_the_archive_and_the_keys_of_sealed_tenants(
    compose: dict[str, Any],
) -> None:
    made = re.findall(r"install -d -o 10001 -g 10001 -m 0700 (.+)", dockerfile())
    folders = set(made[0].split())
    for name in OWN_SERVICES:
        service = compose["services"][name]
        mounted = {volume.rpartition(":")[2] for volume in service["volumes"]}
        # a volume that begins empty is owned by who owns the folder of the image
        assert mounted == folders, name
        given = service["environment"]
        settings = Settings(
            archive_url=given["RECOLLECT_ARCHIVE_URL"], keys_file=given["RECOLLECT_KEYS_FILE"]
        )
        assert settings.keys_file
        assert {str(settings.archive_url), str(settings.keys_file.parent)} == folders


def test_derivations_have_a_redis_of_their_own(compose: dict[str, Any]) -> None:
    for name in OWN_SERVICES:
        given = compose["services"][name]["environment"]
        settings = Settings(
            redis_url=given["RECOLLECT_REDIS_URL"],
            derivations_url=given["RECOLLECT_DERIVATIONS_URL"],
        )
        assert urlsplit(str(settings.derivations_url)).hostname == "derivations"
    volumes = [compose["services"][name]["volumes"][0] for name in ("redis", "derivations")]
    assert volumes == ["redis-data:/data", "derivations-data:/data"]


@pytest.mark.parametrize("name", ["redis", "derivations"])
def test_redis_is_a_database_and_not_a_cache(name: str) -> None:
    lines = (DEPLOY / f"redis/{name}.conf").read_text("utf-8").splitlines()
    conf = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    assert (conf["appendonly"], conf["maxmemory-policy"]) == ("yes", "noeviction")
    assert "requirepass" not in conf
    assert conf["maxmemory"] == "1gb"  # half of the container's limit in docker-compose.yml


# systemd

UNITS = DEPLOY / "systemd"


def test_the_target_has_the_api_and_a_worker_of_every_stage() -> None:
    text = (UNITS / "recollect.target").read_text("utf-8")
    wanted = re.findall(r"recollect-[\w@-]+\.service", text)
    assert wanted == [
        "recollect-api.service",
        *(f"recollect-worker@{worker}.service" for worker in (*STAGES, ARCHIVE)),
    ]


def test_units_set_settings_that_exist_and_wait_for_a_worker_to_stop() -> None:
    settings = {f"RECOLLECT_{name.upper()}" for name in Settings.model_fields} | {SECRETS_FOLDER}
    for unit in UNITS.glob("*.service"):
        text = unit.read_text("utf-8")
        assert set(re.findall(r"(RECOLLECT_\w+)=", text)) <= settings, unit.name
        (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        assert int(stop_s) > Settings.model_fields["stop_timeout_s"].default


def test_systemd_accepts_the_units_and_finds_little_exposed(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    for unit in UNITS.iterdir():
        # verify asks for programs that are there
        text = unit.read_text("utf-8").replace("/opt/recollect/bin/recollect", sys.executable)
        (tmp_path / unit.name).write_text(text, "utf-8")
    instances = [f"recollect-worker@{worker}.service" for worker in (*STAGES, ARCHIVE)]
    for instance in instances:
        (tmp_path / instance).symlink_to("recollect-worker@.service")
    units = ["recollect.target", "recollect-api.service", *instances]
    checked = run("systemd-analyze", "verify", "--man=no", *(tmp_path / unit for unit in units))
    assert (checked.returncode, checked.stderr) == (0, "")
    services = [tmp_path / "recollect-api.service", tmp_path / instances[0]]
    for service in services:
        security = run("systemd-analyze", "security", "--offline=yes", "--threshold=25", service)
        assert security.returncode == 0, security.stdout[-2_000:]


# Image


def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text("utf-8")


def test_the_image_is_built_in_stages_and_runs_without_root() -> None:
    text = dockerfile()
    assert len(re.findall(r"^FROM ", text, re.MULTILINE)) == 2
    last = text[text.rindex("\nFROM ") :]
    assert re.findall(r"^USER (.+)$", last, re.MULTILINE) == ["10001:10001"]
    assert not re.search(r"\b(pip|apt-get|curl)\b", last), "the last stage installs nothing"


def test_everything_in_the_image_is_installed_by_hash_or_built_here() -> None:
    installs = re.findall(r"pip install ([^\\\n&]*)", dockerfile())
    assert len(installs) == 3
    for arguments in installs:
        assert "--require-hashes" in arguments or arguments.strip().endswith("/build/dist/*.whl")
        assert "--no-deps" in arguments


def test_what_the_image_copies_exists_and_is_let_through() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile(), re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert ignored[1] == "*"
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source


PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)([^\\\n]*)\\\n((?:    --hash=\S+(?: \\)?\n?)+)", re.M)


def pins(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    text = re.sub(r"^ *#.*\n", "", path.read_text("utf-8"), flags=re.MULTILINE)
    return {
        name: (version, frozenset(re.findall(r"--hash=(\S+)", hashes)))
        for name, version, _, hashes in PIN.findall(text)
    }


@pytest.mark.parametrize("name", ["requirements.lock", "build-requirements.lock"])
def test_the_image_installs_what_was_tested(name: str) -> None:
    """Same versions and hashes as the lock that `make test` installs."""
    everything, image = pins(ROOT / "requirements.lock"), pins(DEPLOY / name)
    text = (DEPLOY / name).read_text("utf-8")
    assert len(image) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE)) > 0
    different = {key for key, value in image.items() if everything.get(key) != value}
    assert different == set(), "run deploy/lock.sh"


@pytest.mark.parametrize("name", ["requirements.lock", "deploy/requirements.lock"])
def test_no_lock_brings_torch(name: str) -> None:
    """The weights' package asks for it: gigabytes, and spaCy would load it into every process."""
    assert pins(ROOT / name).keys() & {"torch", "sentence-transformers"} == set()


def test_the_image_has_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["models"]]
    wanted = {re.split(r"[<>=\[ ;]", item)[0] for item in needed}
    assert wanted - pins(DEPLOY / "requirements.lock").keys() == set(), "run deploy/lock.sh"


# The bill of materials


def test_the_bill_of_materials_tells_what_is_installed() -> None:
    printed = [run(sys.executable, DEPLOY / "sbom.py").stdout for _ in range(2)]
    assert printed[0] == printed[1], "the same installation, the same document"
    document = json.loads(printed[0])
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert document["metadata"]["component"]["name"] == "recollect"
    told = {one["name"]: one for one in document["components"]}
    assert len(told) == len(document["components"])
    pinned = pins(DEPLOY / "requirements.lock")
    here = {name: version for name, (version, _) in pinned.items() if name in told}
    assert len(here) > 60
    assert {name: told[name]["version"] for name in here} == here
    for name, one in told.items():
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{name}@{one['version']}"
    # of what is told of licences nearly all is told by the packages
    assert sum("licenses" in told[name] for name in here) / len(here) > 0.9
    references = {document["metadata"]["component"]["bom-ref"]}
    references |= {one["bom-ref"] for one in document["components"]}
    assert {one["ref"] for one in document["dependencies"]} == references
    assert {ref for one in document["dependencies"] for ref in one["dependsOn"]} <= references
    (own,) = (
        one for one in document["dependencies"] if one["ref"].startswith("pkg:pypi/recollect@")
    )
    assert f"pkg:pypi/redis@{told['redis']['version']}" in own["dependsOn"]


def test_the_image_holds_its_bill_of_materials() -> None:
    text = dockerfile()
    assert text.index("pip install --no-deps /build/dist") < text.index("sbom.py >")
    assert text.index("> /opt/recollect/sbom.json") < text.index("COPY --from=build")
