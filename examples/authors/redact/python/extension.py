"""Redacts the numbers of payment cards in the texts that go out."""

import json
import re

from wit_world.exports import descriptor, output

# 13 digits or more, with spaces and hyphens between digits.
CARD = re.compile(r"[0-9](?:[ -]*[0-9]){12,}")


class Descriptor:
    def describe(self) -> descriptor.ExtensionDescriptor:
        kinds = descriptor.EventKinds
        return descriptor.ExtensionDescriptor(
            uri="https://annex.example/redact/v1", name="redact", version="0.1.0",
            description="Redacts the numbers of payment cards.", parameter_schema=None, metadata_keys=[],
            depends_on=[], grants=[], events=kinds.MESSAGE | kinds.STATUS | kinds.ARTIFACT, payload=False,
        )


class Output:
    def revise(self, content: output.Content) -> output.Verdict:
        place = content.place
        if isinstance(place, output.Place_Artifact) and not place.value.last:
            # The number may go on in the next chunk.
            return output.Verdict_Hold()
        replaced = []
        for index, part in enumerate(json.loads(content.parts)):
            text = CARD.sub("[card number]", part.get("text", ""))
            if text != part.get("text", ""):
                replaced.append(output.Replacement(index, [json.dumps(part | {"text": text})], None))
        return output.Verdict_Replace(replaced) if replaced else output.Verdict_Leave()
