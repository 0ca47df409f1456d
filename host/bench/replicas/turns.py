"""Clients: each sends one message after another, to whichever replica, and repeats it until it knows how its task ended."""

import random
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import wire

# What the agent says, how often and how long it waits in between (annex.toml is made of it).
LENGTHS = {"short": (3, 50), "medium": (6, 250), "long": (16, 450)}
SHARES = {"short": 6, "medium": 3, "long": 1}
ENDS = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}
PATIENCE = 20.0  # seconds of silence until a client takes a replica for gone
GIVES_UP = 120.0  # seconds after which a turn counts as lost


def piece(number: int) -> str:
    return f"{number:02} "


def whole(length: str) -> str:
    return "".join(piece(number) for number in range(1, LENGTHS[length][0] + 1))


def text_of(task: dict) -> str:
    return "".join(part.get("text", "") for artifact in task.get("artifacts", []) for part in artifact["parts"])


@dataclass
class Turn:
    """One message and what its client was told of it."""

    length: str
    context: str
    message: str
    way: str
    tasks: set[str] = field(default_factory=set)
    state: str = ""
    text: str = ""
    begun: float = field(default_factory=time.time)
    ended: float = 0.0
    repeats: int = 0
    moves: int = 0

    @property
    def is_over(self) -> bool:
        return self.state in ENDS

    def params(self, returns: bool = False) -> dict:
        sent = {
            "messageId": self.message,
            "contextId": self.context,
            "role": "ROLE_USER",
            "parts": [{"text": f"{self.length} {self.message}"}],
        }
        return {"message": sent, "configuration": {"returnImmediately": returns}}


class Report:
    """What all clients saw."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.turns: list[Turn] = []
        self.violations: list[str] = []
        self.errors: Counter[str] = Counter()

    def violation(self, kind: str, text: str) -> None:
        with self.lock:
            self.violations.append(f"{kind}: {text}")

    def error(self, error: wire.Refused) -> None:
        # Ids differ in each.
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "…", str(error))
        with self.lock:
            self.errors[f"{error.code} {text[:160]}"] += 1

    def add(self, turn: Turn) -> None:
        with self.lock:
            self.turns.append(turn)


class View:
    """One reader of a turn: what it is told must go on where it is, with no gap and nothing twice."""

    def __init__(self, turn: Turn, report: Report) -> None:
        self.turn = turn
        self.report = report

    def wrong(self, kind: str, text: str) -> None:
        turn = self.turn
        self.report.violation(
            kind, f"{turn.message} ({turn.way}, {turn.length}, in {turn.context}) {sorted(turn.tasks)}: {text}"
        )

    def take(self, event: dict) -> None:
        if "task" in event:
            self.take_task(event["task"])
        elif "statusUpdate" in event:
            self.take_state(event["statusUpdate"]["status"]["state"])
        elif "artifactUpdate" in event:
            self.take_piece(event["artifactUpdate"])
        else:
            self.wrong("other", f"an event that nobody knows: {event}")

    def take_task(self, task: dict) -> None:
        turn = self.turn
        if turn.tasks and task["id"] not in turn.tasks:
            self.wrong("twice", f"another task: {task['id']}")
        turn.tasks.add(task["id"])
        text = text_of(task)
        if not text.startswith(turn.text):
            self.wrong("lost", f"told {turn.text!r}, and then {text!r}")
        if not whole(turn.length).startswith(text):
            self.wrong("gap", f"the task has {text!r}")
        turn.text = text
        self.take_state(task["status"]["state"])

    def take_state(self, state: str) -> None:
        turn = self.turn
        if turn.is_over and state != turn.state:
            self.wrong("twice", f"{state} after {turn.state}")
        turn.state = state
        if turn.is_over and not turn.ended:
            turn.ended = time.time()

    def take_piece(self, update: dict) -> None:
        turn = self.turn
        added = "".join(part.get("text", "") for part in update["artifact"]["parts"])
        text = turn.text + added if update.get("append") else added
        if turn.is_over:
            self.wrong("twice", f"{added!r} after {turn.state}")
        if not whole(turn.length).startswith(text) or len(text) <= len(turn.text):
            self.wrong("twice" if added in turn.text else "gap", f"{added!r} behind {turn.text!r}")
        turn.text = text


class Client(threading.Thread):
    """Sends messages in conversations, of which some are others' too, until it is told to stop.

    The share of turns in one of so many conversations of several clients is `shared[0]`, and `shared[1]` is how many there are.
    """

    def __init__(
        self, ports: Sequence[int], report: Report, stop: threading.Event, seed: int, shared: tuple[float, int]
    ) -> None:
        super().__init__(daemon=True)
        self.ports = ports
        self.report = report
        self.stop = stop
        self.random = random.Random(seed)
        self.own = f"own-{seed}"
        self.share, self.conversations = shared

    def run(self) -> None:
        while not self.stop.is_set():
            turn = self.next_turn()
            try:
                self.play(turn)
            except Exception as error:  # noqa: BLE001
                self.report.violation("other", f"{turn.message}: the client failed: {error!r}")
            self.report.add(turn)

    def next_turn(self) -> Turn:
        length = self.random.choices(list(SHARES), list(SHARES.values()))[0]
        way = self.random.choices(["plain", "streamed", "all", "background"], [50, 33, 7, 10])[0]
        dice = self.random.random()
        if dice < self.share:
            context = f"shared-{self.random.randrange(self.conversations)}"
        else:
            context = self.own if dice < 0.6 else str(uuid.uuid4())
        return Turn(length, context, str(uuid.uuid4()), way)

    def play(self, turn: Turn) -> None:
        view = View(turn, self.report)
        deadline = time.monotonic() + GIVES_UP
        if turn.way == "all":
            self.send_to_all(turn)
        while not turn.is_over:
            if time.monotonic() > deadline:
                told = f"{turn.state or 'no task'} after {time.time() - turn.begun:.0f} s, {turn.repeats} repeats"
                view.wrong("lost", told)
                return
            try:
                self.go_on(turn, view)
            except wire.Gone:
                turn.repeats += 1
                time.sleep(0.05)
            except wire.Refused as error:
                turn.repeats += 1
                self.report.error(error)
                time.sleep(0.2)
        self.read_again(turn, view)

    def go_on(self, turn: Turn, view: View) -> None:
        """One more request, to whichever replica."""
        port = self.random.choice(self.ports)
        if turn.way == "background" and not turn.tasks:
            view.take(wire.call(port, "SendMessage", turn.params(returns=True), PATIENCE))
        elif turn.way in ("plain", "all") or not turn.tasks or (turn.way == "streamed" and self.random.random() < 0.5):
            self.send(turn, view, port)
        else:
            self.subscribe(turn, view, port)

    def send(self, turn: Turn, view: View, port: int) -> None:
        if turn.way == "streamed":
            self.read(turn, view, wire.stream(port, "SendStreamingMessage", turn.params(), PATIENCE))
        else:
            view.take(wire.call(port, "SendMessage", turn.params(), PATIENCE))

    def subscribe(self, turn: Turn, view: View, port: int) -> None:
        [task] = list(turn.tasks)[:1]
        try:
            self.read(turn, view, wire.stream(port, "SubscribeToTask", {"id": task}, PATIENCE))
        except wire.Refused as error:
            if error.code != wire.NOT_POSSIBLE:
                raise
            # Over: there is nothing to subscribe to any more.
            view.take({"task": wire.call(port, "GetTask", {"id": task}, PATIENCE)})

    def read(self, turn: Turn, view: View, events: Generator[dict]) -> None:
        leaves = self.random.randrange(1, 8) if self.random.random() < 0.3 else None
        for number, event in enumerate(events, 1):
            view.take(event)
            if number == leaves and not turn.is_over:
                turn.moves += 1
                events.close()
                return
        if not turn.is_over:
            view.wrong("gap", f"a stream ended without a word in {turn.state!r}")

    def send_to_all(self, turn: Turn) -> None:
        """The same message to all replicas at once: one task."""
        tasks: set[str] = set()

        def send(port: int) -> None:
            try:
                tasks.add(wire.call(port, "SendMessage", turn.params(), PATIENCE)["task"]["id"])
            except wire.Gone:
                pass
            except wire.Refused as error:
                self.report.error(error)

        threads = [threading.Thread(target=send, args=[port], daemon=True) for port in self.ports]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(tasks) > 1:
            self.report.violation("twice", f"{turn.message}: {len(tasks)} tasks: {sorted(tasks)}")
        turn.tasks |= tasks

    def read_again(self, turn: Turn, view: View) -> None:
        """What the client was told is what is stored."""
        [task] = list(turn.tasks)[:1]
        for _ in range(100):
            try:
                found = wire.call(self.random.choice(self.ports), "GetTask", {"id": task}, PATIENCE)
            except wire.Gone:
                time.sleep(0.1)
                continue
            except wire.Refused as error:
                self.report.error(error)
                if error.code in (wire.OVERLOADED, wire.INTERNAL):
                    time.sleep(0.1)
                    continue
                view.wrong("lost", f"GetTask: {error}")
                return
            if found["status"]["state"] != turn.state or text_of(found) != turn.text:
                view.wrong("lost", f"told {turn.state} {turn.text!r}, stored {found['status']['state']} {text_of(found)!r}")
            return
        view.wrong("lost", "nobody answers GetTask")
