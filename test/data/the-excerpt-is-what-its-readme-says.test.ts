import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { readMooncakeTrace } from '../../src/sim/build/mooncakeTrace.ts';

const root = join(import.meta.dirname, '..', '..');
const excerptPath = join(root, 'data', 'mooncake-conversation-excerpt.jsonl.gz');
const wholePath = join(root, '..', 'shared', 'traces', 'mooncake-fast25', 'conversation_trace.jsonl.gz');
const readme = readFileSync(join(root, 'data', 'README.md'), 'utf8');
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

describe('the Mooncake excerpt', () => {
  it('has the digests that its README gives', () => {
    const stored = readFileSync(excerptPath);
    expect(readme).toContain(sha256(stored));
    expect(readme).toContain(sha256(gunzipSync(stored)));
  });

  it('has as many requests, blocks and different blocks as its README says, all of them well formed', async () => {
    const different = new Set<number>();
    let requests = 0;
    let blocks = 0;
    for await (const request of readMooncakeTrace(excerptPath)) {
      requests++;
      blocks += request.hashIds.length;
      for (const id of request.hashIds) different.add(id);
    }
    const text = readme.replace(/\s+/g, ' ');
    const [requestsText, blocksText, differentText] = [requests, blocks, different.size].map((count) =>
      count.toLocaleString('en-US'),
    );
    expect(text).toContain(`${requestsText} requests name ${blocksText} blocks, ${differentText} different`);
  });

  it('lies beside the licence of its source', () => {
    expect(readFileSync(join(root, 'data', 'LICENSE-mooncake'), 'utf8')).toMatch(
      /Apache License\s+Version 2\.0/,
    );
  });

  const absent = !existsSync(wholePath);
  if (absent)
    console.warn('SKIPPED: the whole conversation trace (mooncake-fast25) is not here to compare with');
  it.skipIf(absent)('is the beginning of the published trace, byte for byte (needs the whole trace)', () => {
    const whole = gunzipSync(readFileSync(wholePath));
    const excerpt = gunzipSync(readFileSync(excerptPath));
    expect(readme).toContain(sha256(whole));
    expect(excerpt.equals(whole.subarray(0, excerpt.length))).toBe(true);
    expect(excerpt.toString('latin1').split('\n')).toHaveLength(2001);
  });
});
