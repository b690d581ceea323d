"""The kubelet's expansion of values in a container's environment."""

from __future__ import annotations


def expanded(text, variables):
    """A value with its ``$(NAME)`` replaced; what is not known stays, and ``$$`` is one dollar."""
    out, at = [], 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] == "$":
            out.append("$")
            at += 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            out.append(variables.get(name, text[at : end + 1]))
            at = end + 1
        else:
            out.append(text[at : at + 2])
            at += 2
    return "".join(out)
