"""A certificate authority for one session, and a certificate for Google's host names."""

import datetime
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOSTS = (
    "storage.googleapis.com",
    "www.googleapis.com",
    "oauth2.googleapis.com",
    "iamcredentials.googleapis.com",
)


def write_certificates(directory: pathlib.Path) -> None:
    """Writes `ca.pem`, which clients trust, and `server.pem`, certificate and key of the server."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("a certificate authority for one test")
    ca = _certificate(ca_name, ca_name, ca_key.public_key())
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    leaf = _certificate(_name(HOSTS[0]), ca_name, key.public_key())
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS])
    leaf = leaf.add_extension(names, critical=False)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    leaf = leaf.add_extension(usage, critical=False)
    (directory / "ca.pem").write_bytes(_pem(ca.sign(ca_key, hashes.SHA256())))
    signed = leaf.sign(ca_key, hashes.SHA256())
    (directory / "server.pem").write_bytes(_key_pem(key) + _pem(signed))


def private_key() -> str:
    """A key of a service account, in PEM."""
    return _key_pem(rsa.generate_private_key(65537, 2048)).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: x509.Name, issuer: x509.Name, key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
