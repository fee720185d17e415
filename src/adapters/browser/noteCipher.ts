/**
 * `src/embed/noteCipher.ts` in a browser, whose own ciphers answer by promises only. Keyed BLAKE2s is a pseudo-random
 * function: one key makes the stream that hides a note, another one its tag, over all that must not change. The tag is
 * compared before anything is opened.
 */

import { blake2sOf } from '../../runtime/keys/blake2s.ts';

const BLOCK_BYTES = 32;
const TAG_BYTES = 16;

const text = (value: string): Uint8Array => new TextEncoder().encode(value);

export class NoteCipher {
  readonly #stream: Uint8Array;
  readonly #tags: Uint8Array;

  constructor(secretKey: Uint8Array) {
    this.#stream = blake2sOf(text('tierkv notes in a browser: stream'), BLOCK_BYTES, secretKey);
    this.#tags = blake2sOf(text('tierkv notes in a browser: tags'), BLOCK_BYTES, secretKey);
  }

  seal(
    nonce: Uint8Array,
    authenticated: Uint8Array,
    plain: Uint8Array,
  ): { readonly sealed: Uint8Array; readonly tag: Uint8Array } {
    const sealed = this.#hidden(nonce, plain);
    return { sealed, tag: this.#tagOf(nonce, authenticated, sealed) };
  }

  open(
    nonce: Uint8Array,
    tag: Uint8Array,
    authenticated: Uint8Array,
    sealed: Uint8Array,
  ): Uint8Array | undefined {
    const own = this.#tagOf(nonce, authenticated, sealed);
    // every byte is looked at, so that the time says nothing
    let differences = own.length ^ tag.length;
    for (let i = 0; i < own.length; i++) differences |= own[i] ^ tag[i];
    return differences === 0 ? this.#hidden(nonce, sealed) : undefined;
  }

  /** Each byte with a byte of the nonce's stream; twice is the bytes again. */
  #hidden(nonce: Uint8Array, bytes: Uint8Array): Uint8Array {
    const hidden = new Uint8Array(bytes.length);
    const input = new Uint8Array(nonce.length + 4);
    input.set(nonce);
    const counter = new DataView(input.buffer, nonce.length);
    for (let at = 0; at < bytes.length; at += BLOCK_BYTES) {
      counter.setUint32(0, at / BLOCK_BYTES);
      const stream = blake2sOf(input, BLOCK_BYTES, this.#stream);
      for (let i = at; i < Math.min(at + BLOCK_BYTES, bytes.length); i++)
        hidden[i] = bytes[i] ^ stream[i - at];
    }
    return hidden;
  }

  #tagOf(nonce: Uint8Array, authenticated: Uint8Array, sealed: Uint8Array): Uint8Array {
    const all = new Uint8Array(8 + nonce.length + authenticated.length + sealed.length);
    // with its lengths before it, no byte can pass from one part to the next
    new DataView(all.buffer).setUint32(0, nonce.length);
    new DataView(all.buffer).setUint32(4, authenticated.length);
    all.set(nonce, 8);
    all.set(authenticated, 8 + nonce.length);
    all.set(sealed, 8 + nonce.length + authenticated.length);
    return blake2sOf(all, TAG_BYTES, this.#tags);
  }
}
