/**
 * Real Redis servers for tests: each on a free port of this machine, without a file, ended with the test. Where no
 * `redis-server` is installed the tests that need one skip, and say which command installs it.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { portOfOurOwn } from '../../ports.ts';

export const hasRedis: boolean = spawnSync('redis-server', ['--version']).status === 0;

/** To be called where `hasRedis` is false, so that nothing is skipped unseen. */
export function sayRedisIsAbsent(what: string): void {
  console.log(`SKIPPED: ${what}: no redis-server here. Install it: apt-get install redis-server`);
}

export interface RedisServer extends AsyncDisposable {
  readonly port: number;
  readonly url: string;
  readonly process: ChildProcess;
  /** Ends the process at once, as a crash does. */
  kill(): Promise<void>;
  /** Starts another process on the same port, empty. */
  restart(): Promise<void>;
  /** One command, over a connection of its own. @returns the raw reply */
  ask(...words: (string | Buffer)[]): Promise<Buffer>;
}

/** @param options of redis-server, such as `--maxmemory 10mb` */
export async function startRedis(...options: string[]): Promise<RedisServer> {
  const port = await portOfOurOwn();
  const dir = await mkdtemp(join(tmpdir(), 'tierkv-redis-'));
  const start = async (): Promise<ChildProcess> => {
    const config = join(dir, 'redis.conf');
    writeFileSync(config, '');
    const tls = options.includes('--tls-port');
    const args = [
      config,
      '--port',
      tls ? '0' : String(port),
      '--save',
      '',
      '--appendonly',
      'no',
      '--dir',
      dir,
    ];
    const filled = options.map((each) => (each === 'PORT' ? String(port) : each));
    const child = spawn('redis-server', [...args, ...filled], { stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    child.stdout!.on('data', (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-4000);
    });
    for (;;) {
      if (child.exitCode !== null) throw new Error(`redis-server ended: ${said}`);
      if (await accepts(port)) return child;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  let child = await start();
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const over = once(child, 'close');
    child.kill('SIGKILL');
    await over;
  };
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    get process() {
      return child;
    },
    kill,
    restart: async () => {
      await kill();
      child = await start();
    },
    ask: (...words) => askRedis(port, ...words),
    [Symbol.asyncDispose]: async () => {
      await kill();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** A cluster of real nodes, with the slots divided among them. */
export async function startCluster(nodes: number): Promise<RedisServer[]> {
  const buses = await Promise.all(Array.from({ length: nodes }, portOfOurOwn));
  const cluster: RedisServer[] = [];
  for (const bus of buses) {
    cluster.push(await startRedis('--cluster-enabled', 'yes', '--cluster-port', String(bus)));
  }
  for (const [i, node] of cluster.entries()) {
    const [from, to] = [i, i + 1].map((at) => Math.floor((16_384 * at) / nodes));
    await node.ask('CLUSTER', 'ADDSLOTSRANGE', String(from), String(to - 1));
    if (i > 0) await cluster[0].ask('CLUSTER', 'MEET', '127.0.0.1', String(node.port), String(buses[i]));
  }
  const isWhole = async (node: RedisServer): Promise<boolean> => {
    const info = (await node.ask('CLUSTER', 'INFO')).toString();
    return info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${nodes}`);
  };
  while (!(await Promise.all(cluster.map(isWhole))).every((whole) => whole)) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return cluster;
}

/** A command and its raw reply: of a bulk string the bytes, of everything else the line with its first letter. */
export async function askRedis(port: number, ...words: (string | Buffer)[]): Promise<Buffer> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  try {
    socket.write(`*${words.length}\r\n`);
    for (const word of words) {
      socket.write(`$${Buffer.byteLength(word)}\r\n`);
      socket.write(word);
      socket.write('\r\n');
    }
    let reply = Buffer.alloc(0);
    for (;;) {
      const end = reply.indexOf('\r\n');
      if (end !== -1) {
        const line = reply.toString('latin1', 0, end);
        if (!line.startsWith('$') || line === '$-1') return Buffer.from(line);
        const length = Number(line.slice(1));
        if (reply.length >= end + 4 + length) return reply.subarray(end + 2, end + 2 + length);
      }
      const [chunk] = (await once(socket, 'data')) as [Buffer];
      reply = Buffer.concat([reply, chunk]);
    }
  } finally {
    socket.destroy();
  }
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
