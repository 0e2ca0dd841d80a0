"""Who may enter and what they may do: Mosquitto's password and ACL files, certificates, SCRAM."""

from metromq.broker.auth import passwords
from metromq.broker.auth.acl import Acl, ClientRights, load_acl, parse_acl
from metromq.broker.auth.authenticator import (
    Accept,
    Authenticator,
    Continue,
    Credentials,
    Decision,
    FileAuthenticator,
    Refuse,
    load_authenticator,
)
from metromq.broker.auth.passwords import PasswordFile, load_passwords, parse_passwords
from metromq.broker.auth.scram_file import SALT_BYTES, ScramStore, load_scram, parse_keys, parse_scram
from metromq.protocol import scram

ScramServer = scram.ScramServer

__all__ = [
    "SALT_BYTES",
    "Accept",
    "Acl",
    "Authenticator",
    "ClientRights",
    "Continue",
    "Credentials",
    "Decision",
    "FileAuthenticator",
    "PasswordFile",
    "Refuse",
    "ScramServer",
    "ScramStore",
    "load_acl",
    "load_authenticator",
    "load_passwords",
    "load_scram",
    "parse_acl",
    "parse_keys",
    "parse_passwords",
    "parse_scram",
    "passwords",
]
