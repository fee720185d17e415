/**
 * `--workers redis://...` with workers in processes of their own: a sweep and a search come out byte for byte as on one
 * machine, also while workers and the server are killed at random.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openRunner } from '../../src/policy/workers/openRunner.ts';
import { serveQueue } from '../../src/policy/workers/remoteWorker.ts';
import { CaseServer } from '../../src/policy/workers/server.ts';
import { hasRun, planPoint } from '../../src/sim/build/point.ts';
import { pointsOf, runPoints } from '../../src/sim/build/sweep.ts';
import { readWords } from '../../src/sim/description/readers.ts';
import { smallWorkload } from '../cli/evaluate/smallWorkload.ts';
import { main } from '../command.ts';
import { hasRedis, RedisServer } from '../redisServer.ts';
import { resultOf } from '../resultSchema.ts';
import { sized } from '../sized.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-machines-'));
const at = (name: string): string => path.join(folder, name);
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const running = new Set<ChildProcess>();
afterEach(async () => {
  await Promise.all([...running].map(killed));
});

async function killed(child: ChildProcess): Promise<void> {
  running.delete(child);
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('close', resolve));
  child.kill('SIGKILL');
  await ended;
}

function tierkv(
  args: readonly string[],
  cwd: string = folder,
): { child: ChildProcess; ended: Promise<Ended> } {
  const child = spawn(process.execPath, [main, ...args], { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  let stdout = '';
  let stderr = '';
  child.stdout?.on('data', (text: Buffer) => {
    stdout += text;
  });
  child.stderr?.on('data', (text: Buffer) => {
    stderr += text;
  });
  const ended = new Promise<Ended>((resolve) => {
    child.once('close', (status) => {
      running.delete(child);
      resolve({ status, stdout, stderr });
    });
  });
  return { child, ended };
}

function worker(url: string): ChildProcess {
  // in a folder of its own: nothing of the one who asks is there
  return tierkv(['worker', url, '--threads', '1'], fs.mkdtempSync(path.join(folder, 'worker-'))).child;
}

/** Points of a sweep: enough that each foreign answer stands twice. */
const count = sized(40, 200);
/** Points of the sweep whose workers and server are killed: six kills come while it runs. */
const longCount = sized(120, 200);
const gridOf = (points: number): readonly string[] => [
  ...['--grid', 'num-instances=1,2', '--grid', 'rate=10,20,30,40,50'],
  ...['--grid', `seed=${seeds(points / 10)}`],
];
const simulated = ['--', '--model', 'qwen3-14b', '--workload', 'chatbot', '--num-requests', '12'];

function seeds(count: number): string {
  return Array.from({ length: count }, (_, i) => i + 1).join(',');
}

function sweep(name: string, workers: string, points: number = count): Promise<Ended> {
  const args = [...gridOf(points), '--json', at(`${name}.json`), '--workers', workers];
  return tierkv(['sweep', ...args, ...simulated]).ended;
}

async function resultsIn(client: ReturnType<RedisServer['client']>): Promise<number> {
  return (await client.keys('tierkv:result:*')).length;
}

const read = (name: string): string => fs.readFileSync(at(name), 'utf8');

describe.runIf(hasRedis)('a sweep', () => {
  let local: Ended;
  beforeAll(async () => {
    local = await sweep('local', '2');
    expect([
      local.status,
      resultOf<{ results: unknown[] }>('sweep', read('local.json')).results.length,
    ]).toEqual([0, count]);
  });

  it('equals the one of a single machine, and what is there is not run again', async () => {
    const server = await RedisServer.start();
    const client = server.client();
    try {
      const workers = [worker(server.url), worker(server.url)];
      const remote = await sweep('remote', server.url);
      expect([remote.status, remote.stdout]).toEqual([0, local.stdout]);
      expect(read('remote.json')).toBe(read('local.json'));
      expect((await client.keys('tierkv:result:*')).length).toBe(count);
      await Promise.all(workers.map(killed));
      // with no worker at all: every result is there already
      const again = await sweep('again', server.url);
      expect(again.status).toBe(0);
      expect(read('again.json')).toBe(read('local.json'));
    } finally {
      client.disconnect();
      await server.kill();
    }
  });

  it('takes no result of another case, of another shape or of another length for its own', async () => {
    const server = await RedisServer.start();
    const client = server.client();
    try {
      worker(server.url);
      expect((await sweep('clean', server.url)).status).toBe(0);
      const names = (await client.keys('tierkv:result:*')).sort();
      expect(names.length).toBe(count);
      const texts = await Promise.all(names.map((name) => client.get(name)));
      const { key, answer } = JSON.parse(texts[0] as string) as { key: string; answer: object };
      expect(names[0]).toBe(`tierkv:result:${key}`);
      const ours = (made: unknown) => (name: string) =>
        client.set(name, JSON.stringify({ key: name.slice(-64), answer: made }));
      const kinds: ((name: string, i: number) => Promise<unknown>)[] = [
        (name, i) => client.set(name, texts[(i + 1) % count] as string),
        (name) => client.set(name, JSON.stringify(answer)),
        ...['OK', '', '{"garbage', '{}', '[]', 'null', '{"error":"x"}'].map(
          (text) => (name: string) => client.set(name, text),
        ),
        ours({}),
        ours([]),
        ours(null),
        ours({ error: 'x' }),
        ours({ ...answer, steps: 'no list' }),
        ours({ ...answer, completed: -1 }),
        ours({ result: { metrics: {} } }),
        ours({ unanswered: 'soon', message: '' }),
        (name, i) => client.set(name, `${texts[i]}${' '.repeat(2 ** 20)}`),
        async (name) => {
          await client.del(name);
          await client.rpush(name, 'a list');
        },
      ];
      for (const [i, name] of names.entries()) await kinds[i % kinds.length](name, i);
      const { status, stdout, stderr } = await sweep('foreign', server.url);
      expect([status, stdout]).toEqual([0, local.stdout]);
      expect(read('foreign.json')).toBe(read('local.json'));
      const told = stderr.match(/holds tierkv:result:[0-9a-f]{64}, which does not answer its case/g);
      expect(told?.length).toBe(1);
    } finally {
      client.disconnect();
      await server.kill();
    }
  });

  it('is the same with workers and server killed at random', async () => {
    const seed = Number(process.env.TIERKV_SEED ?? 1);
    let state = seed;
    /** From 0 to 1, by the seed. */
    const draw = (): number => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return state / 2 ** 32;
    };
    const long = await sweep('long', '2', longCount);
    const server = await RedisServer.start();
    const workers = [worker(server.url), worker(server.url)];
    const done = { workers: 0, servers: 0 };
    try {
      let isOver = false;
      const remote = sweep('killed', server.url, longCount).finally(() => {
        isOver = true;
      });
      for (let i = 0; i < 6; i++) {
        // by what was done, not by the clock: the machine may be slow
        const more = 5 + Math.floor(15 * draw());
        const client = server.client();
        const before = await resultsIn(client);
        while (!isOver && (await resultsIn(client)) < before + more) await sleep(20);
        client.disconnect();
        if (isOver) break;
        if (i % 2 === 1) {
          // it forgets all cases, also those of a worker that was killed, whose lock need not end then
          await server.kill();
          await sleep(1000 * draw());
          await server.begin();
          done.servers++;
        } else {
          const which = Math.floor(2 * draw());
          await killed(workers[which]);
          workers[which] = worker(server.url);
          done.workers++;
        }
      }
      const { status, stdout, stderr } = await remote;
      expect([seed, status, stdout]).toEqual([seed, 0, long.stdout]);
      expect(read('killed.json'), `seed ${seed}`).toBe(read('long.json'));
      // the control: they were killed while it ran, and it noticed
      expect(done, `seed ${seed}`).toEqual({ workers: 3, servers: 3 });
      expect(stderr).toMatch(/was lost; waiting for it[\s\S]*is there again/);
    } finally {
      await server.kill();
    }
  });
});

describe.runIf(hasRedis)('a search of several generations', () => {
  const files = ['state.json', 'best.json', 'report.json', 'comparison.csv', 'lineage.jsonl'];
  const search = (out: string, workers: string): Promise<Ended> =>
    tierkv([
      ...['evolve', '--out', at(out), '--plan', at('plan.json'), '--slots', 'admission', '--population', '4'],
      ...[
        '--generations',
        sized('3', '10'),
        '--finalists',
        '2',
        '--islands',
        '1',
        '--no-plots',
        '--workers',
        workers,
      ],
    ]).ended;

  it('equals the one of a single machine', async () => {
    fs.writeFileSync(at('small.yaml'), smallWorkload);
    const suite = (seed: number): object => ({ seeds: [seed], perturbation: 0.1 });
    const suites = { train: suite(1), validation: suite(2), hidden: suite(3) };
    const plan = { workloads: ['small.yaml'], latencyModels: ['roofline'], suites };
    fs.writeFileSync(at('plan.json'), JSON.stringify(plan));
    const local = await search('local', '2');
    expect([local.status, local.stdout.length > 0]).toEqual([0, true]);
    const server = await RedisServer.start();
    try {
      const workers = [worker(server.url), worker(server.url)];
      let isOver = false;
      const remote = search('remote', server.url).finally(() => {
        isOver = true;
      });
      // the case that it has can come back by the end of its lock alone
      const client = server.client();
      while (!isOver && (await resultsIn(client)) < 3) await sleep(20);
      client.disconnect();
      await killed(workers[0]);
      worker(server.url);
      const ended = await remote;
      expect([ended.status, ended.stdout]).toEqual([0, local.stdout]);
      for (const file of files) expect(read(`remote/${file}`), file).toBe(read(`local/${file}`));
    } finally {
      await server.kill();
    }
  });
});

describe.runIf(hasRedis)('a recorded trace', () => {
  it('travels once, and messages name it as the one who asks does', async () => {
    const rows = Array.from({ length: 40 }, (_, i) =>
      JSON.stringify({ timestamp: 100 * i, input_length: 1024, output_length: 8, hash_ids: [1, 2 + i] }),
    );
    fs.writeFileSync(at('trace.jsonl'), `${rows.join('\n')}\n`);
    fs.writeFileSync(at('broken.jsonl'), `${rows[0]}\n{"timestamp": 5\n`);
    const args = (file: string, name: string, workers: string): string[] => [
      ...['sweep', '--grid', 'num-instances=1,2,3', '--json', `${name}.json`, '--workers', workers],
      ...['--', '--model', 'qwen3-14b', file],
    ];
    const server = await RedisServer.start();
    const client = server.client();
    const monitor = await client.monitor();
    const commands: string[][] = [];
    monitor.on('monitor', (_time: string, command: string[]) => commands.push(command));
    try {
      worker(server.url);
      for (const [file, status] of [
        ['trace.jsonl', 0],
        ['broken.jsonl', 2],
      ] as const) {
        const here = await tierkv(args(file, 'here', '1')).ended;
        const there = await tierkv(args(file, 'there', server.url)).ended;
        expect([there.status, there.stdout]).toEqual([status, here.stdout]);
        expect(read('there.json')).toBe(read('here.json'));
      }
      // each of the three points of each file read the one that the first had put there
      expect((await client.keys('tierkv:blob:*')).filter((key) => !/:\d+$/.test(key)).length).toBe(2);
      const moved = commands.filter(([, key]) => /^tierkv:blob:\w+:0$/.test(key ?? ''));
      expect(moved.map(([name]) => name).sort()).toEqual(['getrange', 'getrange', 'set', 'set']);
      monitor.disconnect();
    } finally {
      client.disconnect();
      await server.kill();
    }
  });
});

describe.runIf(hasRedis)('a file on the server', () => {
  it('is fetched no further than it can be ours', async () => {
    const bytes = randomBytes(9 * 2 ** 20);
    fs.writeFileSync(at('file'), bytes);
    const hash = createHash('sha256').update(bytes).digest('hex');
    const name = `tierkv:blob:${hash}`;
    const server = await RedisServer.start();
    const client = server.client();
    const cases = await CaseServer.open(server.url, 'server');
    /** Bytes that the server has sent. */
    const sent = async (): Promise<number> =>
      Number(/total_net_output_bytes:(\d+)/.exec(await client.info('stats'))?.[1]);
    try {
      const long = Buffer.alloc(100 * 2 ** 20);
      const kinds: (() => Promise<unknown>)[] = [
        () => client.set(name, long),
        () => client.set(name, '999999999'),
        () => client.set(name, '-1'),
        () => client.rpush(name, '2'),
        () => client.set(`${name}:0`, long),
        () => client.set(`${name}:1`, long),
        () => client.set(`${name}:0`, bytes.subarray(0, 5)),
        () => client.del(`${name}:1`),
      ];
      for (const [i, change] of kinds.entries()) {
        await client.flushall();
        await cases.putFile(at('file'), hash);
        expect(await cases.getFile(hash, at('fetched'))).toBe(true);
        expect(fs.readFileSync(at('fetched')).equals(bytes)).toBe(true);
        if (i === 3) await client.del(name);
        await change();
        const before = await sent();
        expect(await cases.getFile(hash, at('fetched')), `kind ${i}`).toBe(false);
        expect((await sent()) - before, `kind ${i}`).toBeLessThan(18 * 2 ** 20);
      }
    } finally {
      cases.close();
      client.disconnect();
      await server.kill();
    }
  });
});

describe.runIf(hasRedis)('a long case', () => {
  it('does not look stalled, however long it takes', async () => {
    // A machine that stands for longer than a lock loses it, and rightly: then both the lock and the case are made longer.
    for (let times = 1; ; times *= 2) {
      const lockMs = 300 * times;
      const { tookMs, events } = await longCase(lockMs, 30_000 * times);
      // the control: its lock would have ended several times
      expect(tookMs).toBeGreaterThan(2 * lockMs);
      if (!events.includes('stalled')) break;
      expect(times, 'it looks stalled under every lock').toBeLessThan(16);
    }
  });
});

/** Runs a case of `requests` requests at a worker with that lock. @returns what the queue told of it */
async function longCase(lockMs: number, requests: number): Promise<{ tookMs: number; events: string[] }> {
  const server = await RedisServer.start();
  const client = server.client();
  const stop = new AbortController();
  const progress = (): void => {};
  const said: string[] = [];
  const say = (line: string): void => void said.push(line);
  const options = { url: server.url, threads: 1, heapMiB: 2048, lockMs, say, progress };
  const served = serveQueue(options, stop.signal);
  try {
    const runner = await openRunner(server.url, { workers: 1, wallMs: Infinity }, () => {});
    const args = `--model qwen3-14b --workload chatbot --rate 20 --num-requests ${requests}`.split(' ');
    const beganMs = performance.now();
    const [point] = await runPoints(pointsOf([], readWords(args)), runner);
    const tookMs = performance.now() - beganMs;
    await runner.close();
    expect(hasRun(point)).toBe(true);
    const [queue] = await client.keys('tierkv:cases-*:events');
    for (;;) {
      const events = (await client.xrange(queue, '-', '+')).map(([, fields]) => fields[1]);
      // the worker keeps the answer first, and then tells the queue
      if (events.includes('completed')) return { tookMs, events };
      await sleep(20);
    }
  } finally {
    stop.abort();
    await served;
    expect(said.at(-1)).toBe('has done 1 case');
    client.disconnect();
    await server.kill();
  }
}

describe.runIf(hasRedis)('what is called off', () => {
  it('leaves the queue, and the rest stays', async () => {
    const server = await RedisServer.start();
    const client = server.client();
    const said: string[] = [];
    const runner = await openRunner(server.url, { workers: 1, wallMs: 1000 }, (line) => said.push(line));
    try {
      const words = readWords('--model qwen3-14b --num-requests 5'.split(' '));
      const points = pointsOf([`seed=${seeds(20)}`], words);
      let isOff = false;
      const asked = points.map((point, i) =>
        runner.run(
          'point',
          () => planPoint(point),
          () => isOff && i > 0,
        ),
      );
      const waiting = async (): Promise<number> => {
        const [queue] = await client.keys('tierkv:cases-*:wait');
        return queue === undefined ? 0 : client.llen(queue);
      };
      while ((await waiting()) < 20) await sleep(20);
      isOff = true;
      expect(await Promise.all(asked.slice(1))).toEqual(Array.from({ length: 19 }, () => undefined));
      expect(await waiting()).toBe(1);
      expect(said).toEqual([
        expect.stringMatching(/^waiting for workers: run tierkv worker redis:\S+ with tierkv \d/),
      ]);
    } finally {
      await runner.close();
      expect(await client.keys('tierkv:cases-*:wait')).toEqual([]);
      client.disconnect();
      await server.kill();
    }
  });

  it('is all that waits when a command is stopped', async () => {
    const server = await RedisServer.start();
    const client = server.client();
    const waiting = async (): Promise<number> => (await client.keys('tierkv:cases-*:wait')).length;
    try {
      for (const args of [
        ['sweep', ...gridOf(count), '--workers', server.url, ...simulated],
        ['evaluate', 'routing/lor', '--workers', server.url],
      ]) {
        const { child, ended } = tierkv(args);
        while ((await waiting()) === 0) await sleep(20);
        child.kill('SIGINT');
        const { status, stdout, stderr } = await ended;
        expect([status, stdout]).toEqual([130, '']);
        expect(stderr).toMatch(/\ntierkv: stopped by SIGINT\n$/);
        expect(await waiting()).toBe(0);
      }
    } finally {
      client.disconnect();
      await server.kill();
    }
  });
});

describe.runIf(hasRedis)('a case that ends its workers', () => {
  it('has no result after some of them, and the others go on', async () => {
    const server = await RedisServer.start();
    const client = server.client();
    const runner = await openRunner(server.url, { workers: 1, wallMs: 1000 }, () => {});
    try {
      const [point] = pointsOf([], readWords('--model qwen3-14b --num-requests 5'.split(' ')));
      const asked = runner.run('point', () => planPoint(point));
      let isOver = false;
      void asked.finally(() => {
        isOver = true;
      });
      // as when a worker is killed with it too often, each time that it comes
      let times = 0;
      while (!isOver) {
        const [queue] = await client.keys('tierkv:cases-*:wait');
        if (queue === undefined) await sleep(20);
        else {
          await client.flushall();
          times++;
        }
      }
      expect(await asked).toEqual({
        unanswered: 'failed',
        message: 'its workers ended or gave it back 5 times',
      });
      expect(times).toBe(5);
    } finally {
      await runner.close();
      client.disconnect();
      await server.kill();
    }
  });
});
