"""Encrypted state: LangGraph's EncryptedSerializer, strict about what it reads and with keys that can be changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from typing_extensions import Self

from redis_ckpt.errors import PlaintextRecordError
from redis_ckpt.serde import FastSerializer

__all__ = ["StrictEncryptedSerializer"]


class StrictEncryptedSerializer(EncryptedSerializer):
    """LangGraph's `EncryptedSerializer`, which reads nothing that is not encrypted.

    The parent lets records in clear pass, so whoever may write to the server could slip them in. This one raises
    `PlaintextRecordError`. What it writes the parent reads, and the other way round.

    Args:
        cipher: Encrypts and decrypts.
        serde: What is encrypted; by default the bytes of a `FastSerializer`.

    Source: `langgraph.checkpoint.serde.encrypted`.
    """

    def __init__(self, cipher: CipherProtocol, serde: SerializerProtocol | None = None) -> None:
        super().__init__(cipher, FastSerializer() if serde is None else serde)

    @classmethod
    def from_pycryptodome_aes(
        cls, serde: SerializerProtocol | None = None, *, old_keys: Sequence[bytes] = (), **kwargs: Any
    ) -> Self:
        """AES, by default in EAX mode, which notices every change of what it encrypted.

        Args:
            serde: What is encrypted; by default the bytes of a `FastSerializer`.
            old_keys: Former keys, that are still read. What is written anew gets the present key.
            **kwargs: `key` (16, 24 or 32 bytes; by default that of the environment variable LANGGRAPH_AES_KEY), and
                what `Crypto.Cipher.AES.new` takes.

        Raises:
            ImportError: pycryptodome is not installed.
            ValueError: There is no key, or it is of another length.
        """
        inner = FastSerializer() if serde is None else serde
        present = EncryptedSerializer.from_pycryptodome_aes(inner, **kwargs).cipher
        former = [EncryptedSerializer.from_pycryptodome_aes(inner, **{**kwargs, "key": k}).cipher for k in old_keys]
        return cls(_Ciphers(present, former) if former else present, inner)

    def over(self, serde: SerializerProtocol) -> Self:
        """The same, with another serialiser inside."""
        return type(self)(self.cipher, serde)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value of what `dumps_typed` gave.

        Raises:
            PlaintextRecordError: It is not encrypted.
            ValueError: It was encrypted with another key, or was changed since.
        """
        if "+" not in data[0]:
            raise PlaintextRecordError(data[0])
        return super().loads_typed(data)


class _Ciphers(CipherProtocol):
    """Encrypts with one cipher and decrypts with whichever fits."""

    def __init__(self, present: CipherProtocol, former: Sequence[CipherProtocol]) -> None:
        self._present, self._all = present, (present, *former)

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """The name of the cipher and the ciphertext."""
        return self._present.encrypt(plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """The plaintext.

        Raises:
            ValueError: No key fits.
        """
        for cipher in self._all:
            try:
                return cipher.decrypt(ciphername, ciphertext)
            except ValueError as error:
                failed = error
        raise failed


def strict_as_before(before: SerializerProtocol, now: SerializerProtocol) -> SerializerProtocol:
    """LangGraph makes the serialiser anew for an allowlist, and makes the parent's: what was strict stays strict."""
    if isinstance(before, StrictEncryptedSerializer) and type(now) is EncryptedSerializer:
        return before.over(now.serde)
    return now
