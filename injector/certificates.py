"""The injector's own authority and certificate: what a Secret holds, what is to be done about it, and doing it.

All replicas share one Secret, so `advance` decides from what was just read and from the time given, and never from
what this process once made. A change of authority takes three steps, each for itself harmless: the new one joins the
bundle; once the API server trusts it, the leaf is signed by it; the old one leaves when no leaf that it signed can be
valid any more. That last is a matter of time alone: however long a replica has slept, what it serves is either
trusted or expired, and nobody needs to count replicas.

Whatever a hand has done to the Secret is read as far as it goes, and what is missing is made anew. Reading and
writing, also of the caBundle, are left to `keeping`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE: Final = timedelta(days=3650)
LEAF_LIFE: Final = timedelta(days=90)
BACKDATED: Final = timedelta(days=1)
"""How far other clocks may be behind ours and still take what we make: a time zone's worth, and some more."""
SPREAD: Final = timedelta(minutes=10)
"""How long a new authority stands in the bundle before a leaf of it is served: every API server has it by then."""
URGENT: Final = timedelta(days=1)
"""Of a leaf's life; from then on waiting for trust is worse than the lack of it."""
MOST: Final = 5
"""Authorities in the bundle at most; what else stands there is no work of ours."""

CA_CERT: Final = "ca.crt"
CA_KEY: Final = "ca.key"
CERT: Final = "tls.crt"
KEY: Final = "tls.key"

_Key = ec.EllipticCurvePrivateKey
_END: Final = b"-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key."""

    cert: x509.Certificate
    key: _Key


@dataclass(frozen=True, slots=True)
class State:
    """What a Secret holds of use. `authorities`, newest first, are trusted; `signer` is the one that we can sign by."""

    authorities: tuple[x509.Certificate, ...] = ()
    signer: Pair | None = None
    leaf: Pair | None = None

    @property
    def bundle(self) -> bytes:
        """What is to be trusted, in PEM."""
        return b"".join(map(_pem, self.authorities))

    def data(self) -> dict[str, bytes]:
        """The Secret's content. Only of a state that `advance` has completed."""
        if self.signer is None or self.leaf is None:
            raise ValueError("nothing to be stored before authority and leaf are made")
        return {
            CA_CERT: self.bundle,
            CA_KEY: _key_pem(self.signer.key),
            CERT: _pem(self.leaf.cert),
            KEY: _key_pem(self.leaf.key),
        }


def read(data: Mapping[str, bytes], hosts: Sequence[str], now: datetime) -> State:
    """What of a Secret's content can be used at `now` (aware) for these host names. Never fails: rubbish is nothing.

    A key counts with its certificate only, a leaf only where one of the authorities has signed it.
    """
    authorities = authorities_in(data.get(CA_CERT, b""), now)
    signing, serving = _key(data.get(CA_KEY, b"")), _key(data.get(KEY, b""))
    signer = next((Pair(ca, signing) for ca in authorities if signing and _fits(ca, signing)), None)
    leaf = next(iter(_certificates(data.get(CERT, b""))), None)
    if leaf is None or serving is None or not _fits(leaf, serving):
        return State(authorities, signer)
    good = _valid(leaf, now) and set(hosts) <= _hosts(leaf) and _issuer(leaf, authorities)
    return State(authorities, signer, Pair(leaf, serving) if good else None)


def authorities_in(bundle: bytes, now: datetime) -> tuple[x509.Certificate, ...]:
    """The authorities of a PEM bundle that are valid at `now`, each once, in their order; at most `MOST`."""
    found = [ca for ca in _certificates(bundle) if _valid(ca, now) and _is_authority(ca)]
    return tuple(dict.fromkeys(found))[:MOST]


def ends_at(chain: bytes) -> float:
    """When the first certificate of a PEM chain ends, in seconds since the epoch; 0 where none can be read."""
    found = _certificates(chain)
    return found[0].not_valid_after_utc.timestamp() if found else 0.0


def advance(
    state: State, hosts: Sequence[str], trusted: Collection[bytes], now: datetime
) -> tuple[State, tuple[str, ...]]:
    """The state to be stored, and what was done, in words; nothing done: keep what is there.

    `trusted` are the caBundles (PEM) that are installed; what stands in them stays in a bundle that is made from
    nothing, as other replicas may still serve by it.
    """
    done: list[str] = []
    if state.signer is None or now >= _due(state.signer.cert):
        word = "renewed the authority" if state.signer else "made an authority"
        signer = make_authority(now)
        old = authorities_in(b"".join((state.bundle, *trusted)), now)
        state = replace(state, authorities=(signer.cert, *old)[:MOST], signer=signer)
        done.append(word)
    signer = _known(state.signer)
    if state.leaf is None or _leaf_is_due(state.leaf.cert, signer.cert, trusted, now):
        done.append("renewed the certificate" if state.leaf else "made a certificate")
        state = replace(state, leaf=make_leaf(signer, hosts, now))
    kept = _still_needed(state.authorities, signer.cert, _known(state.leaf).cert, now)
    if kept != state.authorities:
        done.append("dropped an old authority")
        state = replace(state, authorities=kept)
    return state, tuple(done)


def make_authority(now: datetime) -> Pair:
    """A new authority, self-signed, valid from a little before `now`."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # A name of its own: where two authorities in a bundle share one, some verifiers try only the first.
    name = _name(f"lora-sidecar-ca-{serial:040x}"[:48])
    builder = _builder(name, name, key, serial, now, CA_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(authority=True), critical=True)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def make_leaf(signer: Pair, hosts: Sequence[str], now: datetime) -> Pair:
    """A server certificate for `hosts`, valid from a little before `now` and no longer than its signer."""
    key = ec.generate_private_key(ec.SECP256R1())
    life = min(LEAF_LIFE, signer.cert.not_valid_after_utc - now)
    serial = x509.random_serial_number()
    builder = _builder(_name("lora-sidecar-injector"), signer.cert.subject, key, serial, now, life)
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(issuer, critical=False)
    )
    return Pair(builder.sign(signer.key, hashes.SHA256()), key)


# --- when -------------------------------------------------------------------------------------


def _due(cert: x509.Certificate) -> datetime:
    """Two thirds of its life."""
    begin, end = cert.not_valid_before_utc, cert.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def _leaf_is_due(
    leaf: x509.Certificate,
    signer: x509.Certificate,
    trusted: Collection[bytes],
    now: datetime,
) -> bool:
    """A leaf of another authority than the signer is due as soon as the signer may be relied on."""
    if _signed(leaf, signer):
        return now >= _due(leaf)
    known = bool(trusted) and all(signer in authorities_in(one, now) for one in trusted)
    spread = now >= signer.not_valid_before_utc + BACKDATED + SPREAD
    return (known and spread) or now >= leaf.not_valid_after_utc - URGENT


def _still_needed(
    authorities: tuple[x509.Certificate, ...],
    signer: x509.Certificate,
    leaf: x509.Certificate,
    now: datetime,
) -> tuple[x509.Certificate, ...]:
    """The bundle without those of which no valid leaf can be left: ours sign none once there is a newer signer."""
    begun = signer.not_valid_before_utc + BACKDATED
    if now < begun + LEAF_LIFE + URGENT:
        return authorities
    return tuple(ca for ca in authorities if ca == signer or _signed(leaf, ca))


# --- reading ----------------------------------------------------------------------------------


def _certificates(pem: bytes) -> list[x509.Certificate]:
    """Every certificate that can be read; one that is broken does not cost the others."""
    found = []
    for part in pem.split(_END)[:-1]:
        try:
            found.append(x509.load_pem_x509_certificate(part[part.find(b"-----BEGIN") :] + _END))
        except ValueError:
            continue
    return found


def _key(pem: bytes) -> _Key | None:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, _Key) else None


def _fits(cert: x509.Certificate, key: _Key) -> bool:
    try:
        return cert.public_key() == key.public_key()
    except ValueError:
        return False


def _valid(cert: x509.Certificate, now: datetime) -> bool:
    return cert.not_valid_before_utc <= now < cert.not_valid_after_utc


def _is_authority(cert: x509.Certificate) -> bool:
    try:
        return cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _hosts(cert: x509.Certificate) -> set[str]:
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return set(names.get_values_for_type(x509.DNSName))


def _issuer(
    cert: x509.Certificate, authorities: Iterable[x509.Certificate]
) -> x509.Certificate | None:
    return next((ca for ca in authorities if _signed(cert, ca)), None)


def _signed(cert: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


# --- making -----------------------------------------------------------------------------------


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _Key, serial: int, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _known(pair: Pair | None) -> Pair:
    if pair is None:
        raise ValueError("made a moment ago")
    return pair
