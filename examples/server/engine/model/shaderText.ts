/** The engine's WGSL, with lines that stand once for each row of a tile. */

import { createHash } from 'node:crypto';
import fs from 'node:fs';

/**
 * @param name file in `shaders/`, without ending
 * @param repeats what stands several times: `{ row: 4 }` writes a line marked `each row` with 0 to 3 for ROW
 */
export function shaderText(name: string, repeats: Readonly<Record<string, number>> = {}): string {
  const text = fs.readFileSync(new URL(`../shaders/${name}.wgsl`, import.meta.url), 'utf8');
  return text
    .split('\n')
    .map((line) => {
      const [, word] = /\/\/ each (\w+)$/.exec(line) ?? [];
      const times = word === undefined ? undefined : repeats[word];
      if (word === undefined || times === undefined) return line;
      const copies = Array.from({ length: times }, (_, i) => line.replaceAll(word.toUpperCase(), String(i)));
      return copies.join('\n');
    })
    .join('\n');
}

/** A hash of all of it: other kernels give other bits, and so other KV. */
export function shadersDigest(): string {
  const hash = createHash('sha256');
  const folder = new URL('../shaders/', import.meta.url);
  for (const name of fs.readdirSync(folder).sort()) {
    const text = fs.readFileSync(new URL(name, folder));
    hash.update(`${name} ${text.length}\n`).update(text);
  }
  return hash.digest('hex');
}
