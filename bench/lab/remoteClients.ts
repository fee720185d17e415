/**
 * Clients of Valkey and Redis beside the raw protocol, at the sizes of KV blocks, and what an authenticator of a
 * block costs. The server is a `redis-server` of this machine that the script starts and ends, so the network is
 * the loopback: what differs between the rows is the client's own work. All take turns in each round, and a
 * figure is the median of the rounds.
 *
 * Raw is a socket that reads into memory of its own and a copy of each value into the block's place, which is the
 * least that any client can do. Clients that are not installed are left out and named:
 *
 *     npm install --no-save ioredis iovalkey redis @valkey/valkey-glide
 *     node bench/lab/remoteClients.ts [--rounds 7] [--mib 64] [--depth 4] [--json]
 */

import { spawn } from 'node:child_process';
import crypto from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { parseArgs } from 'node:util';
import { median } from '../../src/studies/measure/manager.ts';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '7' },
    mib: { type: 'string', default: '64' },
    depth: { type: 'string', default: '4' },
    json: { type: 'boolean', default: false },
  },
});
const rounds = Number(options.rounds);
const bytesOfRound = Number(options.mib) * 2 ** 20;
const depth = Number(options.depth);
const sizes = [64, 256, 1024, 2048, 4096].map((kib) => kib * 1024);

interface Contestant {
  readonly name: string;
  get(key: string): Promise<Uint8Array>;
  set(key: string, value: Buffer): Promise<unknown>;
  close(): void;
}

// ---- the raw protocol

async function rawClient(port: number): Promise<Contestant> {
  const waiting: { into: Buffer | null; done: (value: Uint8Array) => void }[] = [];
  const blocks = Array.from({ length: 8 }, () => Buffer.allocUnsafeSlow(sizes[sizes.length - 1]));
  let next = 0;
  let body: Buffer | null = null;
  let filled = 0;
  let line = '';
  const socket = net.connect({
    port,
    host: '127.0.0.1',
    onread: {
      buffer: Buffer.allocUnsafeSlow(256 * 1024),
      callback: (count: number, chunk: Uint8Array): boolean => {
        const data = Buffer.from(chunk.buffer, chunk.byteOffset, count);
        for (let at = 0; at < count; ) {
          if (body !== null) {
            const taken = Math.min(count - at, body.length + 2 - filled);
            if (filled < body.length) data.copy(body, filled, at, at + Math.min(taken, body.length - filled));
            filled += taken;
            at += taken;
            if (filled < body.length + 2) continue;
            const whole = body;
            body = null;
            waiting.shift()!.done(whole);
            continue;
          }
          const end = data.indexOf(10, at);
          line += data.toString('latin1', at, end === -1 ? count : end - 1);
          at = end === -1 ? count : end + 1;
          if (end === -1) continue;
          const said = line;
          line = '';
          if (said.startsWith('$')) {
            body = blocks[next++ % blocks.length].subarray(0, Number(said.slice(1)));
            filled = 0;
          } else waiting.shift()!.done(Buffer.from(said));
        }
        return true;
      },
    },
  });
  socket.setNoDelay(true);
  await once(socket, 'connect');
  const ask = (head: string, value?: Buffer): Promise<Uint8Array> =>
    new Promise((done) => {
      waiting.push({ into: null, done });
      socket.write(head);
      if (value === undefined) return;
      socket.write(value);
      socket.write('\r\n');
    });
  return {
    name: 'raw',
    get: (key) => ask(`*2\r\n$3\r\nGET\r\n$${key.length}\r\n${key}\r\n`),
    set: (key, value) => ask(`*3\r\n$3\r\nSET\r\n$${key.length}\r\n${key}\r\n$${value.length}\r\n`, value),
    close: () => socket.destroy(),
  };
}

// ---- the clients, each as its documentation says for binary values

// biome-ignore lint/suspicious/noExplicitAny: four packages that need not be installed
type Anything = any;
const wanted: Record<string, (module: Anything, port: number) => Promise<Contestant>> = {
  ioredis: async ({ Redis }, port) => fromIoredis('ioredis', new Redis({ port, host: '127.0.0.1' })),
  iovalkey: async ({ Redis }, port) => fromIoredis('iovalkey', new Redis({ port, host: '127.0.0.1' })),
  redis: async ({ createClient, RESP_TYPES }, port) => {
    const client = createClient({ socket: { port, host: '127.0.0.1' } });
    await client.connect();
    const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
    return {
      name: 'redis',
      get: (key) => binary.get(key),
      set: (key, value) => client.set(key, value),
      close: () => client.destroy(),
    };
  },
  '@valkey/valkey-glide': async ({ GlideClient, Decoder }, port) => {
    const client = await GlideClient.createClient({
      addresses: [{ host: '127.0.0.1', port }],
      requestTimeout: 60_000,
      defaultDecoder: Decoder.Bytes,
    });
    return {
      name: 'valkey-glide',
      get: (key) => client.get(key),
      set: (key, value) => client.set(key, value),
      close: () => client.close(),
    };
  },
};

function fromIoredis(name: string, client: Anything): Contestant {
  return {
    name,
    get: (key) => client.getBuffer(key),
    set: (key, value) => client.set(key, value),
    close: () => client.disconnect(),
  };
}

// ---- the rounds

interface Round {
  readonly gbPerS: number;
  /** Of this thread, in milliseconds a MiB: time in which nothing else of the server runs. */
  readonly cpuMsPerMib: number;
}

async function rate(contestant: Contestant, bytes: number, isRead: boolean): Promise<Round> {
  const count = Math.max(depth, Math.floor(bytesOfRound / bytes));
  const value = Buffer.alloc(bytes, 7);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const key = `block:${bytes}:${next++ % 16}`;
      if (!isRead) {
        await contestant.set(key, value);
        continue;
      }
      const found = await contestant.get(key);
      if (found.byteLength !== bytes) throw new Error(`${contestant.name} read ${found.byteLength} bytes`);
    }
  };
  const start = performance.now();
  const before = process.threadCpuUsage();
  await Promise.all(Array.from({ length: depth }, worker));
  const { user, system } = process.threadCpuUsage(before);
  return {
    gbPerS: (count * bytes) / (performance.now() - start) / 1e6,
    cpuMsPerMib: ((user + system) / 1000 / (count * bytes)) * 2 ** 20,
  };
}

const port = await freePort();
const server = spawn('redis-server', ['--port', String(port), '--save', '', '--appendonly', 'no'], {
  stdio: 'ignore',
});
try {
  await listening(port);
  const contestants = [await rawClient(port)];
  for (const [name, open] of Object.entries(wanted)) {
    const module = await import(name).catch(() => undefined);
    if (module === undefined) console.log(`${name} is not installed: left out`);
    else contestants.push(await open(module, port));
  }
  const rows: Record<string, string | number>[] = [];
  for (const bytes of sizes) {
    const rates = contestants.map(() => ({ write: [] as Round[], read: [] as Round[] }));
    for (let round = 0; round < rounds; round++) {
      for (const [i, contestant] of contestants.entries()) {
        rates[i].write.push(await rate(contestant, bytes, false));
        rates[i].read.push(await rate(contestant, bytes, true));
      }
    }
    contestants.forEach(({ name }, i) => {
      const row: Record<string, string | number> = { KiB: bytes / 1024, client: name };
      for (const way of ['read', 'write'] as const) {
        const speed = (at: number): number => median(rates[at][way].map(({ gbPerS }) => gbPerS));
        const cpu = (at: number): number => median(rates[at][way].map(({ cpuMsPerMib }) => cpuMsPerMib));
        row[`${way} GB/s`] = Number(speed(i).toFixed(2));
        row[`${way} of raw`] = Number((speed(i) / speed(0)).toFixed(2));
        row[`${way} ms of the loop a MiB`] = Number(cpu(i).toFixed(2));
      }
      rows.push(row);
    });
  }
  for (const contestant of contestants) contestant.close();
  if (options.json) console.log(JSON.stringify(rows));
  else console.table(rows);
  console.table(authenticators());
} finally {
  server.kill('SIGKILL');
}

// ---- authenticators of a block of 2 MiB: the least of many turns, since a turn is shorter than a time slice

function authenticators(): Record<string, string | number>[] {
  const block = crypto.randomBytes(2 * 2 ** 20);
  const key = crypto.randomBytes(32);
  const nonce = Buffer.alloc(12);
  const hmac = (name: string) => () => crypto.createHmac(name, key).update(block).digest();
  const ways: Record<string, () => unknown> = {
    'HMAC-SHA256': hmac('sha256'),
    'HMAC-BLAKE2s': hmac('blake2s256'),
    'HMAC-BLAKE2b': hmac('blake2b512'),
    'AES-256-GMAC': () => {
      const cipher = crypto.createCipheriv('aes-256-gcm', key, nonce);
      cipher.setAAD(block);
      cipher.final();
      return cipher.getAuthTag();
    },
    'AES-256-GCM, which encrypts too': () => {
      const cipher = crypto.createCipheriv('aes-256-gcm', key, nonce);
      cipher.update(block);
      cipher.final();
      return cipher.getAuthTag();
    },
  };
  return Object.entries(ways).map(([name, run]) => {
    let leastMs = Number.POSITIVE_INFINITY;
    for (let turn = 0; turn < 40; turn++) {
      const start = performance.now();
      run();
      leastMs = Math.min(leastMs, performance.now() - start);
    }
    return {
      authenticator: name,
      'ms for 2 MiB': Number(leastMs.toFixed(2)),
      'GB/s': Number((block.length / leastMs / 1e6).toFixed(2)),
    };
  });
}

async function freePort(): Promise<number> {
  const probe = net.createServer();
  probe.listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const found = (probe.address() as net.AddressInfo).port;
  probe.close();
  await once(probe, 'close');
  return found;
}

async function listening(at: number): Promise<void> {
  for (;;) {
    const socket = net.connect(at, '127.0.0.1');
    const isUp = await Promise.race([
      once(socket, 'connect').then(
        () => true,
        () => false,
      ),
    ]);
    socket.destroy();
    if (isUp) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
