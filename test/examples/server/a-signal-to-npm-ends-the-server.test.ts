/**
 * `npm run server` is how the pages start the server, and npm starts a shell that passes no signal on. So a script is the
 * program itself: a signal to npm ends it, and nothing is left with its port and its state.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, expect, it } from 'vitest';
import { portOfOurOwn } from '../../ports.ts';
import { removeStateDirectories, stateDirectory } from './liveServer.ts';

afterAll(removeStateDirectories);

const root = join(import.meta.dirname, '../../..');

it.each(['SIGTERM', 'SIGINT'] as const)('%s to npm stops the server, which saves its KV', async (signal) => {
  const port = String(await portOfOurOwn());
  const args = ['run', 'server', '--', '--port', port, '--hbm-mib', '1', '--ddr-mib', '2'];
  const npm = spawn('npm', [...args, '--state', stateDirectory(), '--nvme-mib', '4'], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // the pipe closes when the last process that holds it has ended: the server, if it were left
  const closed = once(npm, 'close');
  const lines: string[] = [];
  for await (const line of createInterface(npm.stdout)) {
    lines.push(line);
    if (!line.startsWith('Listening on')) continue;
    await fetch(`http://127.0.0.1:${port}/health`);
    npm.kill(signal);
  }
  await closed;
  expect(lines.at(-1)).toMatch(/^Stopped; \d+ blocks are saved\.$/);
  await expect(fetch(`http://127.0.0.1:${port}/health`)).rejects.toThrow();
});

it('a script that runs one program becomes that program', () => {
  const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const single = Object.entries(scripts).filter(([, command]) => !command.includes('&&'));
  const kept = single.filter(([, command]) => /^node /.test(command)).map(([name]) => name);
  expect(kept).toEqual([]);
});
