/** Files out of a ZIP archive in memory, found by its central directory; stored or deflated. */

import { inflateRawSync } from 'node:zlib';
import { TierKVError } from '../../../src/index.ts';

const endSignature = 0x06054b50;
const entrySignature = 0x02014b50;
const endBytes = 22;

/** @throws TKV_INPUT for bytes that are not an archive, or lack one of `names` */
export function readZip(archive: Buffer, names: readonly string[]): Map<string, Buffer> {
  const damaged = (problem: string): Error =>
    new TierKVError('TKV_INPUT', `The archive ${problem}. Fetch it again.`);
  let end = archive.length - endBytes;
  while (end >= 0 && archive.readUInt32LE(end) !== endSignature) end--;
  if (end < 0) throw damaged('has no directory');
  const count = archive.readUInt16LE(end + 10);
  const found = new Map<string, Buffer>();
  let at = archive.readUInt32LE(end + 16);
  for (let i = 0; i < count; i++) {
    if (archive.readUInt32LE(at) !== entrySignature) throw damaged('has a damaged directory');
    const method = archive.readUInt16LE(at + 10);
    const bytes = archive.readUInt32LE(at + 20);
    const nameBytes = archive.readUInt16LE(at + 28);
    const more = archive.readUInt16LE(at + 30) + archive.readUInt16LE(at + 32);
    const local = archive.readUInt32LE(at + 42);
    const name = archive.toString('utf8', at + 46, at + 46 + nameBytes);
    at += 46 + nameBytes + more;
    if (!names.includes(name)) continue;
    const dataAt = local + 30 + archive.readUInt16LE(local + 26) + archive.readUInt16LE(local + 28);
    const data = archive.subarray(dataAt, dataAt + bytes);
    found.set(name, method === 0 ? data : inflateRawSync(data));
  }
  for (const name of names) if (!found.has(name)) throw damaged(`has no ${name}`);
  return found;
}
