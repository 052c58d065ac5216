"""Makes messages of any API, with one item or more in each list."""

from __future__ import annotations

from typing import Any

from kafkacore._fast.schema import tables


def filled(message_class: Any, version: int) -> Any:
    """Returns a message with one item in each list that exists in the version."""
    message = tables.message(message_class.NAME)
    structs = message.structs()

    def made(struct: str, made_class: Any) -> Any:
        whole = made_class()
        for field in structs[struct]:
            if version not in field.versions:
                continue
            if field.struct:
                inner = made(field.struct, getattr(message_class, field.struct))
                setattr(whole, field.name, [inner] if field.kind == "array" else inner)
            elif field.kind == "array":
                setattr(whole, field.name, [{"string": "x", "uuid": bytes(16)}.get(field.element, 0)])
        return whole

    return made(message.name, message_class)
