"""A TLS certificate that is loaded again when its files change; open connections stay."""

import ssl

from memqos.errors import InputError, os_reason
from memqos.host.credential_files import load_certificate
from memqos.host.file_version import FileVersion, file_version


class Certificate:
    """A certificate chain, its key, and the TLS context for new connections."""

    def __init__(self, chain: str, key: str) -> None:
        self.chain = chain
        self.key = key
        self._versions = self._current_versions()
        self.context = self._load()

    def refresh(self) -> bool:
        """Load the files again if they have changed; False where they have not.

        A certificate and key that do not match, or cannot be read, raise InputError. Then the
        context in use stays, and the next call tries again. Open connections keep theirs.
        """
        versions = self._current_versions()
        if versions == self._versions:
            return False
        # SSL_CTX_use_certificate_chain_file(3) replaces the chain before the key is checked: a
        # context in use would be left with a chain and no key. So another one is made.
        self.context = self._load()
        self._versions = versions
        return True

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            load_certificate(context, self.chain, self.key)
        except ssl.SSLError as error:
            raise InputError(
                f"the certificate and the key do not match: {error.reason or error}",
                file=self.chain,
                hint=f"the key is {self.key}; both are PEM, the chain starts with the server's own",
            ) from None
        except OSError as error:
            raise _unreadable(self.chain, error) from None
        return context

    def _current_versions(self) -> tuple[FileVersion, ...]:
        versions = []
        for file in (self.chain, self.key):
            try:
                versions.append(file_version(file))
            except OSError as error:
                raise _unreadable(file, error) from None
        return tuple(versions)


def _unreadable(file: str, error: OSError) -> InputError:
    return InputError(os_reason(error), file=file, hint="give a PEM file that can be read")
