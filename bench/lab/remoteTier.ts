/**
 * The shared tier beside the client that it goes through, on a `redis-server` of this machine which the script starts
 * and ends: loads of 2 MiB with verification and bookkeeping, against bare `GET`s of the same client in the same
 * rounds; and lookups beside loads, on connections of their own and on one.
 *
 *     node bench/lab/remoteTier.ts [--rounds 7] [--blocks 16] [--lookups 2000]
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { parseArgs } from 'node:util';
import { loadNativeCipher } from '../../src/backends/remote/nativeCipher.ts';
import { connectRemote } from '../../src/backends/remote/remoteClient.ts';
import { RemoteStore } from '../../src/backends/remote/remoteStore.ts';
import { parseRemoteUrl } from '../../src/backends/remote/remoteUrl.ts';
import { RECORD_OVERHEAD_BYTES, RecordCodec } from '../../src/backends/remote/sealedRecord.ts';
import { poolShape } from '../../src/runtime/tables/slotPool.ts';
import { median } from '../../src/studies/measure/manager.ts';
import { emptyItem, patternItem } from '../../src/testing/index.ts';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '7' },
    blocks: { type: 'string', default: '16' },
    lookups: { type: 'string', default: '2000' },
  },
});
const [rounds, blocks, lookups] = [options.rounds, options.blocks, options.lookups].map(Number);
const blockBytes = 2 * 2 ** 20;
const shape = poolShape(blocks, blockBytes, [blockBytes]);
const secretKey = new Uint8Array(32).fill(7);
const layout = 'bench';
const items = Array.from({ length: blocks }, (_, slot) => patternItem(shape, slot, 0, 1));

const port = await freePort();
const server = spawn('redis-server', ['--port', String(port), '--save', '', '--appendonly', 'no'], {
  stdio: 'ignore',
});
try {
  await listening(port);
  const url = `redis://127.0.0.1:${port}`;
  const rows: Record<string, string | number>[] = [];
  const bare = await connectRemote({ url: parseRemoteUrl(url), connectMs: 60_000, callMs: 60_000 });
  for (const encrypt of [true, false]) {
    const patient = { deadlineMs: 60_000, lookupMs: 60_000, connectMs: 60_000 };
    const generation = encrypt ? 1 : 2;
    await using store = await RemoteStore.open(shape, {
      url,
      secretKey,
      layout,
      generation,
      encrypt,
      ...patient,
    });
    const codec = new RecordCodec({ secretKey, layout, generation });
    for (const item of items) await store.write([item]);
    const targets = items.map((item) => emptyItem(item));
    const names = items.map(({ key }) => codec.nameOf(key));
    const gets = (): Promise<unknown> =>
      Promise.all(names.map((name) => bare.first(name, blockBytes + RECORD_OVERHEAD_BYTES)));
    const loads = async (): Promise<void> => {
      const ends = await store.read(targets);
      for (const { reason } of ends) if (reason !== '') throw new Error(reason);
    };
    await gets();
    await loads();
    const cipher = await loadNativeCipher();
    const times = { gets: [] as number[], loads: [] as number[] };
    const cpu = { gets: [] as Spent[], loads: [] as Spent[] };
    for (let round = 0; round < rounds; round++) {
      for (const [name, act] of [
        ['gets', gets],
        ['loads', loads],
      ] as const) {
        const before = spent();
        times[name].push(await timed(act));
        const after = spent();
        cpu[name].push({ loop: after.loop - before.loop, all: after.all - before.all });
      }
    }
    const [get, load] = [median(times.gets), median(times.loads)];
    const best = Math.min(...times.gets) / Math.min(...times.loads);
    const perMib = (which: Spent[], of: keyof Spent): number =>
      Number((median(which.map((each) => each[of])) / ((blocks * blockBytes) / 2 ** 20)).toFixed(2));
    rows.push({
      payload: encrypt ? 'encrypted' : 'plain',
      cipher: cipher === undefined ? 'node' : 'native',
      'GET GB/s': rate(get),
      'load GB/s': rate(load),
      'of the bare client': Number((get / load).toFixed(2)),
      'best of best': Number(best.toFixed(2)),
      'loop ms a MiB: GET': perMib(cpu.gets, 'loop'),
      load: perMib(cpu.loads, 'loop'),
      'process ms a MiB: GET': perMib(cpu.gets, 'all'),
      'load ': perMib(cpu.loads, 'all'),
    });
  }
  console.table(rows);

  const waits: Record<string, string | number>[] = [];
  for (const oneConnection of [true, false]) {
    await using store = await RemoteStore.open(shape, {
      ...{ url, secretKey, layout, generation: 1, oneConnection },
      ...{ deadlineMs: 60_000, lookupMs: 60_000, connectMs: 60_000 },
    });
    for (const item of items) store.believe(item, item.key);
    const keys = new Uint32Array(4 * blocks);
    for (const [i, { key }] of items.entries()) keys.set(key, 4 * i);
    let isOver = false;
    const loading = (async () => {
      while (!isOver) await store.read(items.slice(0, 4).map((item) => emptyItem(item)));
    })();
    const took: number[] = [];
    for (let i = 0; i < lookups; i++) {
      took.push(await timed(() => store.lookup([{ keys, from: 0, to: 8, sizeClass: 0 }])));
    }
    isOver = true;
    await loading;
    took.sort((a, b) => a - b);
    const at = (share: number): number => Number(took[Math.floor(took.length * share)].toFixed(2));
    waits.push({
      'lookups beside loads': oneConnection ? 'on one connection' : 'on their own',
      'median ms': at(0.5),
      'p99 ms': at(0.99),
      'p99.9 ms': at(0.999),
    });
  }
  console.table(waits);
  bare.close();
} finally {
  server.kill('SIGKILL');
}

interface Spent {
  /** CPU milliseconds of the thread that runs this, and of all threads of the process. */
  readonly loop: number;
  readonly all: number;
}

function spent(): Spent {
  const [loop, all] = [process.threadCpuUsage(), process.cpuUsage()];
  return { loop: (loop.user + loop.system) / 1000, all: (all.user + all.system) / 1000 };
}

function rate(ms: number): number {
  return Number(((blocks * blockBytes) / ms / 1e6).toFixed(2));
}

async function timed(act: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await act();
  return performance.now() - start;
}

async function freePort(): Promise<number> {
  const probe = createServer();
  probe.listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const found = (probe.address() as AddressInfo).port;
  probe.close();
  await once(probe, 'close');
  return found;
}

async function listening(at: number): Promise<void> {
  for (;;) {
    const socket = connect(at, '127.0.0.1');
    const isUp = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isUp) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
