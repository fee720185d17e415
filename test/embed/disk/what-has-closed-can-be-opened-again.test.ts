/** What has been closed is closed: its address and its directory are free, also for who asked for the close second. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { publishKVEvents } from '../../../src/gateway/events/index.ts';
import { Gateway } from '../../../src/gateway/index.ts';
import { HandoffSender } from '../../../src/handoff/index.ts';
import { echo, TestBackend } from '../../gateway/live/backends.ts';
import { portOfOurOwn } from '../../ports.ts';
import { blocks, openHostRuntime } from '../liveRuntime.ts';

const dir = mkdtempSync(join(tmpdir(), 'tierkv-closed-'));
const kv = await openHostRuntime({ tokenIds: true });
const backend = await TestBackend.open(echo);
afterAll(async () => {
  await kv.close();
  await backend[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

interface Closable {
  close(): Promise<void>;
}

const opened: [string, (port: number) => Promise<Closable>][] = [
  ['a runtime on a directory', () => openHostRuntime({ nvme: { dir, bytes: blocks(8) } })],
  ['a publisher', (port) => publishKVEvents(kv, { endpoint: `tcp://127.0.0.1:${port}` })],
  ['a sender of blocks', (port) => HandoffSender.open(kv, { listen: { port } })],
  ['a gateway', (port) => Gateway.open({ backends: [{ url: backend.url }], port })],
];

describe('what has closed can be opened again at once', () => {
  it.each(opened)('%s', async (_, open) => {
    const port = await portOfOurOwn();
    for (let i = 0; i < 10; i++) {
      const one = await open(port);
      void one.close();
      await one.close();
    }
    await expect(open(port).then((one) => one.close())).resolves.toBeUndefined();
  });
});
