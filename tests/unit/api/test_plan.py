"""What a question asks for: phrasings of every operator, none of them of a data set."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.retrieval.plan import Operator
from api.retrieval.plan_phrases import ROWS
from api.retrieval.planning import WHAT_HAPPENED, plan_of
from api.retrieval.query_terms import MAX_SEARCHED_CHARACTERS, as_meant

NOW_MS = 1_795_543_200_000  # 2026-11-24T18:00Z

PHRASINGS: dict[Operator, tuple[str, ...]] = {
    Operator.CAUSE: (
        "RCA the frozen clock in hall 4 please",
        "The original error of the tram sweep, one line will do.",
        "nobody wrote down what the move of crate 7 stumbled on",
        "All shelves say E-81. did ops ship something",
        "Why did the payment fail?",
        "Why do my customers' payments keep failing?",
        "What went wrong with the import?",
        "What caused the outage?",
        "For what reason was the booking refused?",
        "How come there is no invoice?",
        "What is the root cause of the 503 on checkout?",
        "What lies behind the empty report?",
        "Which change led to the slow queries?",
        "What prevented the upload?",
        "Explain why the backup did not run.",
        "the lost keys of hall 4: culprit?",
        "Where does the double entry come from?",
        "The nightly export: what was the problem?",
        "The gap in the ledger: brought about by which change?",
        "What is to blame for the late trains?",
        "What could account for the double booking, and what accounts for the refund?",
        "From what stems the red light on pump 4?",
        "What does the surcharge result from?",
        "What was the blocker on the purge of the snapshot?",
        "Where the hell does the double entry come from?",
        "A guest of mine would like to understand the trouble with the double entry.",
    ),
    Operator.LESSON: (
        "one like the rusty gate came in, what did we do that time so it went",
        "delta between failing and passing run, the export",
        "How was the import fixed?",
        "How did we get the printer to work in the end?",
        "What fixed the login?",
        "What helped with the login?",
        "What should I do next time with the export?",
        "What was changed so that the upload went through?",
        "What did the successful attempt at the booking do differently?",
        "The sync failed at first; what helped?",
        "What was the workaround for the login?",
        "How did you solve the disk problem?",
        "What should I do when the disk is full?",
        "What can we try if the upload is refused?",
        "How was the import made to work?",
        "At first it did not want. What have we done different with the import?",
    ),
    Operator.HOW_DOES: (
        "How does Ana Berg usually close the month?",
        "How does cust-17 normally go about a return?",
        "How does Ana deal with late orders?",
        "How does Ana close the month?",
        "What are Ana's usual steps for a return?",
        "What is the typical procedure of Ana for a return?",
    ),
    Operator.PERSONALIZE: (
        "What should I keep in mind for Ana when I send the invoice?",
        "What should I know before I call Ana?",
        "What do I need to know about Ana when she calls?",
        "What must we avoid with Ana?",
        "Tailor the reply for Ana.",
        "Personalize this for cust-17: which offer do we send?",
    ),
    Operator.CALLS: (
        "Which tools were used for the booking?",
        "I want the booking of order 4711 as a list: which calls, please?",
        "What tools did the support agent use for order 4711?",
        "What tools were used in session Z?",
        "List the tool calls for the refund.",
        "Show me every call that belongs to the booking.",
        "What did the agent call to handle the refund?",
        "By which steps was the move done?",
    ),
    Operator.FAILURES: (
        "tell me the function that broke in the tide report",
        "Which step of the firing of kiln K-2 blew up?",
        "Please list those steps of the firing of kiln K-2 that were answered with a refusal.",
        "did any dns call error out?",
        "Have any of the nightly jobs timed out?",
        "Which calls failed during the booking?",
        "List the failed attempts at the upload.",
        "What errors did we get with the import?",
        "Show the errors we got with the import.",
        "Which attempts at the booking ended in an error?",
        "What failures were there in the nightly run?",
        "Which tool did not work when we tried the export?",
        "Which tool calls failed for Ana?",
        "What failed yesterday?",
        "Exceptions, time-outs, non-2xx: what do we have for the import of the leads?",
    ),
    Operator.ACTOR: (
        "Who approved the discount?",
        "Tell me who changed the limit.",
        "Which person signed off the release?",
        "I need the name of whoever closed the account.",
        "By whom was the order cancelled?",
        "Which agent took over the case?",
    ),
    Operator.TIME: (
        "Find out the exact date on which the pot was glazed.",
        "send the invoice of Ana: settled on?",
        "When was the release?",
        "When did the migration take place?",
        "On which day did we ship the parcel?",
        "What day was the audit?",
        "Since when is the limit 500?",
        "Give me the date of the last outage.",
        "What is the date of the audit?",
        "How long did the audit take?",
        "How long was session s-12?",
    ),
    Operator.LAST: (
        "Just the freshest message from Ana, please.",
        "What did Ana say last?",
        "What was the last thing Ana wrote?",
        "Show me the most recent message from Ana.",
        "What has Ana told us most recently?",
        "What is the latest word from Ana?",
    ),
    Operator.FIRST: (
        "So Ana walks in with the export and says what, exactly?",
        "What did Ana say first about the refund?",
        "What was the first message on the outage?",
        "How did the conversation on pricing begin?",
        "With which words did Ana bring up the refund?",
        "What did Ana originally ask for?",
        "What did Ana ask for first?",
        "What was the first thing that happened on Monday?",
    ),
    Operator.WINDOW: (
        "What happened yesterday?",
        "What happened with Ana on 15 November?",
        "What did we do for Ana between 9 November and 10 November?",
        "Give me the events of last week.",
        "On Sunday, what went on with Ana?",
        "What did the agent do yesterday?",
        "Summarise yesterday.",
        "Sum up what happened on Sunday.",
    ),
    Operator.AFTER: (
        "t+1 for the refused export",
        "What happened after the refusal?",
        "What came right after the crash?",
        "After the deploy, what was done next?",
        "What was the next step following the rejection?",
        "And then, after the crash?",
        "What happened since the deploy?",
    ),
    Operator.BEFORE: (
        "t-1 for the refused export",
        "What happened before the crash?",
        "What preceded the refusal?",
        "Which steps led up to the outage?",
        "Before the crash, what took place?",
        "What was done right before the deploy?",
        "just b4 the crash, what did we do",
        "Describe the step that antedates the refused export.",
    ),
    Operator.COUNT: (
        "It was how much times that the mill threw the belt?",
        "How many time the loading of the barge stopped? I ask for statistic.",
        "Total, please: the ferry stopped receiving the tide.",
        "Number of times the fax bounced?",
        "How often did the login fail?",
        "How many times was the order changed?",
        "Count how often the job timed out.",
        "In how many cases was the parcel late?",
        "What is the number of times the job crashed?",
        "How many failures were there?",
        "How many deploys failed?",
        "Number of occasions when the kiln was refused?",
        "For the board: instances on record in which the lift stuck?",
        "Give me a tally of the times the scanner rejected a badge.",
        "The lift got stuck between two floors - qty?",
        "tally pls, the lift stuck between two floors",
        "State the frequency: the lift got stuck between two floors.",
    ),
    Operator.USERS: (
        "Register of all parties who asked for a second key?",
        "Which of our users had a late parcel?",
        "Who of all customers asked for a refund?",
        "List the users who were locked out.",
        "Give me everyone who got a 403.",
        "Across all accounts, who had a failed login?",
    ),
    Operator.VALUE: (
        "What is the plan of Ana?",
        "What is Ana's address now?",
        "Which value does the limit have at present?",
        "Remind me of the address of Ana, please.",
        "I need the address of Ana, please.",
        "Which phone number has Ana?",
        "Which bed does Ana have?",
        "Who is the owner of invoice-core?",
        "Who is my phone contract with?",
    ),
    Operator.VALUE_BEFORE: (
        "What was the limit before the last change?",
        "What did the limit use to be?",
        "What was payments.gateway.timeout_s before?",
        "What was Ana's address previously?",
        "What is the former value of the limit?",
        "What was her old address?",
        "What was it before the change?",
        "Before the latest update, what was the limit?",
    ),
    Operator.VALUE_AT: (
        "What was cdn.images.origin on 15 November?",
        "What was Otto Lind's car registration on 23 November?",
        "What was the limit on 15 November?",
        "As of 15 November, what was the limit?",
        "Tell me the limit as of 15 November.",
        "Which value did the limit have on 15 November?",
    ),
    Operator.PREFERENCE: (
        "I'd rather not annoy Ayla. When it comes to soup, what's the wish?",
        "there is something they want about the lamps, isn't there",
        "Did Ana leave word on the export?",
        "How should the training of the guards be done?",
        "What does Ana prefer for delivery?",
        "How does Ana want us to do the billing?",
        "How should we go about delivery with Ana?",
        "Which way of contact does Ana like?",
        "Delivery: what does Ana want?",
        "What are the wishes of Ana about billing?",
        "Is there a special wish of Ana for delivery when it rains?",
        "What exception did Ana make for the case that it rains?",
    ),
    Operator.PROFILE: (
        "Tell me about Ana Berg.",
        "Who is Ana Berg?",
        "What do we know about Ana Berg?",
        "Who is Ana Berg, and what should I keep in mind?",
        "Give me a profile of Ana Berg.",
        "Brief me on Ana Berg.",
        "Who is ana_berg_47?",
        "profile of ana_berg_47",
        "Which information is held about Ana Berg at present?",
    ),
    Operator.SIMILAR: (
        "no no no >> E_DAMP 0.31 shelf 9 << did that happen before",
        "Find events similar to the refund that timed out.",
        "Have we seen this before: DiskError: no space left on /data",
        "Did something like this happen earlier? ConnectTimeout: 30 s",
        'I just got "OutOfRange: 17 is not in 1..9". Is that new?',
        "DiskError: no space left on /data",
        "In the hall monitor, FX-90 (b8): crane stopped, stamp 16 min behind. Prior occurrences?",
        "Find earlier cases of: AUTH_FAILED for client 12",
        "Was there anything like this before?",
    ),
    Operator.PROMISE: (
        "What did we promise Ana that is still open?",
        "What do we still owe Ana?",
        "Which commitment to Ana is not kept yet?",
        "Is there anything left to do for Ana?",
        "What was promised to Ana?",
        "What did the agent promise?",
    ),
    Operator.OPEN: (
        "Is anything still open?",
        "What is still open?",
        "What is outstanding for Ana?",
        "Which tickets are open?",
        "Is ticket T-61 still open?",
        "Which approvals are pending?",
        "Are there any open tasks?",
        "Are any deliveries still outstanding?",
        "How many builds are still unfinished?",
        "What has not been done yet?",
        "Which cases have not been resolved yet?",
        "List all open incidents",
        "What remains unresolved?",
        "Is order 12 still pending?",
        "Is there anything left to do?",
    ),
    Operator.SUMMARY: (
        "Summarise session s-12.",
        "Sum up this session.",
        "What was session s-12 about?",
        "Sorry, I was away. What has all this been about?",
        "Give me the gist of session s-12.",
        "Recap s-12 for me.",
        "What happened in this session?",
    ),
    Operator.SEARCH: (
        "What did I promise Ana?",
        "Who or what is kiln_4711 meant to be?",
        "Does Ana have a cat?",
        "Order 4711",
        "Is the office open at night?",
        "Is the shop open?",
        "Which file is open in the editor?",
    ),
}


@pytest.mark.parametrize(
    ("operator", "question"),
    [(operator, question) for operator, questions in PHRASINGS.items() for question in questions],
)
def test_what_a_question_asks_for(operator: Operator, question: str) -> None:
    assert plan_of(question, NOW_MS).operator is operator


def test_every_operator_has_its_phrasings() -> None:
    assert set(PHRASINGS) == set(Operator)


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        ("How was the broken printer fixed?", "the broken printer"),
        ("How often did the login fail?", "the login fail"),
        ("What was the timeout before?", "the timeout"),
        ("What was Ana's previous address?", "What was Ana's address"),
        ("How long did the audit of Oslo take?", "the audit of Oslo"),
        ("What was the limit on 15 November?", "limit"),
        ("Which calls failed during the booking?", "the booking"),
        ("What is Ana's address now?", "Ana's address"),
        ("Which parcels are still open between 9:00 and 10:00 on Monday?", "parcels"),
        ("Is anything unresolved since Monday?", "Is anything unresolved"),
        ("What happened right before the crash?", "the crash"),
        ("What does the file show for the desk of Ana Sato?", "the desk of Ana Sato"),
        ("A form asks me: the size of kiln K-12?", "the size of kiln K-12"),
        (
            "The page of 16 November is torn. The desk of Ana Sato, at that time?",
            "The desk of Ana Sato",
        ),
        (
            "On 14 November, my day... what did I hear of the desk of Ana Sato?",
            "the desk of Ana Sato",
        ),
        ("Where did Ana live before Coimbra?", "Ana live before Coimbra"),
        ("Which role does Ana Sato have on the ward?", "role of Ana Sato on the ward"),
        (
            "Please state the rate of Ana's service account as it was",
            "the rate of Ana's service account",
        ),
        ('I just got "DiskError: no space left". Is that new?', "DiskError: no space left"),
    ],
)
def test_what_a_question_is_about(question: str, topic: str) -> None:
    assert plan_of(question, NOW_MS).topic == topic


@pytest.mark.parametrize(
    ("question", "operator"),
    [
        ("Quick, somebody is on the line: the desk of Ana Sato?", Operator.VALUE),
        ("What was Ana's city before Coimbra?", Operator.VALUE_BEFORE),
        ("What was the pool size before the rollback?", Operator.VALUE_BEFORE),
        ("What was the last step before the crash?", Operator.BEFORE),
        ("Is the kiln of Ana Sato mentioned anywhere?", Operator.SEARCH),
        ("In which city is Ana?", Operator.VALUE),
        ("Ana's phone number?", Operator.VALUE),
        ("What role do I have in the studio?", Operator.VALUE),
        ("What is my role?", Operator.VALUE),
        ("What problems do we have?", Operator.FAILURES),
        ("Ana Sato's desk", Operator.VALUE),
        ("Ana's uploads?", Operator.SEARCH),
        ("Ana's problem?", Operator.SEARCH),
        ("What plan did Ana have before?", Operator.VALUE_BEFORE),
        ("On what server is the staging cluster?", Operator.VALUE),
        ("What is issue 815 about?", Operator.SEARCH),
        ("I found GI.713166 in the ledger, what is it from?", Operator.SEARCH),
        ("The limit of Ana's card, what is it?", Operator.VALUE),
        ("Our auditor calls. What is issue 815 about?", Operator.SEARCH),
        ("How many people was the dinner for?", Operator.SEARCH),
        ("How many people were waiting for a refund?", Operator.USERS),
        ("What requests did we open?", Operator.SEARCH),
        ("What did I say about the pool?", Operator.SEARCH),
        ("a separate coach for beginners, had I said something on that?", Operator.SEARCH),
    ],
)
def test_a_value_of_what_has_a_name_is_asked_for(question: str, operator: Operator) -> None:
    assert plan_of(question, NOW_MS).operator is operator


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("waht did teh agent do b4 it", "what did the agent do before it"),
        ("hwo many, whend and whcih", "how many, when did and which"),
        ("whyd it fail", "why did it fail"),
        ("Who merged PR 481, not pr-9?", "Who merged pull request 481, not pr-9?"),
        ("Which desk has room B4, HTE or the_hte?", "Which desk has room B4, HTE or the_hte?"),
    ],
)
def test_words_that_ask_are_read_as_they_are_meant(typed: str, meant: str) -> None:
    assert as_meant(typed) == meant
    assert plan_of(typed, NOW_MS) == plan_of(meant, NOW_MS)


def test_a_time_that_is_not_meant_limits_nothing() -> None:
    day = plan_of("What was the limit on 15 November?", NOW_MS).spans
    assert day
    assert plan_of("The limit as of 15 November, please, not as it is today.", NOW_MS).spans == day
    assert plan_of("The limit on 15 November, not today's?", NOW_MS).spans == day


def test_the_value_that_is_not_meant_is_not_asked_for() -> None:
    plan = plan_of("Latest on the limit of Ada Byron pls, not the old one", NOW_MS)
    assert plan == plan_of("Latest on the limit of Ada Byron pls", NOW_MS)
    assert plan.operator is Operator.VALUE
    assert "stale" in plan_of("Why is the glaze of Ada Byron not stale?", NOW_MS).topic


def test_the_summary_of_a_day_is_all_of_it_however_that_is_understood() -> None:
    question, summary = "Summarize what happened yesterday", Operator.SUMMARY
    for besides in (frozenset[Operator](), frozenset({summary})):
        plan = plan_of(question, NOW_MS, besides=besides)
        assert (plan.operator, plan.topic) == (Operator.WINDOW, WHAT_HAPPENED)


def test_when_something_may_be_is_ahead() -> None:
    meant = frozenset(Operator) - {Operator.TIME}
    assert plan_of("When may the lift be used?", NOW_MS, besides=meant).ahead
    assert not plan_of("When was the lift used?", NOW_MS).ahead


def test_a_time_of_day_that_a_record_says_is_no_time_at_which_it_was_entered() -> None:
    question = "The window of Zofia now reads 16:05 to 17:35. On which date was this entered?"
    plan = plan_of(question, NOW_MS)
    assert plan.operator is Operator.TIME
    assert not plan.spans
    assert "16:05 to 17:35" in plan.timeless
    assert plan_of("When between 9:00 and 10:00 did the van leave?", NOW_MS).needs_day


def test_a_day_that_something_is_of_leaves_no_name_behind() -> None:
    query = "I correct the minutes of 3 March. As the desk of Ana Sato, what should they say?"
    assert plan_of(query, NOW_MS).topic == "the desk of Ana Sato"


def test_what_stands_behind_a_question_is_quoted_if_it_looks_like_an_error() -> None:
    assert plan_of("Who set the blue label? Login suffices.", NOW_MS).quoted == ""
    assert plan_of("Seen this? E_FULL, queue 7", NOW_MS).quoted == "E_FULL, queue 7"
    assert plan_of("oh >> E_FULL, queue 7 << again?", NOW_MS).quoted == "E_FULL, queue 7"


@pytest.mark.parametrize(
    ("before", "pasted", "behind"),
    [
        (
            "04:10, the kiln prints: ",
            "probe_lag=31 s on ring 4e-11",
            " I feel we had that once, when?",
        ),
        ("Look at this: ", 'lid (3): {"code": "E_LID"}', " Who cured it and how?"),
        ("The oven shows ", "LID_OPEN ring 3 (of 9)", " Do you know what one did?"),
        ("It reads: ", "ring 4 stopped at 16 GiB", " Was that ever there?"),
    ],
)
def test_an_error_that_is_pasted_is_quoted_without_quotation_marks(
    before: str, pasted: str, behind: str
) -> None:
    plan = plan_of(f"{before}{pasted}{behind}", NOW_MS)
    assert (plan.operator, plan.quoted) == (Operator.SIMILAR, pasted.replace('"', "'"))


@pytest.mark.parametrize(
    "question",
    [
        "My plan: fire ring 4 at 900 degrees. Who set that?",
        "Two things: who fired ring 4? Ask Ana",
        "The kiln of Ana (ring 4) Did it fire?",
    ],
)
def test_what_is_no_error_is_not_quoted(question: str) -> None:
    assert plan_of(question, NOW_MS).quoted == ""


def test_what_is_so_today_may_have_been_so_for_long() -> None:
    now = "The glaze of Ada Byron, the one that's valid today?"
    assert (plan_of(now, NOW_MS).operator, plan_of(now, NOW_MS).spans) == (Operator.VALUE, ())
    assert plan_of("What was the glaze of Ada Byron this morning?", NOW_MS).spans
    left = "Anything promised to Ada that is left undone? I could do it tonight."
    assert (plan_of(left, NOW_MS).operator, plan_of(left, NOW_MS).spans) == (Operator.PROMISE, ())
    assert plan_of("What did we promise Ada since Monday?", NOW_MS).spans


def test_all_about_somebody_on_a_day_is_what_happened_on_it() -> None:
    assert plan_of("Ana on Wednesday, fill me in real quick", NOW_MS).operator is Operator.WINDOW
    assert plan_of("Ana, fill me in real quick", NOW_MS).operator is not Operator.WINDOW


def test_whether_something_about_somebody_is_so_asks_for_no_promise() -> None:
    question = "Ought we to write briefly to Ana on account of a reading disorder?"
    assert plan_of(question, NOW_MS).operator is not Operator.PROMISE


@pytest.mark.parametrize(
    "question",
    [
        "the flour of the bakery on Elm - qty?",
        "Give me the total: invoice R-26-111 of the gala",
    ],
)
def test_how_much_of_something_is_no_count(question: str) -> None:
    assert plan_of(question, NOW_MS).operator is not Operator.COUNT


def test_a_time_limits_what_is_asked_for() -> None:
    plan = plan_of("What happened with Ana yesterday?", NOW_MS)
    assert len(plan.spans) == 1
    assert plan_of("What happened with Ana?", NOW_MS).operator is not Operator.WINDOW


@pytest.mark.parametrize(
    ("question", "failed"),
    [
        ("What came after the rejected order?", True),
        ("What came before the order that was accepted?", False),
        ("What came after the order?", None),
        ("What came before the upload that the server took?", False),
        ("What came before the upload that was let through?", False),
        ("What came before the call that brought the lamp online?", False),
        ("The confirmed booking: what came directly before that?", False),
        ("What came before the upload that failed?", True),
        ("What came after the rejection of the order?", True),
        ("When was it that the upload was sent?", None),
        ("Why did the pump not start?", True),
        ("Why couldn't the parcel be delivered?", True),
        ("Why was the parcel delivered?", False),
        ("Why did the pump start?", None),
        ("When did the pump break?", True),
        ("What was the hiccup with the order?", True),
        ("What came after the order that was knocked back?", True),
        ("Why is the pump's timeout 20 seconds?", None),
        ("Why is there a timeout at the pump?", True),
    ],
)
def test_whether_it_asks_about_what_failed(question: str, failed: bool | None) -> None:
    assert plan_of(question, NOW_MS).failed is failed


def test_it_is_told_when_the_session_is_meant() -> None:
    assert plan_of("Sum up this session.", NOW_MS).session
    assert plan_of("Catch me up on this one please, I came late.", NOW_MS).session
    assert not plan_of("Sum up session s-12.", NOW_MS).session
    assert not plan_of("Sum up this week's deliveries.", NOW_MS).session


@given(st.text(max_size=300))
def test_any_text_has_a_plan_with_a_topic(query: str) -> None:
    plan = plan_of(query, NOW_MS)
    assert 0 <= plan.confidence <= 1
    assert plan.topic or not query.strip()


@pytest.mark.parametrize("letter", ["a ", "what ", "did ", "before ", "the last ", "(", "how "])
def test_a_long_text_is_planned_in_a_blink(letter: str) -> None:
    """Patterns with gaps must not go back and forth over each other."""
    plan_of(letter * (MAX_SEARCHED_CHARACTERS // len(letter)), NOW_MS)


@pytest.mark.parametrize(
    ("question", "operator"),
    [
        ("How long did the audit take?", Operator.TIME),
        ("What was the duration of the audit?", Operator.TIME),
        ("How much time did it take to load the parcel?", Operator.TIME),
        ("How long did it take to fix the login?", Operator.LESSON),
    ],
)
def test_how_long_it_took_is_asked_of_an_act_or_of_what_was_solved(
    question: str, operator: Operator
) -> None:
    plan = plan_of(question, NOW_MS)
    assert (plan.operator, plan.lasting) == (operator, True)


@pytest.mark.parametrize("question", ["How long ago was the audit?", "How was the login fixed?"])
def test_no_stretch_of_time_is_asked_for(question: str) -> None:
    assert not plan_of(question, NOW_MS).lasting


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        ("Summarise yesterday.", "what happened"),
        ("Summarise what the lab agent did yesterday.", "what the lab agent did"),
    ],
)
def test_a_day_is_summed_up_by_what_happened(question: str, topic: str) -> None:
    assert plan_of(question, NOW_MS).timeless.split() == topic.split()


def test_a_session_of_a_day_is_still_summed_up_as_one() -> None:
    assert plan_of("Summarise the session of yesterday.", NOW_MS).operator is Operator.SUMMARY


def test_bounds_of_a_row_are_bounds() -> None:
    """In an f-string `{0,12}` is a pair of numbers, and no row that has it says so."""
    pair = re.compile(r"\(\d+, ?\d+\)|\{\d+, \d+\}")
    assert [row for *_, rows in ROWS for row in rows if pair.search(row)] == []


@pytest.mark.parametrize(
    ("question", "is_limited"),
    [
        ("I'm preparing a talk for Ann on Monday. What did they ask of us?", False),
        ("I take over Ann from a colleague on Monday. What should I be aware of?", False),
        ("I see that the kiln failed on Monday. What happened?", True),
        ("I'm preparing a report. What happened on Monday?", True),
    ],
)
def test_what_it_is_asked_for_limits_nothing(question: str, *, is_limited: bool) -> None:
    assert bool(plan_of(question, NOW_MS).spans) is is_limited


@pytest.mark.parametrize(
    ("question", "failed"),
    [
        ("What came after the hold on BP-26?", True),
        ("What came before the stopped firing of BP-26?", True),
        ("What came after the firing of BP-26?", None),
    ],
)
def test_what_was_held_up_did_not_go_on(question: str, failed: bool | None) -> None:
    assert plan_of(question, NOW_MS).failed is failed


@pytest.mark.parametrize(
    ("question", "operator"),
    [
        ("Ann, the kiln: any instruction?", Operator.PREFERENCE),
        ("Set out the arrangement agreed with Ann concerning kilns.", Operator.PREFERENCE),
        ("How would you sum this up for the file?", Operator.SUMMARY),
        ("E-77 door ajar ... I'm sure I've seen it, what did we do then", Operator.SIMILAR),
        ("The kiln door jammed, that I know. What I don't know is the figure.", Operator.COUNT),
        ("Names of all who had a cold kiln.", Operator.USERS),
        ("The file on K-2 opens with a statement of Ann, which we need.", Operator.FIRST),
        ("The firing came through and something led into it, what", Operator.BEFORE),
        ("The stop on K-2 surely wasn't the end of it.", Operator.AFTER),
        ("State the penultimate entry for the limit of K-2.", Operator.VALUE_BEFORE),
        ("Before I burn another afternoon: what turned the no into a yes?", Operator.LESSON),
        ("The rejection of K-2 fell from the sky. What happened before?", Operator.CAUSE),
        ("The kiln failed. What led to it?", Operator.CAUSE),
        ("Did the kiln fail more than once? I need a number, not a feeling.", Operator.COUNT),
    ],
)
def test_more_ways_to_ask(question: str, operator: Operator) -> None:
    assert plan_of(question, NOW_MS).operator is operator
