"""Certificates for the tests: an authority, a server on loopback, a client."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Pair:
    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    ca: Path
    server: Pair
    client: Pair


class Authority:
    """Signs certificates; everything it makes is in `directory`."""

    def __init__(self, directory: Path, name: str = "Test CA") -> None:
        self._directory = directory
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        directory.mkdir(parents=True, exist_ok=True)
        self.file = directory / "ca.crt"
        certificate = _certificate(name, self._key, name, self._key, ca=True)
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def pair(self, name: str, common_name: str) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        made = Pair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        certificate = _certificate(common_name, key, self._name, self._key, ca=False)
        made.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return made


def make_certificates(directory: Path, client_name: str = "sensor") -> Certificates:
    """Files in `directory`; the server is 127.0.0.1 and localhost, the client is called `client_name`."""
    authority = Authority(directory)
    return Certificates(authority.file, authority.pair("server", "localhost"), authority.pair("client", client_name))


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey, ca: bool
) -> x509.Certificate:
    now = datetime.now(UTC)
    # Without a common name it is only of an organisation.
    subject = (NameOID.COMMON_NAME, name) if name else (NameOID.ORGANIZATION_NAME, "City")
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(*subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if ca:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    else:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
