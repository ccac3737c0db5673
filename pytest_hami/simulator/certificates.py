"""A certificate authority and a server certificate for the loopback address, made anew for each run."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = timedelta(days=30)
# Clocks of containers and hosts may differ a little; a certificate must not start in the reader's future.
CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class ServerIdentity:
    """PEM texts of an authority and of a certificate that it signed for 127.0.0.1 and localhost."""

    authority: bytes
    certificate: bytes
    key: bytes

    def server_context(self) -> ssl.SSLContext:
        """Return a TLS context for a server with this identity."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The ssl module reads a key from files only; the folder is private and gone at once.
        with tempfile.TemporaryDirectory(prefix="pytest-hami-") as directory:
            chain, key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
            chain.write_bytes(self.certificate)
            key.write_bytes(self.key)
            context.load_cert_chain(chain, key)
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context for a client that trusts only this authority."""
        return ssl.create_default_context(cadata=self.authority.decode())


def loopback_identity() -> ServerIdentity:
    """Make an authority and a server certificate with EC keys, valid for 30 days."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("pytest-hami test authority")
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName("localhost")])
    certificate = (
        _builder(_name("hami-scheduler"), authority_name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(names, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return ServerIdentity(
        authority.public_bytes(serialization.Encoding.PEM),
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - CLOCK_SKEW
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + LIFETIME)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
