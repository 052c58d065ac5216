"""SASL in the data client: SCRAM with the example of RFC 7677, and the key sasl.jaas.config."""

from __future__ import annotations

import pytest

from kafkacore.client.errors import OptionError
from kafkacore.client.options import Options
from kafkacore.client.security import Scram, credentials, tls_context
from kafkacore.protocol.errors import KafkaError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
# The example of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(user="user"):
    return Scram("SCRAM-SHA-256", user, "pencil", NONCE)


def test_scram_exchange_is_that_of_the_rfc():
    mine = scram()
    assert mine.first() == b"n,,n=user,r=" + NONCE.encode()
    assert mine.answer(FIRST) == PROOF
    mine.finish(LAST)


def test_scram_escapes_names_that_have_its_separators():
    assert scram("a=b,c").first() == b"n,,n=a=3Db=2Cc,r=" + NONCE.encode()


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"r=other,s=W22Z,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "nonce"),
        (FIRST.replace(b"4096", b"1"), "asks for 1 iterations"),
        (FIRST.replace(b"4096", b"999999999"), "asks for 999999999 iterations"),
        (FIRST.replace(b"4096", b"x"), "malformed"),
        (FIRST.replace(b",s=W22ZaJ0SNY7soEsUEjb6gQ==", b""), "malformed"),
        (b"\xff", "not text"),
        (b"", "malformed"),
    ],
)
def test_scram_refuses_a_server_that_breaks_the_rules(first, reason):
    with pytest.raises(KafkaError, match=f"the server cannot be trusted: .*{reason}"):
        scram().answer(first)


@pytest.mark.parametrize("last", [b"v=AAAA", b"v=", b"v=!", b"", b"e=invalid-proof"])
def test_scram_refuses_a_server_that_does_not_know_the_password(last):
    mine = scram()
    mine.answer(FIRST)
    with pytest.raises(KafkaError, match="cannot be trusted"):
        mine.finish(last)


def test_scram_refuses_a_last_message_before_the_first():
    with pytest.raises(KafkaError, match="cannot be trusted"):
        scram().finish(b"v=")


@pytest.mark.parametrize(
    ("jaas", "found"),
    [
        (f'{PLAIN} required username="ann" password="a b;c";', ("ann", "a b;c")),
        (f"{PLAIN} required\n  username='ann'\n  password=secret ;", ("ann", "secret")),
        (f'{PLAIN} required password="q\\"q" username="a\\\\b" other="1";', ("a\\b", 'q"q')),
    ],
)
def test_credentials_are_read_as_java_reads_them(jaas, found):
    assert credentials("PLAIN", jaas) == found


@pytest.mark.parametrize(
    "jaas",
    [None, "", "x", f'{PLAIN} required username="ann" password="secret"', f'{PLAIN} required password="secret";',
     f'{SCRAM} required username="ann" password="secret";', f'{PLAIN} required username="ann" password="secret" x;'],
)  # fmt: skip
def test_credentials_that_do_not_fit_are_refused_without_showing_the_password(jaas):
    with pytest.raises(OptionError, match=r"sasl.jaas.config must be: .*PlainLoginModule required") as raised:
        credentials("PLAIN", jaas)
    assert "secret" not in str(raised.value)


def test_trust_stores_must_be_pem_files(tmp_path):
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    for location in (tmp_path / "store.jks", tmp_path / "missing"):
        with pytest.raises(OptionError, match="must be PEM files"):
            tls_context(Options({"ssl.truststore.location": location}))
