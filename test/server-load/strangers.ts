/**
 * How fast a server with keys answers `/health` while strangers send it a hundred requests a second without a key, or with a
 * wrong one: wide bodies, deep ones, long ones, and some of no said length. `npm run campaign -- strangers --seconds 60`.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { SeededRandom } from '../../src/testing/index.ts';
import { portOfOurOwn } from '../ports.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '30' },
    rate: { type: 'string', default: '100' },
    seed: { type: 'string', default: '1' },
  },
});
const random = new SeededRandom(Number(values.seed));
const port = await portOfOurOwn();
const program = join(import.meta.dirname, '../../examples/server/main.ts');
const server = spawn(process.execPath, [program, '--port', String(port), '--operator-port', '0'], {
  env: { ...process.env, TIERKV_API_KEYS: 'key-a=tenant-a' },
  stdio: ['ignore', 'pipe', 'inherit'],
});
for await (const line of createInterface(server.stdout)) if (line.startsWith('Listening')) break;

const bodies = [
  `{"messages":[${'0,'.repeat(260_000)}0]}`,
  `{"messages":${'['.repeat(100_000)}`,
  JSON.stringify({ model: 'tierkv-tiny', prompt: 'x'.repeat(1_000_000) }),
  `{"seed":18446744073709551615,"prompt":[${'1,'.repeat(260_000)}1]}`,
  'y'.repeat(5_000_000),
].map((text) => Buffer.from(text));

/** @returns the status, or the code of what went wrong with the connection */
function ask(method: string, path: string, headers: Record<string, string>, body?: Buffer): Promise<string> {
  return new Promise((resolve) => {
    const sent = request({ port, host: '127.0.0.1', method, path, headers, agent: false });
    sent.once('response', (response: IncomingMessage) => {
      response.resume().once('end', () => resolve(String(response.statusCode)));
      response.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
    });
    sent.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
    sent.end(body);
  });
}

function stranger(): Promise<string> {
  const body = bodies[random.below(bodies.length)];
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (random.chance(0.5)) headers.authorization = 'Bearer zzz';
  if (random.chance(0.8)) headers['content-length'] = String(body.length);
  const path = random.chance(0.8) ? '/v1/chat/completions' : '/nowhere';
  return ask('POST', path, headers, body);
}

const ends = new Map<string, number>();
const healthMs: number[] = [];
const endMs = performance.now() + Number(values.seconds) * 1000;
const strangers: Promise<void>[] = [];
const health = (async () => {
  while (performance.now() < endMs) {
    const from = performance.now();
    if ((await ask('GET', '/health', {})) === '200') healthMs.push(performance.now() - from);
    await sleep(20);
  }
})();
for (let due = performance.now(); due < endMs; due += 1000 / Number(values.rate)) {
  await sleep(Math.max(0, due - performance.now()));
  strangers.push(stranger().then((end) => void ends.set(end, (ends.get(end) ?? 0) + 1)));
}
await Promise.all([health, ...strangers]);
healthMs.sort((a, b) => a - b);
const at = (share: number): string => `${healthMs[Math.floor(share * (healthMs.length - 1))].toFixed(1)} ms`;
console.log(
  `${strangers.length} strangers in ${values.seconds} s, seed ${values.seed}: ` +
    [...ends].map(([end, count]) => `${end} ${count}`).join(', '),
);
console.log(`/health, ${healthMs.length} times: p50 ${at(0.5)}, p99 ${at(0.99)}, most ${at(1)}`);
server.kill('SIGTERM');
await once(server, 'close');
