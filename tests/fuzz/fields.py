"""
Mutations that know the form of a proto, or that it is bytes, and nothing of its meaning.

They go by protobuf's own description of the messages, so a field that a later ONNX adds
is mutated as well.
"""

from __future__ import annotations

from random import Random

import onnx
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

__all__ = [
    "change_field",
    "drop_field",
    "messages",
    "mutate_bytes",
    "swap_messages",
]

_INTEGERS = (
    0, 1, 2, 3, 7, 16, 21, 64, 255, 1 << 16, 1 << 20, 1 << 30, (1 << 31) - 1, 1 << 31,
    1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, -1, -2, -3, -(1 << 31), -(1 << 63),
)  # fmt: skip
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3.4e38, float("inf"), -float("inf"), float("nan"))  # fmt: skip
_TEXTS = (
    "", "x", "y", "w", "\0", "a\0b", "é", "../secret.bin", "/etc/hostname", "0", "-1",
    "1e3", " 7", "9" * 30, "ai.onnx", "own", "com.microsoft", "ai.onnx.ml", "N", "?",
    "value", "axis", "body", "then_branch", "Constant", "Identity", "If", "Loop",
    "n" * 300, "weights.bin", "./weights.bin", "//", "a" * 300, "{}%s%n",
)  # fmt: skip
_BYTES = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"abc",
    b"\0" * 4,
    b"\xff" * 8,
    b"\0" * 64,
    b"x" * 400,
)
_MOST = 4000  # messages that are looked at in one model


def messages(root: Message) -> list[Message]:
    """Give a message and those in it, at any depth."""
    found = [root]
    for message in found:
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            inner = value if _is_repeated(field) else [value]
            found += inner[: _MOST - len(found)] if _is_repeated(field) else inner
        if len(found) >= _MOST:
            break
    return found


def _is_repeated(field) -> bool:
    return bool(field.is_repeated)


def _picked(model: Message, rng: Random) -> Message:
    """Give a message: as often a rare kind as a common one."""
    found = messages(model)
    kinds = sorted({one.DESCRIPTOR.name for one in found})
    kind = rng.choice(kinds)
    return rng.choice([one for one in found if one.DESCRIPTOR.name == kind])


def change_field(model: onnx.ModelProto, rng: Random) -> None:
    """Set one field of one message to another value of its own type."""
    message = _picked(model, rng)
    field = rng.choice(message.DESCRIPTOR.fields)
    if _is_repeated(field):
        _change_list(message, field, rng)
    elif field.message_type is not None:
        _change_message(model, message, field, rng)
    else:
        _set(message, field, _scalar(field, rng))


def _set(message: Message, field, value) -> None:
    try:
        setattr(message, field.name, value)
    except (ValueError, TypeError):  # past the range of its type
        message.ClearField(field.name)


def _scalar(field, rng: Random):
    if field.type == Field.TYPE_ENUM:
        known = [value.number for value in field.enum_type.values]
        return rng.choice([*known, *known, 99])
    if field.cpp_type in (Field.CPPTYPE_FLOAT, Field.CPPTYPE_DOUBLE):
        return rng.choice(_FLOATS)
    if field.type == Field.TYPE_STRING:
        return rng.choice(_TEXTS)
    if field.type == Field.TYPE_BYTES:
        return rng.choice(_BYTES)
    value = rng.choice(_INTEGERS)
    if field.cpp_type in (Field.CPPTYPE_INT32, Field.CPPTYPE_UINT32):
        value %= 1 << 31
    return abs(value) if field.cpp_type == Field.CPPTYPE_UINT64 else value


def _change_list(message: Message, field, rng: Random) -> None:
    items = getattr(message, field.name)
    how = rng.choice(("double", "drop", "turn", "change", "grow"))
    if how == "grow" or not items:
        if field.message_type is None:
            _append(items, _scalar(field, rng), rng.choice((1, 1, 1, 3, 70)))
        else:
            items.add()
        return
    at = rng.randrange(len(items))
    kept = list(items)
    if how == "double":
        kept.insert(rng.randrange(len(kept) + 1), kept[at])
    elif how == "drop":
        del kept[at]
    elif how == "turn":
        kept = kept[at:] + kept[:at]
    elif field.message_type is None:
        kept[at] = _scalar(field, rng)
    else:
        change_field(items[at], rng)
        return
    copied = [_copy(one) if field.message_type is not None else one for one in kept]
    del items[:]
    for one in copied:
        _append(items, one, 1)


def _append(items, value, times: int) -> None:
    try:
        items.extend([value] * times)
    except (ValueError, TypeError):
        return


def _copy(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _change_message(model: Message, message: Message, field, rng: Random) -> None:
    """Fill a field from another message of its kind, or with an empty one."""
    others = [
        one
        for one in messages(model)
        if one.DESCRIPTOR.full_name == field.message_type.full_name
    ]
    target = getattr(message, field.name)
    target.SetInParent()
    if others and model.ByteSize() < 1 << 16:
        copied = _copy(rng.choice(others))
        target.CopyFrom(copied)


def drop_field(model: onnx.ModelProto, rng: Random) -> None:
    """Clear a field that is set."""
    message = _picked(model, rng)
    fields = message.ListFields()
    if fields:
        message.ClearField(rng.choice(fields)[0].name)


def swap_messages(model: onnx.ModelProto, rng: Random) -> None:
    """Put two messages of one kind in each other's place."""
    one = _picked(model, rng)
    others = [m for m in messages(model) if m.DESCRIPTOR is one.DESCRIPTOR]
    other = rng.choice(others)
    first, second = _copy(one), _copy(other)
    if first.ByteSize() + second.ByteSize() < 1 << 16:
        one.CopyFrom(second)
        other.CopyFrom(first)


def mutate_bytes(data: bytes, rng: Random) -> bytes:
    """Change the bytes of a file: flipped, cut, repeated, lengths made wrong."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 6))):
        if not changed:
            break
        at = rng.randrange(len(changed))
        size = rng.choice((1, 2, 4, 16, 200))
        how = rng.randrange(6)
        if how == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif how == 2:
            del changed[at : at + size]
        elif how == 3:
            changed[at:at] = changed[at : at + size]
        elif how == 4:
            changed[at:at] = bytes(rng.randrange(256) for _ in range(min(size, 16)))
        else:
            del changed[at:]
    return bytes(changed)
