/**
 * What tests of the runtime run in a worker of a page, or in the page's own thread: a runtime over a device that is given, which is lost and replaced,
 * and one without a device whose blocks the next start finds in the origin's files.
 */

import {
  type BrowserRuntimeConfig,
  type KVRuntime,
  kvLayout,
  openInBrowser,
} from '../../../src/adapters/browser/index.ts';

const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 32, dtype: 'f32', blockTokens: 16 });
const blocks = (count: number): number => count * layout.blockBytes;
const tenant = 'page';
const promptBlocks = 4;
const prompt = (seed: number): number[] =>
  Array.from({ length: promptBlocks * layout.blockTokens + 1 }, (_, i) => 1000 * seed + i);
const byteOf = (seed: number, block: number): number => (31 * seed + block) & 255;

const base = {
  layout,
  model: 'in a page',
  secretKey: new Uint8Array(32).fill(5),
  ddrBytes: blocks(16),
} satisfies BrowserRuntimeConfig;

async function compute(kv: KVRuntime, seed: number): Promise<void> {
  const sequence = await kv.begin(prompt(seed), { tenant });
  for (const { index } of kv.openBlocks(sequence)) {
    if (index < promptBlocks)
      kv.writeBlock(sequence, index, new Uint8Array(layout.blockBytes).fill(byteOf(seed, index)));
  }
  await kv.seal(sequence);
  kv.release(sequence);
}

export interface Found {
  readonly cachedTokens: number;
  /** Blocks whose bytes are right, and whose bytes are not. */
  readonly right: number;
  readonly wrong: number;
}

async function find(kv: KVRuntime, seed: number): Promise<Found> {
  const sequence = await kv.begin(prompt(seed), { tenant });
  let [right, wrong] = [0, 0];
  for (let i = 0; i < sequence.cachedTokens / layout.blockTokens; i++) {
    const bytes = await kv.readBlock(sequence, i);
    if (bytes.every((byte) => byte === byteOf(seed, i))) right++;
    else wrong++;
  }
  const { cachedTokens } = sequence;
  kv.release(sequence);
  return { cachedTokens, right, wrong };
}

/** A device of the page's engine is shared, lost, and replaced by the function that gave it. */
async function sharedDevice(): Promise<object> {
  const given: GPUDevice[] = [];
  const device = async (): Promise<GPUDevice> => {
    const adapter = await (navigator as unknown as { gpu: GPU }).gpu.requestAdapter();
    given.push(await adapter!.requestDevice());
    return given[given.length - 1];
  };
  const kv = await openInBrowser({ ...base, device, hbmBytes: blocks(8) });
  await compute(kv, 1);
  const isShared = kv.device === given[0];
  const before = await find(kv, 1);
  for (let seed = 2; seed < 6; seed++) await compute(kv, seed); // pushes the first one down
  given[0].destroy();
  await given[0].lost;
  const after = await find(kv, 1);
  const { devicesLost } = kv;
  await kv.close();
  // the engine's device works on
  const last = given[given.length - 1];
  const buffer = last.createBuffer({ size: 16, usage: 9, mappedAtCreation: true });
  buffer.unmap();
  await last.queue.onSubmittedWorkDone();
  const isAlive = await Promise.race([last.lost.then(() => false), Promise.resolve(true)]);
  return { isShared, before, after, devicesLost, devices: given.length, isAlive };
}

async function inFiles(seed: number): Promise<{ readonly found: Found; readonly saved: number }> {
  const kv = await openInBrowser({ ...base, nvme: { dir: 'runtime', bytes: blocks(64) } });
  const found = await find(kv, seed);
  if (found.cachedTokens === 0) await compute(kv, seed);
  const saved = await kv.save();
  await kv.close();
  return { found, saved };
}

let held: KVRuntime | undefined;

async function open(more: Partial<BrowserRuntimeConfig>): Promise<readonly string[]> {
  const notices: string[] = [];
  held = await openInBrowser({ ...base, ...more, notice: (line) => notices.push(line) });
  return [...held.stores.tiers.keys(), ...notices];
}

/** Computes and finds in the runtime that `open` holds. Files that are slow lose nothing: each prompt waits for the last one's writes. */
async function computeHeld(first: number, count: number): Promise<void> {
  for (let seed = first; seed < first + count; seed++) {
    await compute(held!, seed);
    await held!.idle();
  }
}

async function findHeld(first: number, count: number): Promise<Found> {
  const sum = { cachedTokens: 0, right: 0, wrong: 0 };
  for (let seed = first; seed < first + count; seed++) {
    const { cachedTokens, right, wrong } = await find(held!, seed);
    await held!.idle();
    sum.cachedTokens += cachedTokens;
    sum.right += right;
    sum.wrong += wrong;
  }
  return sum;
}

const saveHeld = (): Promise<number> => held!.save();

async function closeHeld(): Promise<string> {
  await held!.close();
  return 'closed';
}

/** What a private window, or a site whose storage is blocked, does. */
async function refuseStorage(): Promise<void> {
  const refuse = (): Promise<never> => Promise.reject(new DOMException('denied', 'SecurityError'));
  Object.assign(navigator.storage, { getDirectory: refuse });
}

async function forbidWorkers(): Promise<void> {
  const policy = document.createElement('meta');
  policy.httpEquiv = 'Content-Security-Policy';
  policy.content = "worker-src 'self'";
  document.head.append(policy);
}

async function surroundings(): Promise<object> {
  return {
    isPage: 'document' in globalThis,
    isIsolated: crossOriginIsolated,
    hasSharedMemory: 'SharedArrayBuffer' in globalThis,
  };
}

const storedBytes = async (): Promise<number> => (await navigator.storage.estimate()).usage ?? 0;

const calls: Readonly<Record<string, (...args: never[]) => Promise<unknown>>> = {
  sharedDevice,
  inFiles,
  open,
  computeHeld,
  findHeld,
  saveHeld,
  closeHeld,
  refuseStorage,
  forbidWorkers,
  surroundings,
  storedBytes,
};

addEventListener('message', async ({ data }: MessageEvent<{ id: number; call: string; args: never[] }>) => {
  if (!('call' in data)) return; // in a page answers come here too
  const { id, call, args } = data;
  try {
    postMessage({ id, result: await calls[call](...args) });
  } catch (error) {
    const { code = '', field = '', message } = error as { code?: string; field?: string; message: string };
    postMessage({ id, problem: `${code} ${field}: ${message}` });
  }
});
