"""Answers of Apache Kafka as readable text: a part for each story, below its title."""

import os

REWRITE = "KAFKACORE_REWRITE_ANSWERS"  # only with --peer


def written(path, story, answers):
    """Returns the lines of the story in the file, one per answer. With KAFKACORE_REWRITE_ANSWERS, it first writes
    `answers` to the file."""
    title = f"# {story.__name__.replace('_', ' ')}"
    parts = dict(part.partition("\n")[::2] for part in path.read_text().rstrip("\n").split("\n\n"))
    if REWRITE in os.environ:
        parts[title] = "\n".join(answers)
        path.write_text("\n\n".join(f"{name}\n{text}" for name, text in parts.items() if text) + "\n")
    return parts[title].splitlines()
