"""SCRAM-SHA-256: the example of RFC 7677, both halves against each other, and every way to cheat."""

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp.utils import saslprep as scramp_saslprep

from metromq.broker.auth.scram_file import ScramStore
from metromq.errors import ScramError, UsageError
from metromq.protocol.scram import ScramClient, ScramServer, decode64, derive_keys, parse_iterations, saslprep

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


def test_saslprep_examples_of_rfc_4013() -> None:
    assert saslprep("I\u00adX") == "IX"
    assert saslprep("user") == "user"
    assert saslprep("\u00aa") == "a"
    assert saslprep("\u2168") == "IX"
    for wrong in ("\u0007", "\u06271"):
        with pytest.raises(UsageError):
            saslprep(wrong)


@pytest.mark.parametrize("text", ["", "4095", "10000001", "9" * 5000, "²²²²", "-4096", "4_096", "4096.0"])
def test_iterations_that_are_no_number_are_refused(text: str) -> None:
    with pytest.raises(ScramError, match="must be a number from 4096 to 10000000"):
        parse_iterations(text)
    client = ScramClient("user", "pencil", "abc")
    client.start()
    with pytest.raises(ScramError):
        client.answer(f"r=abcd,s=c2FsdA==,i={text}".encode())


# --- the twin: another implementation on the other side, both ways ----------------------------------------------------

PASSWORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"]), min_size=1, max_size=12
)
NAMES = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=12)
NONCES = st.text("abcdefghijklmnopqrstuvwxyz0123456789+/", min_size=8, max_size=20)


def prepared(text: str) -> bool:
    """Whether RFC 4013 allows it and leaves something of it."""
    try:
        return saslprep(text) != ""
    except UsageError:
        return False


@given(NAMES.filter(prepared), PASSWORDS.filter(prepared), NONCES, NONCES, st.booleans())
@settings(deadline=None, max_examples=40)
def test_our_client_and_the_twins_server(name: str, password: str, ours: str, theirs: str, right: bool) -> None:
    mechanism = scramp.ScramMechanism("SCRAM-SHA-256")
    info = mechanism.make_auth_info(password if right else f"{password}x", iteration_count=4096)
    asked: list[str] = []

    def auth_info(username: str) -> object:
        asked.append(username)
        return info

    side = mechanism.make_server(auth_info, s_nonce=theirs)
    client = ScramClient(name, password, ours)
    side.set_client_first(client.start().decode())
    final = client.answer(side.get_server_first().encode())
    if not right:
        with pytest.raises(scramp.ScramException):
            side.set_client_final(final.decode())
        return
    side.set_client_final(final.decode())
    client.finish(side.get_server_final().encode())
    assert asked == [saslprep(name)]


@given(NAMES.filter(prepared), PASSWORDS.filter(prepared), NONCES, NONCES, st.booleans())
@settings(deadline=None, max_examples=40)
def test_the_twins_client_and_our_server(name: str, password: str, ours: str, theirs: str, right: bool) -> None:
    stored = {saslprep(name): derive_keys(password if right else f"{password}x", SALT)}
    side = ScramServer(ScramStore(stored, b"secret"))
    client = scramp.ScramClient(["SCRAM-SHA-256"], name, password, c_nonce=theirs)
    challenge, answer = side.first(client.get_client_first().encode(), ours)
    client.set_server_first(answer.decode())
    final = client.get_client_final().encode()
    if not right:
        with pytest.raises(ScramError, match="the proof is wrong"):
            side.final(challenge, final)
        return
    client.set_server_final(side.final(challenge, final).decode())
    assert challenge.username == saslprep(name)


@given(st.text(max_size=20))
@settings(deadline=None, max_examples=500)
def test_saslprep_as_the_twin(text: str) -> None:
    try:
        expected = scramp_saslprep(text)
    except scramp.ScramException:
        with pytest.raises(UsageError):
            saslprep(text)
        return
    assert saslprep(text) == expected
