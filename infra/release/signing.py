"""Signatures as cosign makes them: ECDSA on P-256 with SHA-256, in base64, by a key that a file has.
By RFC 6979 the same key gives the same bytes for the same file."""

import base64
import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from infra.release.source import ReleaseError

STATEMENT = "application/vnd.in-toto+json"


class Key:
    """A private key, PKCS 8 in PEM. Raises ReleaseError for any other file."""

    def __init__(self, path: Path, password: str = "") -> None:
        try:
            key = load_pem_private_key(path.read_bytes(), password.encode() or None)
        except OSError as error:
            raise ReleaseError(f"the key {path} can't be read: {error.strerror}") from error
        except (ValueError, TypeError):  # what it says may quote the file
            raise ReleaseError(f"{path} is no private key in PEM, or its password is another") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ReleaseError(f"the key {path} should be one for ECDSA on P-256")
        self._key = key

    def public(self) -> bytes:
        """Return the public key in PEM."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def signature(self, content: bytes) -> str:
        """Return the signature in base64."""
        raw = self._key.sign(content, ec.ECDSA(SHA256(), deterministic_signing=True))
        return base64.b64encode(raw).decode()

    def envelope(self, statement: bytes) -> str:
        """Return a DSSE envelope (version 1) around a statement of in-toto, as JSON."""
        kind = STATEMENT.encode()
        encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(statement), statement)
        signature = {"keyid": "", "sig": self.signature(encoded)}
        payload = base64.b64encode(statement).decode()
        return json.dumps({"payloadType": STATEMENT, "payload": payload, "signatures": [signature]}) + "\n"
