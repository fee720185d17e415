/**
 * Decodes the base64 text of the embedded tables. The tables are little-endian; a big-endian machine, on
 * which typed arrays would read them wrongly, is refused at once instead of drawing another stream.
 */

import { invariant } from '../../runtime/errors.ts';

export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  invariant(
    new Uint8Array(new Uint16Array([1]).buffer)[0] === 1,
    'the random tables need a little-endian machine',
  );
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
