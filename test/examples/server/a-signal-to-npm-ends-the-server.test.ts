/**
 * `npm run server` is how the pages start the server, and npm starts a shell that passes no signal on. So a script is the
 * program itself: a signal to npm ends it, and nothing is left with its port and its state.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { afterAll, expect, it } from 'vitest';
import { portOfOurOwn } from '../../ports.ts';
import { removeStateDirectories, stateDirectory } from './liveServer.ts';

afterAll(removeStateDirectories);

const root = join(import.meta.dirname, '../../..');

it.each(['SIGTERM', 'SIGINT'] as const)('%s to npm stops the server, which saves its KV', async (signal) => {
  const port = String(await portOfOurOwn());
  const args = [
    'run',
    'server',
    '--',
    '--port',
    port,
    '--operator-port',
    '0',
    '--hbm-mib',
    '1',
    '--ddr-mib',
    '2',
  ];
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

it('a server whose disk does not keep its KV says so, and ends with another code', async () => {
  const port = String(await portOfOurOwn());
  const state = stateDirectory();
  const args = [
    'examples/server/main.ts',
    '--port',
    port,
    '--hbm-mib',
    '1',
    '--ddr-mib',
    '2',
    '--state',
    state,
  ];
  const server = spawn(process.execPath, [...args, '--nvme-mib', '4'], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const said = text(server.stderr);
  const closed = once(server, 'close');
  const lines: string[] = [];
  for await (const line of createInterface(server.stdout)) {
    lines.push(line);
    if (!line.startsWith('Listening on')) continue;
    const [file] = readdirSync(state, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('tierkv.blocks'),
    );
    rmSync(join(state, file));
    server.kill('SIGTERM');
  }
  expect(await closed).toEqual([1, null]);
  expect(lines.join()).not.toMatch(/saved\./);
  expect(await said).toMatch(/stopped, and not all KV is saved: .*still where they were/);
});

it('a script that runs one program becomes that program', () => {
  const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const single = Object.entries(scripts).filter(([, command]) => !command.includes('&&'));
  const kept = single.filter(([, command]) => /^node /.test(command)).map(([name]) => name);
  expect(kept).toEqual([]);
});
