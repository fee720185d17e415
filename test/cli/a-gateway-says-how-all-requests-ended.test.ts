import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { expect, it } from 'vitest';
import { main } from '../command.ts';

it('the rare ends too', async () => {
  const noServer = 'http://127.0.0.1:9';
  const child = spawn(process.execPath, [main, 'gateway', '--backend', noServer, '--port', '0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line);
    const url = /^listening at (\S+)$/.exec(line)?.[1];
    if (url === undefined) continue;
    for (const body of ['{"model": "m", "prompt": "x"}', '{"model": "m", "prompt": "y"}', 'no JSON']) {
      const headers = { 'content-type': 'application/json' };
      await (await fetch(`${url}/v1/completions`, { method: 'POST', headers, body })).text();
    }
    child.kill('SIGINT');
  }
  await closed;
  expect(lines.at(-1)).toBe(
    '3 requests: 0 completed, 0 rejected, 0 failed, 1 invalid, 2 without a backend, 0 retries',
  );
});
