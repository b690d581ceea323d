"""R10: leaf and CA are renewed under load, and no handshake fails."""

from __future__ import annotations

import pytest
from cryptography import x509

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

RATE = 500
FRESH = 15
LEAF_SECONDS = 20
CA_SECONDS = 120
# The CA is due after two thirds of its life; then it is published, and then its leaf is served.
SECONDS = CA_SECONDS * 2 / 3 + 20


async def test_r10_rotation_under_load_fails_no_handshake(harbour):
    flags = [
        f"--certificates-leaf-lifetime-seconds={LEAF_SECONDS}",
        f"--certificates-ca-lifetime-seconds={CA_SECONDS}",
        "--certificates-publish-seconds=5",
    ]
    async with harbour(controller=flags) as installed, installed.followed_authority() as authority:
        load = installed.load(authority, fresh=FRESH)
        await load.run(rate=RATE, seconds=SECONDS)
    leaves = [x509.load_der_x509_certificate(certificate) for certificate in load.certificates]
    signers = {
        leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        for leaf in leaves
    }
    print(  # noqa: T201 - figures to note
        f"{load.answered} reviews, p99 {load.percentile(0.99) * 1000:.0f} ms, "
        f"{load.dialled} handshakes, {len(leaves)} leaves, {dict(load.failures)}"
    )
    assert load.failures == {}
    assert load.answered == load.sent
    assert load.dialled >= 5_000
    assert len(leaves) >= SECONDS // LEAF_SECONDS
    assert len(signers) == 2
