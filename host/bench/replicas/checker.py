"""What must hold of the tables and of what clients saw, whatever went wrong meanwhile."""

import json
from collections import Counter, defaultdict
from itertools import groupby

from faults import Fault, LEASE, Sql
from turns import ENDS, Report, Turn, whole

# What one read takes of the log.
PAGE = 500


class Checker:
    """Adds what is not as it must be to the report."""

    def __init__(self, sql: Sql, report: Report, faults: list[Fault]) -> None:
        self.sql = sql
        self.report = report
        self.turns = {turn.message: turn for turn in report.turns}
        self.faults = faults
        self.orphans = {task for fault in faults for task in fault.orphans}
        # A replica that stood still takes what had come meanwhile, and finds out a moment later that its lease is over.
        self.went_on = [fault.at + fault.came_back for fault in faults if fault.kind == "stop"]
        self.taken_too_late = 0
        self.said_again = 0
        self.tasks_of_message: dict[str, set[str]] = defaultdict(set)
        self.states: Counter[str] = Counter()

    def check(self) -> None:
        ids = [row[0] for row in self.sql.rows("SELECT id FROM task ORDER BY id")]
        for begin in range(0, len(ids), PAGE):
            self.check_tasks(ids[begin : begin + PAGE])
        self.check_messages()
        self.check_claims()
        self.check_sessions()
        self.check_times()

    def check_tasks(self, ids: list[str]) -> None:
        names = ", ".join(f"'{task}'" for task in ids)
        rows = self.sql.rows(f"SELECT id, state, number, coalesce(finished_at, 0) FROM task WHERE id IN ({names})")
        events = self.sql.rows(
            f"SELECT task_id, number, kind, json FROM log_entry WHERE task_id IN ({names}) ORDER BY task_id, number"
        )
        logs: dict[str, list[tuple[int, str, dict]]] = defaultdict(list)
        for task, seq, kind, text in events:
            logs[task].append((int(seq), kind, json.loads(text)))
        for task, state, seq, finished in rows:
            self.states[state] += 1
            self.check_task(task, state, int(seq), int(finished) / 1000, logs[task])

    def check_task(self, task: str, state: str, seq: int, finished: float, log: list[tuple[int, str, dict]]) -> None:
        wrong = self.report.violation
        if [number for number, _, _ in log] != list(range(1, seq + 1)):
            wrong("gap", f"task {task} is at {seq}, its log has {[number for number, _, _ in log]}")
            return
        if not finished or state not in ENDS:
            wrong("not ended", f"task {task} is {state}")
        message = first_message(log)
        self.tasks_of_message[message].add(task)
        ends = [number for number, _, event in log if state_of(event) in ENDS]
        if finished and ends != [seq]:
            wrong("ended", f"task {task} has {seq} events and ended at {ends}")
        turn = self.turns.get(message)
        if turn is not None:
            self.check_pieces(task, turn, log)
            if not turn.is_over:
                wrong("lost", f"task {task}, which a client gave up, has {[stamp_of(event) for _, _, event in log]}")
        if state == "TASK_STATE_FAILED" and task not in self.orphans:
            if any(moment <= finished <= moment + LEASE + 1 for moment in self.went_on):
                self.taken_too_late += 1
            else:
                said = log[-1][2]["statusUpdate"]["status"].get("message", {}).get("parts")
                wrong("failed", f"task {task} is FAILED and nothing had happened to its replica: {said}")

    def check_pieces(self, task: str, turn: Turn, log: list[tuple[int, str, dict]]) -> None:
        """The agent's pieces follow each other: one that is there twice was written by two."""
        text = ""
        for _, _, event in log:
            if update := event.get("artifactUpdate"):
                added = "".join(part.get("text", "") for part in update["artifact"]["parts"])
                text = text + added if update.get("append") else added
                if not whole(turn.length).startswith(text):
                    self.report.violation("zombie", f"task {task} ({turn.length}) has {text!r}")
                    return
        last = state_of(log[-1][2])
        if last == "TASK_STATE_COMPLETED" and text != whole(turn.length):
            self.report.violation("gap", f"task {task} is COMPLETED with {text!r}")

    def check_messages(self) -> None:
        for message, turn in self.turns.items():
            tasks = self.tasks_of_message.get(message, set())
            if len(tasks) > 1:
                self.report.violation("twice", f"message {message} is {len(tasks)} tasks: {sorted(tasks)}")
            if not turn.tasks <= tasks:
                self.report.violation("lost", f"message {message}: told {sorted(turn.tasks)}, stored {sorted(tasks)}")
        for message in self.tasks_of_message.keys() - self.turns.keys():
            self.report.violation("other", f"a task for the message {message}, which nobody sent")

    def check_claims(self) -> None:
        """Each message is remembered once, with its task."""
        for message, task in self.sql.rows("SELECT message_id, task_id FROM message"):
            tasks = self.tasks_of_message.get(message, set())
            if tasks and task not in tasks:
                self.report.violation("twice", f"message {message} is remembered for {task} and became {sorted(tasks)}")

    def check_sessions(self) -> None:
        """In a conversation the events of a turn stand together."""
        rows = self.sql.rows(
            "SELECT conversation_id, seq, json FROM log_entry WHERE kind IN ('message', 'event')"
            " ORDER BY conversation_id, seq"
        )
        cleared = {row[0] for row in self.sql.rows("SELECT id FROM conversation WHERE cleared > 0")}
        sessions: dict[str, list[dict]] = defaultdict(list)
        for session, seq, text in rows:
            entry = json.loads(text)
            if "message" in entry:
                entry = {**entry["event"], "parts": entry["message"]["parts"]}
            sessions[session].append({"seq": seq, **entry})
        for session, events in sessions.items():
            places: dict[str, list[list[dict]]] = defaultdict(list)
            for turn, run in groupby(events, key=turn_of):
                places[turn].append(list(run))
            if session in cleared:
                # A conversation keeps its latest events, and what it has of this turn is not all.
                del places[turn_of(events[0])]
            for turn, runs in places.items():
                said = [event for run in runs for event in run if event.get("author") == "user"]
                self.said_again += len(runs) - 1
                if len(said) != len(runs) or not all(broken_off(run) for run in runs[:-1]):
                    self.report.violation("order", f"in session {session} the turn {turn} is in {len(runs)} places:")
                    for event in [event for run in runs for event in run]:
                        told = {key: event.get(key) for key in ("seq", "author", "parts", "error", "timestamp")}
                        self.report.violation("order", f"  {json.dumps(told)[:300]}")

    def check_times(self) -> None:
        # A database that was away settles nothing: whoever ran a task goes on with it.
        for fault in [fault for fault in self.faults if fault.kind != "database"]:
            for task in fault.orphans - fault.settled.keys():
                self.report.violation("failover", f"task {task} of {fault.name} ({fault.kind}) was not settled in 30 s")
            for task, seconds in fault.settled.items():
                if seconds > LEASE + 1:
                    self.report.violation("failover", f"task {task} of {fault.name} ({fault.kind}): {seconds:.2f} s")


def broken_off(run: list[dict]) -> bool:
    """A turn that got no further than the message of its user."""
    first, last = run[0], run[-1]
    return first.get("author") == "user" and len(run) == 2 and (last.get("error") or {}).get("code") == "BROKEN_OFF"


def first_message(log: list[tuple[int, str, dict]]) -> str:
    messages = [entry["message"] for _, kind, entry in log if kind in ("message", "vetoed")]
    return messages[0]["messageId"] if messages else ""


def state_of(event: dict) -> str:
    if "statusUpdate" in event:
        return event["statusUpdate"]["status"]["state"]
    return event.get("task", {}).get("status", {}).get("state", "")


def stamp_of(event: dict) -> str:
    status = event.get("statusUpdate", event.get("task", {})).get("status", {})
    return f"{status.get('state', 'a piece')} {status.get('timestamp', '')}".strip()


def turn_of(event: dict) -> str:
    return str(event.get("invocation_id") or event.get("invocationId") or event.get("turn") or "")
