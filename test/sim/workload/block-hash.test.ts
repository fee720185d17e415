import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { blockHash, blockHashes, sha256Hex } from '../../../src/sim/workload/tokens.ts';

const vectors = JSON.parse(
  readFileSync(new URL('../random/fixtures/hash.json', import.meta.url), 'utf8'),
) as {
  blocks: Array<{ prev: string; tokens: number[] | null; hash: string }>;
  chain: { block_size: number; tokens: number[]; hashes: string[] };
};

describe('block hashes', () => {
  it.each(vectors.blocks.map((row) => [row.prev, row.tokens ?? [], row.hash] as const))(
    'of "%s" and %j',
    (prev, tokens, hash) => {
      expect(blockHash(prev, tokens)).toBe(hash);
    },
  );

  it('chain over the full blocks of a prompt', () => {
    expect(vectors.blocks).toHaveLength(7);
    expect(blockHashes(Int32Array.from(vectors.chain.tokens), vectors.chain.block_size)).toEqual(
      vectors.chain.hashes,
    );
  });

  it('rest on SHA-256', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        expect(sha256Hex(bytes)).toBe(createHash('sha256').update(bytes).digest('hex'));
      }),
    );
  });
});
