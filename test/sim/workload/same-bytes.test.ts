import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';

const SPECS = ['mixed-slo', 'prefix-churn', 'multiturn-chat-demo', 'servegen-language'];
const text = (name: string): string =>
  readFileSync(new URL(`./fixtures/specs/${name}.yaml`, import.meta.url), 'utf8');

const inWorker = (program: string, workerData: object): Promise<string> =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL(`./${program}.ts`, import.meta.url), { workerData });
    worker.once('message', resolve);
    worker.once('error', reject);
  });

const digest = (name: string): Promise<string> => inWorker('digest-worker', { text: text(name) });

describe('same key, same bytes', () => {
  it.each([1, 3])('with %i workers at once', async (workers) => {
    for (const name of SPECS) {
      const digests = await Promise.all(Array.from({ length: workers + 1 }, () => digest(name)));
      expect(new Set(digests).size).toBe(1);
    }
    expect(new Set(await Promise.all(SPECS.map(digest))).size).toBe(SPECS.length);
  });
});
