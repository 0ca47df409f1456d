"""Refuses messages that have the number of a payment card in a text or in data.

The same extension as `guest/payment-cards`, which is in Rust: both pass the cases in `cases/`.
"""

import json
import re
from itertools import accumulate

from componentize_py_types import Err
from wit_world.exports import descriptor, message
from wit_world.imports import store
from wit_world.imports.types import Rejection_Violations, Request, Violation

DEFAULT_URI = "https://annex.example/payment-cards/v1"

PARAMETER_SCHEMA = {
    "type": "object",
    "properties": {"uri": {"type": "string", "minLength": 1, "description": "The extension's URI."}},
    "additionalProperties": False,
}

# Violations in one answer; the client learns of the rest when these are mended.
MAX_VIOLATIONS = 64

# Groups of digits with one space or hyphen between. Digits that touch a letter belong to a word.
GROUPS = re.compile(r"(?<![0-9A-Za-z_])[0-9]+(?:[ -][0-9]+)*(?![0-9A-Za-z_])")
LONGEST = 19
# Of each digit the sum of the digits of its double.
SUMS_OF_DOUBLES = str.maketrans("0123456789", "0246813579")

# The beginnings of the numbers that card networks give out, and the lengths of these numbers.
NETWORKS = [
    (range(4000, 5000), {13, 16, 19}),  # Visa
    (range(2221, 2721), {16}),  # Mastercard
    (range(5100, 5600), {16}),
    (range(3400, 3500), {15}),  # American Express
    (range(3700, 3800), {15}),
    (range(3000, 3060), {14}),  # Diners Club
    (range(3600, 3700), {14}),
    (range(3800, 4000), {14}),
    (range(3528, 3590), {16, 17, 18, 19}),  # JCB
    (range(6011, 6012), {16, 17, 18, 19}),  # Discover
    (range(6440, 6600), {16, 17, 18, 19}),
    (range(6200, 6300), {16, 17, 18, 19}),  # UnionPay
    ([5018, 5020, 5038, 5893, 6304, 6759, 6761, 6762, 6763], {13, 14, 15, 16, 17, 18, 19}),  # Maestro
]
LENGTHS = {str(beginning): lengths for beginnings, lengths in NETWORKS for beginning in beginnings}


def has_card_number(text: str) -> bool:
    for run in GROUPS.finditer(text):
        groups = re.split("[ -]", run[0])
        digits = "".join(groups)
        ends = list(accumulate(map(len, groups)))
        # Others may stand beside a number, such as the year and the security code. Each group is looked at with 18 others
        # at most, however many there are.
        for group, start in enumerate([0, *ends[:-1]]):
            lengths = LENGTHS.get(digits[start : start + 4])
            if lengths is None:
                continue
            for end in ends[group : group + LONGEST]:
                if end - start in lengths and has_check_digit(digits[start:end]):
                    return True
    return False


def has_check_digit(digits: str) -> bool:
    """The check of Luhn (ISO/IEC 7812-1, annex B)."""
    twice = digits[-2::-2].translate(SUMS_OF_DOUBLES)
    return (sum(map(int, digits[-1::-2])) + sum(map(int, twice))) % 10 == 0


def violations(parts: list[dict]) -> list[Violation]:
    found = []
    for number, part in enumerate(parts):
        # Bytes are not looked into: what they are is not known here.
        for name in ["text", "data", "url", "filename"]:
            look_into(part.get(name), f"/message/parts/{number}/{name}", found)
    return found[:MAX_VIOLATIONS]


def look_into(value: object, place: str, found: list[Violation]) -> None:
    if len(found) >= MAX_VIOLATIONS:
        return
    if isinstance(value, dict):
        # The number must not be in a pointer, which is logged on the way.
        if any(map(has_card_number, value)):
            found.append(violation(place, " in a key"))
            return
        for key, member in value.items():
            look_into(member, f"{place}/{key.replace('~', '~0').replace('/', '~1')}", found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            look_into(item, f"{place}/{index}", found)
    elif isinstance(value, (str, int, float)) and has_card_number(str(value)):
        found.append(violation(place, ""))


def violation(place: str, at: str) -> Violation:
    return Violation(place, f"has the number of a payment card{at}; leave it out")


class Descriptor:
    def describe(self) -> descriptor.ExtensionDescriptor:
        return descriptor.ExtensionDescriptor(
            uri=store.get("uri") or DEFAULT_URI,
            name="payment-cards",
            version="0.1.0",
            description="Refuses messages with the number of a payment card.",
            parameter_schema=json.dumps(PARAMETER_SCHEMA),
            metadata_keys=[],
            depends_on=[],
            grants=[],
            events=descriptor.EventKinds(0),
            payload=False,
        )


class Message:
    def check(self, request: Request, message: str) -> list[message.Rewrite]:
        found = violations(json.loads(message)["parts"])
        if found:
            raise Err(Rejection_Violations(found))
        return []
