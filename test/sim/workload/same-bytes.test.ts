import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { describe, expect, it, vi } from 'vitest';

const SPECS = ['mixed-slo', 'prefix-churn', 'multiturn-chat-demo', 'servegen-language'];
const text = (name: string): string =>
  readFileSync(new URL(`./fixtures/specs/${name}.yaml`, import.meta.url), 'utf8');

const inWorker = (name: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./digest-worker.ts', import.meta.url), {
      workerData: { text: text(name) },
    });
    worker.once('message', resolve);
    worker.once('error', reject);
  });

describe('same key, same bytes', () => {
  it.each([1, 3])('with %i workers at once', async (workers) => {
    for (const name of SPECS) {
      const digests = await Promise.all(Array.from({ length: workers + 1 }, () => inWorker(name)));
      expect(new Set(digests).size).toBe(1);
    }
    expect(new Set(await Promise.all(SPECS.map(inWorker))).size).toBe(SPECS.length);
  });

  it('without WebAssembly, on the portable register', async () => {
    const draw = async (): Promise<string> => {
      vi.resetModules();
      const { GoRandom } = await import('../../../src/sim/random/goRand.ts');
      const { hasSimdRegister } = await import('../../../src/sim/random/registerSimd.ts');
      const random = new GoRandom(-77n);
      random.skipIntn(12_345, 128_000);
      random.skipTo(random.position + 5_000);
      return `${hasSimdRegister} ${random.position} ${random.normFloat64()} ${random.uint64()}`;
    };
    const simd = await draw();
    vi.stubGlobal('WebAssembly', undefined);
    try {
      expect(await draw()).toBe(simd.replace('true', 'false'));
    } finally {
      vi.unstubAllGlobals();
    }
    expect(simd).toMatch(/^true /);
  });
});
