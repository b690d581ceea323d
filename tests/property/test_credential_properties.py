"""A credential never appears in what is shown, however a server encodes it."""

from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.credentials import REDACTED, SHORTEST_SECRET, redact_bytes, secret_forms
from helpers.properties import cases

ESCAPE = re.compile("%..")
GO = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
ENCODINGS = {
    "as it is": str,
    "percent": quote,
    "percent with slashes": lambda text: quote(text, ""),
    "percent in lower case": lambda text: ESCAPE.sub(lambda match: match[0].lower(), quote(text)),
    "form": quote_plus,
    "JSON": json.dumps,
    "JSON in Unicode": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "JSON of Go": lambda text: json.dumps(text).translate(GO),
    "HTML": html.escape,
    "HTML in JSON": lambda text: json.dumps(html.escape(text)),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "URL-safe base64": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Random enough not to be a part of the text around it by chance.
secrets = st.text(st.characters(exclude_categories=["Cs"]), min_size=SHORTEST_SECRET, max_size=40)


@settings(max_examples=cases(5000))
@given(secret=secrets, before=texts, after=texts, encoding=st.sampled_from(sorted(ENCODINGS)))
def test_a_credential_is_removed_in_every_encoding(secret, before, after, encoding):
    encode = ENCODINGS[encoding]
    answer = encode(f"{before}{secret}{after}").encode()
    shown = redact_bytes(answer, secret_forms([secret]))
    assert REDACTED.encode() in shown
    assert secret.encode() not in shown


def test_short_secrets_and_empty_ones_leave_a_text_as_it_is():
    assert redact_bytes(b"a text", secret_forms(["", "a", "tex"])) == b"a text"
