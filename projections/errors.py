"""Every error Recollect raises, as one tree.

```
RecollectError
├── InvalidInput               the caller's fault; names each field and its rule      (422)
│   ├── InvalidEvent           an envelope that breaks a rule
│   └── SubjectErased          it is about somebody who was erased
├── EventConflict              same id, other content                                 (409)
├── ConfigurationError         settings that contradict each other
├── LedgerError
│   ├── LedgerUnavailable      Redis is away                              (503, retryable)
│   │   ├── ClockAhead         its server's time is far ahead of ours     (503, retryable)
│   │   ├── ArchiveUnavailable  its older entries are away                (503, retryable)
│   │   └── KeysUnavailable    keys of sealed events are not at hand      (503, retryable)
│   ├── ArchiveDamaged         a file of the archive is not what was written          (503)
│   ├── LedgerFormatMismatch   another format version or partition count
│   ├── GraphAhead             a checkpoint names an entry that the ledger lost       (503)
│   └── UndecodableEntry       an entry that is not an event                      (poison)
│       └── EntryHeldOut       an entry that is not what was appended             (poison)
├── GraphError
│   ├── GraphUnavailable       Neo4j is away or asks to try again         (503, retryable)
│   │   └── TransactionTimeout  a transaction took longer than its limit
│   ├── QueryTimeout           the database stopped a query at its limit              (504)
│   ├── Fenced                 the checkpoint is not where the block starts
│   ├── FoldVersionMismatch    the graph was folded by other rules: rebuild
│   ├── ModelsMismatch         it was derived with other models: rebuild
│   ├── ChangesLost            the graph no longer tells what changed: load it anew
│   ├── UpstreamDeadLetter     an earlier stage could not fold the entry          (poison)
│   └── GraphRejected          the database refuses an operation                  (poison)
├── ModelError
│   ├── ModelUnavailable       a model is not installed, or its files are damaged
│   └── ModelFailed            a model gave up on a text                         (poison)
├── DerivationsUnavailable     the store of derivations is away: they are made again
├── InvalidOperation           a fold wrote what the schema's rows do not allow   (poison)
├── UnknownSystemEvent         a `memory.*` type that no stage owns               (poison)
├── StageHeld                  too many different entries fail: none is given up
├── Stopped                    the process is stopping; nothing was changed
├── PassUnderWay               another pass of consolidation runs             (retryable)
├── ArchiverUnderWay           another process archives                       (retryable)
├── StageBehind                a stage has not folded what a command looks at (retryable)
├── UnknownTarget              no target of that name is registered
└── OperationFailed            a command could not do what was asked
```

The class docstring is the message, filled with the data given as keywords; the same data are attributes.
`retryable` means: the same call may succeed later, and trying again loses and doubles nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar


class RecollectError(Exception):
    """Something went wrong in Recollect"""

    retryable: ClassVar[bool] = False

    def __init__(self, **data: Any) -> None:
        super().__init__(data)
        self.data = data
        for name, value in data.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        """The docstring with the data filled in."""
        template = (type(self).__doc__ or type(self).__name__).strip()
        return template.format(**self.data)

    def __reduce__(self) -> tuple[Any, ...]:
        """Keywords survive pickling between processes."""
        return (_restore, (type(self), self.data))


def _restore(kind: type[RecollectError], data: dict[str, Any]) -> RecollectError:
    return kind(**data)


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error came of Ctrl-C: what was interrupted may fail while it cleans up."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


class InvalidInput(RecollectError):
    """Invalid input: {summary}"""

    errors: tuple[tuple[str, str], ...]

    def __init__(self, errors: tuple[tuple[str, str], ...]) -> None:
        """Collect `errors`, pairs of (field, rule)."""
        super().__init__(
            errors=errors, summary="; ".join(f"{field}: {rule}" for field, rule in errors)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """The only argument is the tuple of errors."""
        return (type(self), (self.errors,))


class InvalidEvent(InvalidInput):
    """Invalid event: {summary}"""


class SubjectErased(InvalidInput):
    """An event is about somebody who was erased: nothing more is taken about them ({summary})"""

    def __init__(self) -> None:
        """Of the field by which it is about them."""
        super().__init__((("user_id", "nobody who was erased"),))

    def __reduce__(self) -> tuple[Any, ...]:
        """It has no arguments."""
        return (type(self), ())


class EventConflict(RecollectError):
    """Event {event_id} is in the ledger with other content (field event_id: same id, same content)"""

    event_id: str


class ConfigurationError(RecollectError):
    """Configuration: {reason}"""

    reason: str


class LedgerError(RecollectError):
    """Ledger: {reason}"""

    reason: str


class LedgerUnavailable(LedgerError):
    """The ledger is away: {reason}"""

    retryable = True


class ClockAhead(LedgerUnavailable):
    """The time of the ledger's server is {seconds:.0f} s later than allowed (clock_ahead_s past this process' own): set the clocks right; nothing was appended"""

    seconds: float


class ArchiveUnavailable(LedgerUnavailable):
    """The archive at {url} is away: {reason}; entries that are still in Redis are not concerned"""

    url: str


class ArchiveDamaged(LedgerError):
    """The archive is damaged: {name} breaks the rule that {rule}"""

    name: str
    rule: str


class KeysUnavailable(LedgerUnavailable):
    """What is sealed cannot be read or written now, the keys are away: {reason}"""


class LedgerFormatMismatch(LedgerError):
    """The ledger has {found}, the settings say {expected} (fixed when a ledger is created)"""

    found: str
    expected: str


class GraphAhead(LedgerError):
    """Partition {partition} is halted: checkpoint {position} names an entry that the ledger no longer has; run `recollect recover`"""

    partition: int
    position: str


class UndecodableEntry(LedgerError):
    """Entry {position} of partition {partition} is not an event: {reason}"""

    partition: int
    position: str


class EntryHeldOut(UndecodableEntry):
    """Entry {position} of partition {partition} is {reason}: it is held out until its event is sent again"""


class GraphError(RecollectError):
    """Graph: {reason}"""

    reason: str


class GraphUnavailable(GraphError):
    """The graph is away or asks to try again: {reason}"""

    retryable = True


class TransactionTimeout(GraphUnavailable):
    """A transaction took longer than its limit: {reason}"""


class QueryTimeout(GraphError):
    """The database stopped the query after {timeout_ms} ms"""

    timeout_ms: int


class Fenced(GraphError):
    """The checkpoint of {stage}/{partition} is not at {position} (generation {generation}): another worker has moved it"""

    stage: str
    partition: int
    position: str
    generation: int


class FoldVersionMismatch(GraphError):
    """The graph was folded by version {found} of {stage}, this is version {expected}: rebuild needed"""

    stage: str
    found: int
    expected: int


class ModelsMismatch(GraphError):
    """The graph was derived with the models {found}, this {stage} has {expected}: rebuild needed"""

    stage: str
    found: str
    expected: str


class ChangesLost(GraphError):
    """The graph does not tell what changed since: {reason}; load it anew"""


class UpstreamDeadLetter(GraphError):
    """Event {event_id} is a dead letter of {stage}, which comes first; retry that one"""

    stage: str
    event_id: str


class GraphRejected(GraphError):
    """The database refused: {reason}"""


class ModelError(RecollectError):
    """Model {model}: {reason}"""

    model: str
    reason: str


class ModelUnavailable(ModelError):
    """The model {model} cannot be used: {reason}; {fix}"""

    fix: str


class ModelFailed(ModelError):
    """The model {model} failed: {reason}"""


class DerivationsUnavailable(RecollectError):
    """What was derived before is not at hand: {reason}"""


class InvalidOperation(RecollectError):
    """Operation on {element}: {field} {rule}"""

    element: str
    field: str
    rule: str


class UnknownSystemEvent(RecollectError):
    """No stage owns the event type {event_type}"""

    event_type: str


class StageHeld(RecollectError):
    """{stage} holds at entry {position} of partition {partition}: so many different entries fail that it is not their fault ({reason})"""

    stage: str
    partition: int
    position: str
    reason: str


class PassUnderWay(RecollectError):
    """A pass of consolidation is under way ({holder}); nothing was begun"""

    retryable = True
    holder: str


class ArchiverUnderWay(RecollectError):
    """Another process archives ({holder}); nothing was begun"""

    retryable = True
    holder: str


class StageBehind(RecollectError):
    """{entries} events of {target} are not past the {stage} yet; see to its workers, and ask again"""

    retryable = True
    stage: str
    target: str
    entries: int


class UnknownTarget(RecollectError):
    """No target is named {name}; known are {known}"""

    name: str
    known: str


class Stopped(RecollectError):
    """The worker is stopping; the block was not applied"""


class OperationFailed(RecollectError):
    """{reason}"""

    reason: str
