import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import type { FileStoreOptions } from '../../../src/backends/file/opening.ts';
import { fileLayout, recordOffset } from '../../../src/backends/file/record.ts';
import { digestWords } from '../../../src/runtime/digest.ts';
import type { PoolShape } from '../../../src/runtime/tables/slotPool.ts';
import { type TierUnderTest, tierContract } from '../../../src/testing/tierContract.ts';
import { editFile } from './scratch.ts';

const kinds: Record<string, FileStoreOptions> = {
  'direct where the disk allows': { mode: 'auto' },
  buffered: { mode: 'buffered' },
  'in I/Os of a block': { ioBytes: 4096 },
  'without verification': { verifyReads: false },
  'without native calls': { native: false },
  'with warm restarts': { restart: 'warm', syncBytes: 100_000, checkpointBytes: 300_000 },
  'in extents, two I/Os deep': {
    allocation: 'extents',
    extentBytes: 100_000,
    queueDepth: 2,
  },
};

for (const [kind, options] of Object.entries(kinds)) {
  tierContract(`file, ${kind}`, (shape) => openIn(shape, options));
}

async function openIn(shape: PoolShape, options: FileStoreOptions): Promise<TierUnderTest> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-contract-'));
  const store = await FileStore.open(dir, shape, options);
  const layout = fileLayout(shape);
  const path = join(dir, 'tierkv.blocks');
  return {
    store,
    movesBytes: true,
    remembersKeys: true,
    remembersDigests: true,
    flipBit(slot, sizeClass, byteIndex) {
      const at = recordOffset(layout, slot, sizeClass) + layout.records[sizeClass].payloadOffset + byteIndex;
      editFile(path, at, 1, (bytes) => void (bytes[0] = bytes[0] ^ 0x04));
    },
    setGeneration(slot, sizeClass, generation) {
      editFile(path, recordOffset(layout, slot, sizeClass), 128, (bytes) => {
        const words = new Uint32Array(bytes.buffer);
        words[8] = generation;
        const checksum = digestWords(words.subarray(0, 30));
        words.set([checksum.lo, checksum.hi], 30);
      });
    },
    dispose: () => {
      store.checkIntegrity();
      rmSync(dir, { recursive: true });
    },
  };
}
