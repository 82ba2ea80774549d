"""What becomes of certificates as time passes and hands meddle: the decisions, in fake time."""

from datetime import UTC, datetime, timedelta

import pytest

from injector import certificates as c
from injector.tls import Shown, UnusableError, verify

HOSTS = ("injector.sys.svc", "injector.sys.svc.cluster.local")
NOW = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 - the handshake knows no other clock
DAY = timedelta(days=1)


def made(now=NOW, trusted=()):
    return c.advance(c.State(), HOSTS, trusted, now)[0]


def later(state, by, trusted=None):
    now = NOW + by
    bundles = (state.bundle,) if trusted is None else trusted
    return c.advance(c.read(state.data(), HOSTS, now), HOSTS, bundles, now)


def test_what_was_made_is_kept_and_verified_by_its_bundle() -> None:
    state = made()
    assert later(later(state, DAY)[0], DAY)[1] == ()
    verify(Shown(state.data()[c.CERT], state.data()[c.KEY]), state.bundle, HOSTS[0])


def test_a_leaf_is_renewed_at_two_thirds_of_its_life_and_the_authority_stays() -> None:
    state = made()
    assert later(state, 59 * DAY)[1] == ()
    new, done = later(state, 61 * DAY)
    assert done == ("renewed the certificate",)
    assert new.bundle == state.bundle


@pytest.mark.field(77)
def test_a_new_authority_is_trusted_before_it_signs_and_the_old_one_until_its_leaves_end() -> None:
    old = c.make_authority(NOW - c.CA_LIFE * 2 / 3 - DAY)
    first = c.State((old.cert,), old, c.make_leaf(old, HOSTS, NOW))
    staged, done = later(first, timedelta())
    assert done == ("renewed the authority",)
    assert staged.leaf is not None
    assert staged.leaf.cert == first.leaf.cert
    assert len(staged.authorities) == 2
    hour = timedelta(hours=1)
    assert later(staged, hour, trusted=(first.bundle,))[1] == ()
    switched, done = later(staged, hour)
    assert done == ("renewed the certificate",)
    assert len(switched.authorities) == 2
    renewed = later(switched, 80 * DAY)[0]
    assert len(renewed.authorities) == 2
    ended, done = later(renewed, 92 * DAY)
    assert done == ("dropped an old authority",)
    assert ended.signer is not None
    assert ended.authorities == (ended.signer.cert,)


@pytest.mark.parametrize("name", [c.CA_CERT, c.CA_KEY, c.CERT, c.KEY])
@pytest.mark.parametrize("value", [b"", b"rubbish", b"-----BEGIN CERTIFICATE-----\n\xff", None])
def test_whatever_a_hand_breaks_is_made_anew_and_the_old_authority_stays_trusted(
    name, value
) -> None:
    old = made()
    data = {**old.data(), name: value}
    if value is None:
        del data[name]
    state, done = c.advance(c.read(data, HOSTS, NOW), HOSTS, (old.bundle,), NOW)
    assert done
    assert old.authorities[0] in state.authorities
    verify(Shown(state.data()[c.CERT], state.data()[c.KEY]), state.bundle, HOSTS[0])
    assert later(later(state, DAY)[0], DAY)[1] == ()


def test_a_certificate_for_other_names_is_replaced() -> None:
    state = made()
    assert c.read(state.data(), ("other.sys.svc",), NOW).leaf is None


def test_a_clock_that_is_most_of_a_day_behind_takes_what_was_just_made() -> None:
    assert later(made(), -timedelta(hours=23))[1] == ()


def test_an_empty_bundle_verifies_nothing() -> None:
    data = made().data()
    with pytest.raises(UnusableError):
        verify(Shown(data[c.CERT], data[c.KEY]), b"", HOSTS[0])
