"""
ONNX Runtime's layer assignment: a text that puts groups of nodes on devices.

Two session config keys share one grammar, ``device(pattern, ...); device(pattern, ...)``.
``session.name_based_layer_assignment`` looks for each pattern inside node names;
``session.layer_assignment_settings`` compares it with the start of a node's ``layer_ann``
metadata, or with the whole of it where the pattern begins with ``=``.

Source: ONNX Runtime's document "Partitioning with annotations and memory constraints".
Other than there, a rule that matches nothing is an error, as every pin is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import attrs

from seamline.errors import PinError

__all__ = ["LayerRule", "parse_layer_rules", "pins_by_annotation", "pins_by_name"]

_RULE = re.compile(r"\s*([\w.:-]+)\s*\(([^()]*)\)\s*")
# A designator is a provider's own name, or a word for any device of a kind.
_DESIGNATORS = {"gpu": "cuda", "gpu:nvidia": "cuda"}


@attrs.frozen
class LayerRule:
    """Nodes that match a pattern go to a provider."""

    provider: str
    pattern: str
    exact: bool = False

    def matches(self, annotation: str) -> bool:
        """Tell whether a node's annotation falls under the rule."""
        if self.exact:
            return annotation == self.pattern
        return annotation.startswith(self.pattern)


def parse_layer_rules(text: str) -> tuple[LayerRule, ...]:
    """
    Read the rules of one session config entry.

    Raises
    ------
    PinError
        The text does not follow the grammar; shows the part at fault.

    Examples
    --------
    >>> for rule in parse_layer_rules("cuda(layers.0/, =head); cpu(embed)"):
    ...     print(rule)
    LayerRule(provider='cuda', pattern='layers.0/', exact=False)
    LayerRule(provider='cuda', pattern='head', exact=True)
    LayerRule(provider='cpu', pattern='embed', exact=False)
    """
    rules: list[LayerRule] = []
    for part in text.split(";"):
        if not part.strip():
            continue
        match = _RULE.fullmatch(part)
        if match is None:
            raise PinError(
                f"layer assignment: {part.strip()!r} is not device(pattern, ...); "
                "an example: 'cuda(layers.0/, layers.1/); cpu(embed)'"
            )
        device = match[1].lower()
        provider = _DESIGNATORS.get(device, device)
        rules += [_rule(provider, item.strip(), part) for item in match[2].split(",")]
    return tuple(rules)


def _rule(provider: str, pattern: str, part: str) -> LayerRule:
    exact = pattern.startswith("=")
    pattern = pattern.removeprefix("=").strip()
    if not pattern:
        raise PinError(f"layer assignment: {part.strip()!r} has an empty pattern")
    return LayerRule(provider, pattern, exact)


def pins_by_name(text: str) -> dict[str, str]:
    """
    Give pins for rules that look inside node names.

    Raises
    ------
    PinError
        The text is malformed, or a pattern begins with ``=``.

    Examples
    --------
    >>> pins_by_name("cpu(embed, layers[0])")
    {'*embed*': 'cpu', '*layers[[]0]*': 'cpu'}
    """
    pins: dict[str, str] = {}
    for rule in parse_layer_rules(text):
        if rule.exact:
            raise PinError(
                f"layer assignment by name: '={rule.pattern}' asks for an exact match, which "
                "names do not have; use pins={...} with the node's name"
            )
        literal = re.sub(r"([*?[])", r"[\1]", rule.pattern)
        pins.setdefault(f"*{literal}*", rule.provider)
    return pins


def pins_by_annotation(text: str, annotations: Mapping[str, str]) -> dict[str, str]:
    """
    Give pins for rules that compare with annotations.

    Parameters
    ----------
    text
        The rules; of those that match a node, the longest pattern wins, exact ones first.
    annotations
        ``layer_ann`` by node name.

    Raises
    ------
    PinError
        The text is malformed, or a rule matches no annotation of the model.

    Examples
    --------
    >>> pins_by_annotation("cuda(enc); cpu(=enc_out)", {"a": "enc_in", "b": "enc_out"})
    {'a': 'cuda', 'b': 'cpu'}
    """
    rules = parse_layer_rules(text)
    for rule in rules:
        if not any(rule.matches(said) for said in annotations.values()):
            known = ", ".join(sorted(set(annotations.values()))) or "none"
            raise PinError(
                f"layer assignment: {rule.pattern!r} matches no node's layer_ann "
                f"(the model has: {known})"
            )
    pins: dict[str, str] = {}
    for node, said in annotations.items():
        if best := _strongest(rules, said):
            pins[node] = best.provider
    return pins


def _strongest(rules: Iterable[LayerRule], annotation: str) -> LayerRule | None:
    fitting = [rule for rule in rules if rule.matches(annotation)]
    return max(fitting, key=lambda rule: (rule.exact, len(rule.pattern)), default=None)
