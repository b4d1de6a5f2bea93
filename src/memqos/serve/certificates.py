"""A certificate that is read again when its files change, without a connection lost."""

import os
import ssl
from typing import NamedTuple

from memqos.errors import InputError


class _Version(NamedTuple):
    """What tells one version of a file from the next; a mounted secret changes its inode."""

    inode: int
    size: int
    changed: int


class Certificate:
    """A chain and its key, and the context that new connections are made with."""

    def __init__(self, chain: str, key: str) -> None:
        self.chain = chain
        self.key = key
        self._versions = self._current_versions()
        self.context = self._load()

    def refresh(self) -> bool:
        """Take what is in the files now; False where nothing has changed.

        A pair that does not fit, or cannot be read, raises InputError. The context in use stays
        then, and the next call tries again. Connections that stand keep theirs.
        """
        versions = self._current_versions()
        if versions == self._versions:
            return False
        # OpenSSL takes a chain before it looks at the key: a context in use would be left with a
        # chain and no key. So another one is made.
        self.context = self._load()
        self._versions = versions
        return True

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # A key that asks for a password would hang: it gets an empty one, and is refused.
            context.load_cert_chain(self.chain, self.key, password="")
        except ssl.SSLError as error:
            raise InputError(
                f"the certificate and the key do not work together: {error.reason or error}",
                file=self.chain,
                hint=f"the key is {self.key}; both are PEM, the chain starts with the server's own",
            ) from None
        except OSError as error:
            raise _unreadable(self.chain, error) from None
        return context

    def _current_versions(self) -> tuple[_Version, ...]:
        versions = []
        for file in (self.chain, self.key):
            try:
                found = os.stat(file)
            except OSError as error:
                raise _unreadable(file, error) from None
            versions.append(_Version(found.st_ino, found.st_size, found.st_mtime_ns))
        return tuple(versions)


def _unreadable(file: str, error: OSError) -> InputError:
    return InputError(
        (error.strerror or str(error)).lower(), file=file, hint="give a PEM file that can be read"
    )
