"""Stores Apache Kafka's answers as readable text. The file has a title for each test, and below the title its
answers."""

import os

REWRITE = "KAFKACORE_REWRITE_ANSWERS"  # use this only with --peer


def written(path, story, answers):
    """Returns the lines below the title `story` in the file, one line per answer. With KAFKACORE_REWRITE_ANSWERS, first
    writes `answers` to the file."""
    title = f"# {story.__name__.replace('_', ' ')}"
    parts = dict(part.partition("\n")[::2] for part in path.read_text().rstrip("\n").split("\n\n"))
    if REWRITE in os.environ:
        parts[title] = "\n".join(answers)
        path.write_text("\n\n".join(f"{name}\n{text}" for name, text in parts.items() if text) + "\n")
    return parts[title].splitlines()
