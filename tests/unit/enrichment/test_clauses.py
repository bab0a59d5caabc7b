"""Facts from sentences, read by the real language model: what is stated, and what is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enrichment.clauses import text_facts
from enrichment.entities import mentions
from enrichment.ports import Analysis, EntityRecognizer
from enrichment.text import event_text
from pipelines.models.nlp import SpacyRecognizer
from projections.events import Event
from tests.factories import event

STATED = {
    "I work at Acme Corporation.": [("Caroline", "works_at", "Acme Corporation")],
    "I'm working for Google now.": [("Caroline", "works_at", "Google")],
    "Melanie works at Microsoft and lives in Berlin.": [
        ("Melanie", "works_at", "Microsoft"),
        ("Melanie", "lives_in", "Berlin"),
    ],
    "I live in Paris, it's lovely here.": [("Caroline", "lives_in", "Paris")],
    "I'm from Sweden.": [("Caroline", "comes_from", "Sweden")],
    "I work as a nurse.": [("Caroline", "works_as", "nurse")],
    "I work as a nurse at Santa Maria Hospital.": [
        ("Caroline", "works_as", "nurse"),
        ("Caroline", "works_at", "Santa Maria Hospital"),
    ],
    "John visited Italy last year.": [("John", "visited", "Italy")],
    "I've been to Japan twice.": [("Caroline", "visited", "Japan")],
    "I love hiking and pottery.": [
        ("Caroline", "likes", "hiking"),
        ("Caroline", "likes", "pottery"),
    ],
    "I'm a big fan of jazz.": [("Caroline", "likes", "jazz")],
    "I prefer dark mode.": [("Caroline", "prefers", "dark mode")],
    "That's why I love basketball.": [("Caroline", "likes", "basketball")],
    "I really enjoy playing guitar with my friends.": [("Caroline", "likes", "playing guitar")],
    "I'm allergic to peanuts.": [("Caroline", "allergic_to", "peanuts")],
    "I am allergic to latex.": [("Caroline", "allergic_to", "latex")],
    "I prefer e-mail.": [("Caroline", "prefers", "e-mail")],
    "I love non-fiction.": [("Caroline", "likes", "non-fiction")],
    "I love hip-hop.": [("Caroline", "likes", "hip-hop")],
    "I moved from Lisbon to Faro last month.": [
        ("Caroline", "moved_to", "Faro"),
        ("Caroline", "lives_in", "Faro"),
    ],
    "John loves chess.": [("John", "likes", "chess")],
    "I joined a gym last week!": [("Caroline", "joined", "gym")],
    "My dog Max is great. My brother Tom visited London.": [
        ("Caroline", "has_dog", "Max"),
        ("Caroline", "has_brother", "Tom"),
        ("Tom", "visited", "London"),
    ],
    "Our cat Pepper is nine.": [("Caroline", "has_cat", "Pepper")],
    "I went with my little sister Anna.": [("Caroline", "has_sister", "Anna")],
    "Jonas's dad Herman is a baker.": [
        ("Jonas", "has_dad", "Herman"),
        ("Herman", "is_a", "baker"),
    ],
    "my mother is visiting. Lucia. she lands Saturday at noon": [
        ("Caroline", "has_mother", "Lucia")
    ],
    "My daughter has a match. Maja, she's 13.": [
        ("Caroline", "has_daughter", "Maja"),
        ("Maja", "has_age", "13"),
    ],
    "I got a puppy. Her name is Shadow!": [("Caroline", "has_puppy", "Shadow")],
    "We got another cat named Bailey.": [("Caroline", "has_cat", "Bailey")],
    "My brother Tom called. He lives in Oslo.": [
        ("Caroline", "has_brother", "Tom"),
        ("Tom", "lives_in", "Oslo"),
    ],
    "I'm Nadia Ferrante, 34.": [
        ("Caroline", "has_name", "Nadia Ferrante"),
        ("Caroline", "has_age", "34"),
    ],
    "I'm 34 years old.": [("Caroline", "has_age", "34")],
    "John turns 40 on December 2nd.": [("John", "has_birthday", "December 2nd")],
    "I'm vegan, will that work?": [("Caroline", "is_currently", "vegan")],
    "I hate phone calls, could you write to him?": [("Caroline", "dislikes", "phone calls")],
    "Luc's a teacher.": [("Luc", "is_a", "teacher")],
    "Melanie is the project lead.": [("Melanie", "works_as", "project lead")],
    "I was a data engineer at a railway company.": [("Caroline", "worked_as", "data engineer")],
    "I've lived in Ghent since 2019.": [("Caroline", "lives_in", "Ghent")],
    "I've been playing piano for five years.": [("Caroline", "plays", "piano")],
    "I can't eat almonds, I swell up.": [("Caroline", "avoids", "almonds")],
    "John can't stand coriander.": [("John", "dislikes", "coriander")],
    "I can't come, but I love jazz.": [("Caroline", "likes", "jazz")],
    "Trains please, I avoid flying.": [("Caroline", "avoids", "flying")],
    "I'm scared of spiders.": [("Caroline", "afraid_of", "spiders")],
    "Drawing flowers is one of my faves.": [("Caroline", "likes", "drawing flowers")],
    "We love camping.": [("Caroline", "likes", "camping")],
    "We've got a dog.": [("Caroline", "has", "dog")],
    'I\'m reading "Dune" now.': [("Caroline", "reads", "Dune")],
    'I read a novel called "The Name of the Wind".': [("Caroline", "read", "The Name of the Wind")],
    "Have you met my sister Anna?": [("Caroline", "has_sister", "Anna")],
    "Melanie is a nurse.": [("Melanie", "is_a", "nurse")],
    "Seattle is a great city.": [("Seattle", "is_a", "city")],
    "My favorite color is teal.": [("Caroline", "has_favorite_color", "teal")],
    "My dog's name is Rex.": [("Caroline", "has_dog", "Rex")],
    "My new address is Elm Street 5, Bergen.": [
        ("Caroline", "has_address", "Elm Street 5, Bergen")
    ],
    "My phone number is +49 30 901820.": [("Caroline", "has_phone", "+49 30 901820")],
    "Anna is our accountant.": [("Caroline", "has_accountant", "Anna")],
    "Call me Ana.": [("Caroline", "called", "Ana")],
    "I was born in Lisbon.": [("Caroline", "born_in", "Lisbon")],
    "I moved to Oslo last month.": [
        ("Caroline", "moved_to", "Oslo"),
        ("Caroline", "lives_in", "Oslo"),
    ],
    "I moved to Oslo in 2010.": [("Caroline", "moved_to", "Oslo")],
    "We live in Paris now.": [("Caroline", "lives_in", "Paris")],
    "I graduated from Harvard.": [("Caroline", "graduated_from", "Harvard")],
    "The outage was caused by a memory leak.": [],  # which outage is anybody's guess
    "Outages were caused by memory leaks.": [("memory leaks", "caused", "Outages")],
    "High load led to timeouts.": [("High load", "led_to", "timeouts")],
    "Packet loss led to timeouts.": [("Packet loss", "led_to", "timeouts")],
    "Bill Gates founded Microsoft.": [("Bill Gates", "founded", "Microsoft")],
}
NOT_STATED = [
    "I like to relax by reading.",
    "It's why I enjoy playing.",
    "I love playing with the neighbours.",
    "Do I work at Acme Corporation?",
    "Does Melanie live in Berlin?",
    "I don't work at Google.",
    "I never liked hiking.",
    "I no longer live in Paris.",
    "I would love hiking.",
    "I'd love pizza.",
    "I\u2019d like to proceed with these changes.",
    "Melanie might live in Berlin.",
    "If I work at Google, I eat well.",
    "I wish I lived in Paris.",
    "I think Melanie works at Microsoft.",
    "I hope Melanie likes chess.",
    "I'm moving to Berlin next week.",
    "I will visit Italy.",
    "I want to visit Italy.",
    "I used to work at Google.",
    "I worked at Google.",
    "I lived in Paris for years.",
    "Maybe Melanie works at Microsoft.",
    "Neither Melanie nor John likes chess.",
    "He lives in Berlin.",
    "You like chess.",
    "I love it.",
    "I love this.",
    "I like people who help others.",
    "I love my job.",
    'She said "I live in Paris".',
    "Melanie, love that painting!",
    "Melanie and John live in Berlin.",
    "I can speak French.",
    "Imagine I live in Paris.",
    "Unless Melanie lives in Berlin, we meet.",
    "I'm a mess.",
    "Melanie is a star.",
    "I'd rather live in Paris.",
    "I almost joined a gym.",
    "I'm a bit tired.",
    "John didn't visit Italy.",
    "My old address was Elm Street 5.",
    "My favorite color was teal.",
    "Don't call me Ana.",
    "My question is why.",
    "His favorite color is teal.",
    "My old colleague Anna called.",
    "Anna called Maria. She is 34.",
    "My sister called Anna. She is 34.",
    "Mel, she's 13.",
    "I'm 5 minutes away.",
    "It's 34.",
    "John is diabetic.",
    "Melanie is pregnant.",
    "I was a mess at the party.",
    "Melanie is the reason.",
    "I've been in Paris.",
    "I can't eat now.",
    "I could never stand by.",
    'He said "I love jazz".',
    "It is one of his favorites.",
]


@pytest.fixture(scope="module")
def recognizer() -> Iterator[EntityRecognizer]:
    with SpacyRecognizer() as made:
        yield made


def message(words: str) -> Event:
    return event(agent_id="Caroline", payload={"text": words})


def read(made: Event, analysis: Analysis) -> list[tuple[str, str, str]]:
    text = event_text(made)
    found = text_facts(made, text, analysis, mentions(made, text, analysis), position_ms=1)
    return [(one.source.name, one.relation, one.target.name) for one in found]


@pytest.mark.parametrize(("words", "expected"), STATED.items())
def test_what_a_sentence_states(
    words: str, expected: list[tuple[str, str, str]], recognizer: EntityRecognizer
) -> None:
    assert read(message(words), *recognizer.analyze([words])) == expected


@pytest.mark.parametrize("words", NOT_STATED)
def test_what_a_sentence_does_not_state(words: str, recognizer: EntityRecognizer) -> None:
    assert read(message(words), *recognizer.analyze([words])) == []


def test_i_of_an_assistant_is_nobody(recognizer: EntityRecognizer) -> None:
    words = "I love hiking."
    analysis = recognizer.analyze([words])[0]
    said = {"role": "assistant", "content": words}
    assert read(event(agent_id="assistant", payload=said), analysis) == []


def test_i_of_a_user_is_the_user_of_the_event(recognizer: EntityRecognizer) -> None:
    words = "I love hiking."
    analysis = recognizer.analyze([words])[0]
    said = event(agent_id="user", payload={"role": "user", "content": words})
    assert read(said, analysis) == []
    named = said._replace(user_id="mia_li_3668")
    assert read(named, analysis) == [("mia_li_3668", "likes", "hiking")]


def test_an_end_that_the_event_mentions_is_that_entity(recognizer: EntityRecognizer) -> None:
    words = "I live in Paris."
    made = message(words)
    text = event_text(made)
    analysis = recognizer.analyze([words])[0]
    found = mentions(made, text, analysis)
    (fact,) = text_facts(made, text, analysis, found, position_ms=1)
    names = {(one.canonical_name, one.entity_type) for one in found}
    assert {(end.canonical_name, end.entity_type) for end in (fact.source, fact.target)} <= names


def test_without_an_analysis_there_are_no_facts() -> None:
    assert read(message("I live in Paris."), Analysis()) == []


def test_the_language_of_results_states_nothing(recognizer: EntityRecognizer) -> None:
    words = "Melanie works at Microsoft."
    made = event(event_type="tool.result", tool_name="search", payload={"result": words})
    assert read(made, *recognizer.analyze([words])) == []


def test_who_speaks_as_the_user_is_the_user(recognizer: EntityRecognizer) -> None:
    made = event(
        agent_id="caroline.k",
        user_id="u-77",
        event_type="message.user",
        payload={"role": "user", "content": "I live in Paris."},
    )
    (analysis,) = recognizer.analyze([event_text(made).text])
    assert read(made, analysis) == [("u-77", "lives_in", "Paris")]
