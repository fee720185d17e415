/**
 * What a job of the queue may hold: other programs write to the server too. What no tierkv put there, and what is too much for a
 * worker, is refused with what is wrong, and the worker goes on. What is too much for a server is refused before it is sent.
 */

import { Queue } from 'bullmq';
import { describe, expect, it } from 'vitest';
import { openRunner } from '../../src/policy/workers/openRunner.ts';
import { type RemoteJob, readJob, requireFits } from '../../src/policy/workers/remoteTask.ts';
import { serveQueue } from '../../src/policy/workers/remoteWorker.ts';
import { CaseServer } from '../../src/policy/workers/server.ts';
import { hasRun, planPoint } from '../../src/sim/build/point.ts';
import { pointsOf, runPoints } from '../../src/sim/build/sweep.ts';
import { readWords } from '../../src/sim/description/readers.ts';
import { hasRedis, RedisServer } from '../redisServer.ts';

const hash = 'a'.repeat(64);
const good: RemoteJob = {
  run: 'r',
  wallMs: null,
  task: { kind: 'point', task: '{}', trace: { path: 'a/t', name: 't', files: [['t', hash]] } },
};
const withTask = (task: object): object => ({ ...good, task: { ...good.task, ...task } });
const withTrace = (trace: object): object => withTask({ trace: { ...good.task.trace, ...trace } });
const files = (count: number): object => ({
  files: Array.from({ length: count }, (_, i) => [`f${i}`, hash]),
});

/** Data of a job, and the part that the error names. */
const foreign: readonly (readonly [what: string, data: unknown, at: string])[] = [
  ['nothing', null, 'the job'],
  ['a text', 'text', 'the job'],
  ['a list', [1], 'the job.run'],
  ['an empty object', {}, 'the job.run'],
  ['no time', { ...good, wallMs: 'x' }, 'the job.wallMs'],
  ['a time that is negative', { ...good, wallMs: -1 }, 'the job.wallMs'],
  ['no task', { run: 'x', wallMs: null }, 'the job.task'],
  ['another kind', withTask({ kind: 'nope' }), 'the job.task.kind'],
  ["a kind of every object's", withTask({ kind: 'constructor' }), 'the job.task.kind'],
  ['the prototype as its kind', withTask({ kind: '__proto__' }), 'the job.task.kind'],
  ['a task that is an object', withTask({ task: {} }), 'the job.task.task'],
  ['a task of 17 MiB', withTask({ task: 'x'.repeat(17 * 2 ** 20) }), 'the job.task.task'],
  ['a trace that is a text', withTask({ trace: 'x' }), 'the job.task.trace'],
  ['a file without a hash', withTrace({ files: [['t', 'aa']] }), 'the job.task.trace.files'],
  ['a name of 5,000 letters', withTrace({ name: 'x'.repeat(5000) }), 'the job.task.trace.name'],
  ['5,000 files', withTrace(files(5000)), 'the job.task.trace.files'],
];

describe('the data of a job', () => {
  it('is taken as a tierkv writes it', () => {
    expect(readJob(structuredClone(good))).toEqual(good);
    const { trace: _, ...plain } = good.task;
    expect(readJob({ ...good, task: plain })).toEqual({ ...good, task: plain });
  });

  it.each(foreign)('%s is refused, and what is wrong is named', (_what, data, at) => {
    const refused = { code: 'TKV_INPUT', message: expect.stringContaining(`no tierkv put there: ${at} `) };
    expect(() => readJob(data)).toThrow(expect.objectContaining(refused));
  });
});

describe('a task that is too much for a server', () => {
  it.each([
    ['by its text', { kind: 'point', task: 'x'.repeat(16 * 2 ** 20 + 1) }, '16.0 MiB'],
    ['by its files', { ...good.task, trace: { path: 'a', name: '.', ...files(4097) } }, '4097 files'],
    [
      'by a name',
      { ...good.task, trace: { path: 'a', name: '.', files: [['x'.repeat(4097), hash]] } },
      '4096 letters',
    ],
  ] as [string, RemoteJob['task'], string][])('%s is refused with the way out', (_what, task, problem) => {
    expect(() => requireFits(task)).toThrow(
      expect.objectContaining({
        code: 'TKV_INPUT',
        field: 'workers',
        message: expect.stringContaining(problem),
      }),
    );
    requireFits(good.task);
  });
});

describe.runIf(hasRedis)('with a server', () => {
  it('a worker gives foreign jobs back in plain words and answers on; a task that is too long is not sent', async () => {
    const server = await RedisServer.start();
    const cases = await CaseServer.open(server.url, '--workers');
    const queue = new Queue(cases.queueName, { connection: cases.redis, prefix: cases.prefix });
    const stop = new AbortController();
    const said: string[] = [];
    const options = { url: server.url, threads: 1, heapMiB: 512, progress: () => {} };
    const served = serveQueue({ ...options, say: (line) => said.push(line) }, stop.signal);
    try {
      for (const [name, data] of foreign) await queue.add(name, data);
      for (;;) {
        const { failed } = await queue.getJobCounts();
        if (failed === foreign.length) break;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      const back = said.filter((line) => line.startsWith('a case was given back'));
      expect(back.length).toBeGreaterThan(0);
      for (const line of back)
        expect(line).toMatch(/no tierkv put there: .*Use a server or a database of its own/);

      const runner = await openRunner(server.url, { workers: 1, wallMs: Infinity }, () => {});
      const points = pointsOf([], readWords('--model qwen3-14b --num-requests 5'.split(' ')));
      const long = (): ReturnType<typeof planPoint> => {
        const task = planPoint(points[0]);
        return { ...task, plan: { ...task.plan, padding: 'x'.repeat(17 * 2 ** 20) } as typeof task.plan };
      };
      await expect(runner.run('point', long)).rejects.toMatchObject({
        code: 'TKV_INPUT',
        field: 'workers',
      });
      const [point] = await runPoints(points, runner);
      expect(hasRun(point)).toBe(true);
      await runner.close();
    } finally {
      stop.abort();
      await served;
      await queue.close();
      cases.close();
      await server.kill();
    }
  });
});
