"""From a key file to Vault while all serve on: the new wraps, and each opens its own."""

from __future__ import annotations

from scopekv.adapters.root_key import FileKeyWrapper
from scopekv.adapters.vault import VaultKeyWrapper

_VAULTS = b"vault:"


class MovingKeyWrapper:
    """`ports.KeyWrapper`: Vault's in all but unwrapping what the file wrapped before.

    `scope-keys rewrap` moves the rest; then the file may be deleted, and this is not used any more.
    """

    def __init__(self, vault: VaultKeyWrapper, file: FileKeyWrapper) -> None:
        self._vault, self._file = vault, file

    @property
    def version(self) -> str:
        return self._vault.version

    def wrap(self, key: bytes, context: bytes) -> bytes:
        return self._vault.wrap(key, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        holder = self._vault if wrapped.startswith(_VAULTS) else self._file
        return holder.unwrap(wrapped, context)

    def rotate(self) -> str:
        return self._vault.rotate()

    def retire(self) -> int:
        return self._vault.retire()

    def close(self) -> None:
        self._vault.close()
        self._file.close()
