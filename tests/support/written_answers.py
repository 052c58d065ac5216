"""Answers that Apache Kafka has given once, as text that can be read: a part for each story, below its title."""

import os

REWRITE = "KAFKACORE_REWRITE_ANSWERS"  # of a run on Apache Kafka


def written(path, story, answers):
    """What the file has of the story, a line for each answer; where it is to be rewritten, `answers` are put there."""
    title = f"# {story.__name__.replace('_', ' ')}"
    parts = dict(part.partition("\n")[::2] for part in path.read_text().rstrip("\n").split("\n\n"))
    if REWRITE in os.environ:
        parts[title] = "\n".join(answers)
        path.write_text("\n\n".join(f"{name}\n{text}" for name, text in parts.items() if text) + "\n")
    return parts[title].splitlines()
