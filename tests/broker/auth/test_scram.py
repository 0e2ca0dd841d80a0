"""SCRAM-SHA-256: the example of RFC 7677, both halves against each other, and every way to cheat."""

import pytest

from metromq.broker.auth.scram import ScramServer, ScramStore, derive_keys, parse_keys, parse_scram
from metromq.client.scram import ScramClient, ScramError, decode64, saslprep
from metromq.errors import ConfigError, UsageError

# RFC 7677, section 3.
SALT = decode64("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def server(**users: str) -> ScramServer:
    return ScramServer(ScramStore({name: derive_keys(password, SALT) for name, password in users.items()}, b"secret"))


def test_example_of_the_rfc() -> None:
    client = ScramClient("user", "pencil", CLIENT_NONCE)
    side = server(user="pencil")
    first = client.start()
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge, answer = side.first(first, SERVER_NONCE)
    assert answer == SERVER_FIRST
    final = client.answer(answer)
    assert final == CLIENT_FINAL
    verdict = side.final(challenge, final)
    assert verdict == SERVER_FINAL
    client.finish(verdict)


@pytest.mark.parametrize(("user", "password"), [("user", "wrong"), ("nobody", "pencil")])
def test_wrong_password_and_unknown_user_fail_alike(user: str, password: str) -> None:
    client = ScramClient(user, password, "abc")
    side = server(user="pencil")
    challenge, answer = side.first(client.start(), "def")
    assert answer.endswith(b",i=4096")
    with pytest.raises(ScramError, match="the proof is wrong"):
        side.final(challenge, client.answer(answer))


def test_an_unknown_user_gets_the_same_salt_each_time() -> None:
    side = server()
    message = ScramClient("ghost", "x", "abc").start()
    assert side.first(message, "n")[1] == side.first(message, "n")[1]
    assert side.first(message, "n")[1] != side.first(ScramClient("other", "x", "abc").start(), "n")[1]


def test_names_are_escaped() -> None:
    client = ScramClient("a,b=c", "pw", "abc")
    assert client.start() == b"n,,n=a=2Cb=3Dc,r=abc"
    challenge, _ = server().first(client.start(), "n")
    assert challenge.username == "a,b=c"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=u,r=x",
        b"n,a=other,n=u,r=x",
        b"n,,r=x,n=u",
        b"n,,n=u,r=",
        b"n,,n=a=b,r=x",
        b"\xff,,",
    ],
)
def test_malformed_first_messages(message: bytes) -> None:
    with pytest.raises(ScramError):
        server(u="x").first(message, "n")


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,r=abcdef",
        b"c=eSws,r=abcdef,p=" + b"A" * 43 + b"=",
        b"c=biws,r=abcxxx,p=" + b"A" * 43 + b"=",
        b"c=biws,r=abcdef,p=AAAA",
        b"c=biws,r=abcdef,p=!",
    ],
)
def test_malformed_final_messages(final: bytes) -> None:
    side = server(user="pencil")
    challenge, _ = side.first(ScramClient("user", "pencil", "abc").start(), "def")
    with pytest.raises(ScramError):
        side.final(challenge, final)


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=xyz,s=c2FsdA==,i=4096",
        b"r=abc,s=c2FsdA==,i=4096",
        b"r=abcd,s=c2FsdA==,i=1",
        b"r=abcd,s=!,i=4096",
        b"e=other",
    ],
)
def test_the_client_checks_the_server(challenge: bytes) -> None:
    client = ScramClient("user", "pencil", "abc")
    client.start()
    with pytest.raises(ScramError):
        client.answer(challenge)


@pytest.mark.parametrize("verdict", [None, b"", b"v=AAAA", b"e=no"])
def test_a_server_that_proves_nothing_is_refused(verdict: bytes | None) -> None:
    client = ScramClient("user", "pencil", CLIENT_NONCE)
    client.start()
    client.answer(SERVER_FIRST)
    with pytest.raises(ScramError):
        client.finish(verdict)


def test_store_file() -> None:
    keys = derive_keys("pencil", SALT)
    assert parse_keys(str(keys)) == keys
    assert parse_scram(f"# users\nu:{keys}\n", "f", b"").find("u") == keys
    text = f"u:{keys}\nu:{keys}\nplain:x\nnocolon\nv:SCRAM-SHA-256$1:c2FsdA==$AAAA:AAAA\nw:SCRAM-SHA-256$4096:c$x:y"
    with pytest.raises(ConfigError) as raised:
        parse_scram(text, "f", b"")
    assert [f"line {number}" in str(raised.value) for number in range(1, 7)] == [False, True, True, True, True, True]


def test_saslprep_examples_of_rfc_4013() -> None:
    assert saslprep("I\u00adX") == "IX"
    assert saslprep("user") == "user"
    assert saslprep("\u00aa") == "a"
    assert saslprep("\u2168") == "IX"
    for wrong in ("\u0007", "\u06271"):
        with pytest.raises(UsageError):
            saslprep(wrong)
