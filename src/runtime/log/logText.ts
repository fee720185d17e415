/**
 * The decision log as text, one line an event: `>` for what the manager was given, `<` for what it decided.
 * The head names the version, the configuration and the policies, so a log is all that is needed to run it
 * again.
 *
 *     # tierkv decision log 3 {"unitBytes":[16384],...} 5d1f02aa
 *     > 0 open 14 14 0 0 0 <keys in hex> 91c0be77
 *     < match 1 14 0 0 0 03a9d1c4
 *     # end 3 7f30aa12
 *
 * Where a scheduler drives the manager, its lines are between them (schedulerLog.ts).
 *
 * The last word of a line is a check over the line and all lines before it: a log that was cut, edited or
 * added to is found out, with the line where it begins. The check finds damage, not forgery. Decisions carry
 * no time, so that runs which differ only in speed have equal ones.
 */

export const LOG_VERSION = 3;
export const logMagic = '# tierkv decision log ';
export const endMagic = '# end ';

const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/** The check of the lines so far, carried from line to line: FNV-1a of 32 bits over character codes. */
export class LineCheck {
  #state = FNV_OFFSET;

  /** Takes the line in. @returns its check, eight hexadecimal digits */
  of(line: string): string {
    let state = this.#state;
    for (let i = 0; i < line.length; i++) state = Math.imul(state ^ line.charCodeAt(i), FNV_PRIME);
    this.#state = state;
    return (state >>> 0).toString(16).padStart(8, '0');
  }
}

const HEX: readonly string[] = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** Words as the hexadecimal digits of their bytes, the lowest byte first. */
export function hexOf(words: Uint32Array): string {
  let text = '';
  for (const word of words) {
    text += HEX[word & 255] + HEX[(word >>> 8) & 255] + HEX[(word >>> 16) & 255] + HEX[word >>> 24];
  }
  return text;
}

/** The words of `hexOf`'s text, or undefined where it is none. */
export function wordsOf(hex: string): Uint32Array | undefined {
  if (hex.length % 8 !== 0 || !/^[0-9a-f]*$/.test(hex)) return undefined;
  return Uint32Array.from({ length: hex.length / 8 }, (_, i) => {
    const [a, b, c, d] = [0, 2, 4, 6].map((at) => Number.parseInt(hex.slice(i * 8 + at, i * 8 + at + 2), 16));
    return a + b * 2 ** 8 + c * 2 ** 16 + d * 2 ** 24;
  });
}
