"""The TLS certificate of the HTTP server: the files of `http_certificate` and `http_key`.

OpenSSL would wait for a FIFO, and ask for a pass phrase at the terminal: the worker would hang. So
FIFOs and keys with a pass phrase are refused.
"""

import os
import ssl
import stat
from typing import Final, NoReturn

from acpterm.config import Settings

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
# OpenSSL's errors if the key does not belong to the certificate, or is of another type.
_OTHER_KEY: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")


class TlsError(Exception):
    """A certificate or a key cannot be used; the message names the setting, and says why."""


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the context with the certificate of the settings, if any, or raise `TlsError`."""
    certificate, key = settings.http_certificate, settings.http_key
    if certificate is None or key is None:
        return None
    _check("http_certificate", certificate, _CERTIFICATE, "certificate")
    _check("http_key", key, _KEY, "private key")

    def refuse() -> NoReturn:
        raise TlsError(
            f"http_key {key} has a pass phrase, which the daemon cannot ask for: store the key "
            "without one (openssl pkey -in KEY -out NEW)"
        )

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason in _OTHER_KEY:
            raise TlsError(
                f"http_key {key} is not the key of http_certificate {certificate}"
            ) from error
        raise TlsError(f"http_certificate {certificate}, http_key {key}: {error}") from error
    except OSError as error:
        raise TlsError(
            f"http_certificate {certificate}, http_key {key}: {error.strerror or error}"
        ) from error
    return context


def _check(setting: str, path: str, marker: bytes, content: str) -> None:
    """Raise `TlsError` unless the file at `path` is a regular file that contains `marker`."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise TlsError(f"{setting} {path}: it is not a file")
        with open(path, "rb") as file:
            found = file.read()
    except OSError as error:
        raise TlsError(f"{setting} {path}: {error.strerror}") from error
    if marker not in found:
        raise TlsError(f"{setting} {path}: there is no {content} in PEM format in it")
