/**
 * Seals notes by AES-256-GCM under a key that HKDF derives from the runtime's secret. In a browser, where these calls of
 * Node are missing, `src/adapters/browser/noteCipher.ts` stands here: a browser's files are read by that browser alone.
 */

import { createCipheriv, createDecipheriv, hkdfSync } from 'node:crypto';

const CIPHER = 'aes-256-gcm';

export class NoteCipher {
  readonly #key: Uint8Array;

  constructor(secretKey: Uint8Array) {
    this.#key = new Uint8Array(
      hkdfSync('sha256', secretKey, new Uint8Array(0), 'tierkv notes of records', 32),
    );
  }

  /** @param authenticated is not in the result, and must be the same to open it */
  seal(
    nonce: Uint8Array,
    authenticated: Uint8Array,
    plain: Uint8Array,
  ): { readonly sealed: Uint8Array; readonly tag: Uint8Array } {
    const cipher = createCipheriv(CIPHER, this.#key, nonce);
    cipher.setAAD(authenticated);
    const sealed = Buffer.concat([cipher.update(plain), cipher.final()]);
    return { sealed, tag: cipher.getAuthTag() };
  }

  /** Undefined for what was not sealed under this secret, or was changed. */
  open(
    nonce: Uint8Array,
    tag: Uint8Array,
    authenticated: Uint8Array,
    sealed: Uint8Array,
  ): Uint8Array | undefined {
    try {
      const cipher = createDecipheriv(CIPHER, this.#key, nonce);
      cipher.setAAD(authenticated);
      cipher.setAuthTag(tag);
      return Buffer.concat([cipher.update(sealed), cipher.final()]);
    } catch {
      return undefined;
    }
  }
}
