/** What is wrong with the server of `--workers`, in one line that says what to do. */

import { spawn } from 'node:child_process';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { main } from '../command.ts';
import { portOfOurOwn } from '../ports.ts';
import { hasRedis, RedisServer } from '../redisServer.ts';

function stderrOf(
  args: readonly string[],
): Promise<{ readonly status: number | null; readonly stderr: string }> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [main, ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
    let stderr = '';
    child.stderr.on('data', (text: Buffer) => {
      stderr += text;
    });
    child.once('close', (status) => resolve({ status, stderr }));
  });
}

const sweep = (workers: string): string[] => [
  ...['sweep', '--grid', 'rate=1', '--workers', workers],
  ...['--', '--model', 'qwen3-14b', '--num-requests', '2'],
];

const told = async (args: readonly string[], text: RegExp): Promise<void> => {
  const { status, stderr } = await stderrOf(args);
  expect(stderr).toMatch(text);
  expect([status, stderr.trimEnd().split('\n').length]).toEqual([2, 1]);
};

it('is another kind of address', async () => {
  await told(
    sweep('http://localhost'),
    /^tierkv: --workers is "http:\/\/localhost"\. Write redis:\/\/host:6379/,
  );
  await told(sweep('redis://host/name'), /--workers names the database "name"\. Write its number/);
  await told(sweep('many'), /^tierkv: --workers is "many", not a number/);
  await told(['worker', 'localhost:6379'], /^tierkv: server is "localhost:6379"\. Write redis/);
});

it('cannot be reached', async () => {
  const url = `redis://127.0.0.1:${await portOfOurOwn()}`;
  const text =
    /^tierkv: --workers: redis:\/\/127\.0\.0\.1:\d+ cannot be reached: .*ECONNREFUSED.*\. Start a Redis server/;
  await told(sweep(url), text);
  await told(['worker', url], /^tierkv: server: redis:\S+ cannot be reached/);
});

describe('is not a Redis', () => {
  let http: Server;
  beforeAll(async () => {
    http = createServer((_, response) => response.end('hello'));
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  });
  afterAll(() => void http.close());

  it('but a server of something else', async () => {
    const { port } = http.address() as AddressInfo;
    await told(
      sweep(`redis://127.0.0.1:${port}`),
      /--workers: redis:\S+ does not answer as Redis does \(.*\)\. Name the host/,
    );
  });
});

describe.runIf(hasRedis)('is a Redis', () => {
  it('that refuses the password, which no message repeats', async () => {
    const server = await RedisServer.start('right');
    try {
      for (const given of ['', ':wrong@']) {
        const url = `redis://${given}127.0.0.1:${server.port}`;
        const { stderr } = await stderrOf(sweep(url));
        expect(stderr).toMatch(
          /--workers: redis:\/\/127\.0\.0\.1:\d+ refused the password \(.*\)\. Write redis:\/\/user/,
        );
        expect(stderr).not.toContain('wrong@');
      }
    } finally {
      await server.kill();
    }
  });

  it('whose workers have another version', async () => {
    const server = await RedisServer.start();
    const client = server.client();
    try {
      const note = { version: '0.0.9', program: 'abc', engine: 'v8-1.2', host: 'h', pid: 1, threads: 1 };
      await client.set('tierkv:worker:other', JSON.stringify(note));
      await told(
        sweep(server.url),
        /all workers of \S+ are tierkv 0\.0\.9 \(program abc, v8-1\.2\), and this is tierkv \S+ \(program \w+, v8-[\d.]+\)\. Start workers of the same version.*\[TKV_MISMATCH\]/,
      );
    } finally {
      client.disconnect();
      await server.kill();
    }
  });

  it('that has no memory left, and neither a point nor a policy is at fault', async () => {
    const server = await RedisServer.start();
    const client = server.client();
    try {
      await client.config('SET', 'maxmemory', '1');
      const text =
        /--workers: redis:\S+ refuses: OOM command not allowed[^.]*\. Give it more memory \(maxmemory\)/;
      for (const args of [sweep(server.url), ['evaluate', 'routing/lor', '--workers', server.url]]) {
        const { status, stderr } = await stderrOf(args);
        expect(stderr).toMatch(text);
        expect(status).toBe(2);
      }
    } finally {
      client.disconnect();
      await server.kill();
    }
  });
});
