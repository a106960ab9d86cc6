"""Write reference values as JSON with one case on each line, so that a change of one case changes a single line."""

import json
from pathlib import Path


def write(name, sections):
    """Write `sections`, a dictionary {section: [case, ...]}, to the JSON file `name` beside this module."""
    blocks = [f"{json.dumps(key)}: [\n" + ",\n".join(map(json.dumps, cases)) + "\n]" for key, cases in sections.items()]
    Path(__file__).with_name(name).write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="ascii")
