"""Runs a session in a terminal and writes it as a picture.

    python3 picture.py ANNEX PICTURE.svg

ANNEX is the annex program. What the picture shows is what the commands printed; long lines are cut.
"""

import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

COMMANDS = [
    "annex new word-count --lang c --hooks message,response --with keyvalue",
    "cd word-count",
    "annex build",
    "annex test",
    "annex bench --turns 1000",
]
# Of a long report the first lines tell enough.
LINES = {"annex build": 9}
WIDTH = 100
LINE_HEIGHT = 18


def main():
    annex, picture = sys.argv[1:]
    annex = str(Path(annex).resolve())
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for command in COMMANDS:
            lines.append(("command", f"$ {command}"))
            if command.startswith("cd "):
                place /= command.removeprefix("cd ")
                continue
            words = [annex, *command.split()[1:]]
            run = subprocess.run(words, cwd=place, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            printed = run.stdout.rstrip().splitlines()
            shown = printed[: LINES.get(command, len(printed))]
            lines += [("printed", line) for line in shown]
            if len(shown) < len(printed):
                lines.append(("printed", "…"))
    Path(picture).write_text(svg(lines))


def svg(lines):
    height = LINE_HEIGHT * len(lines) + 32
    rows = "".join(row(number, kind, line) for number, (kind, line) in enumerate(lines))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 860 {height}" role="img" aria-label="A session in a terminal">
<style>text {{ font: 13px ui-monospace, monospace; white-space: pre }} .command {{ fill: #7ee787 }} .printed {{ fill: #e6edf3 }}</style>
<rect width="860" height="{height}" rx="8" fill="#0d1117"/>
{rows}</svg>
"""


def row(number, kind, line):
    line = line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
    return f'<text class="{kind}" x="16" y="{28 + LINE_HEIGHT * number}">{escape(line)}</text>\n'


if __name__ == "__main__":
    main()
